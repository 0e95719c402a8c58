"""Packs: several messages in one body, counted, checked and taken without an object for each."""

from typing import Any

import pytest

from penstock.kernel import BAD_COUNT, BAD_MESSAGE, Pack

from .turns import Side
from .turns import size as u32

BIG = 1 << 30
PACKS = [
    (Pack.FRAMED, u32(2) + u32(1) + b"a" + u32(3) + b"b\nc", [b"a", b"b\nc"]),
    (Pack.FRAMED, u32(1) + u32(1) + b"a" + b"what follows is nobody's", [b"a"]),
    (Pack.LINES, b"a\n\nb\r\nlast", [b"a", b"b\r", b"last"]),
    (Pack.LINES, b"\n\n", []),
    (Pack.LINES, b"", []),
]
BROKEN = [
    (Pack.FRAMED, b"", BAD_COUNT),
    (Pack.FRAMED, b"\0\0\0", BAD_COUNT),
    (Pack.FRAMED, u32(0), BAD_COUNT),
    (Pack.FRAMED, u32(-1), BAD_COUNT),
    (Pack.FRAMED, u32(9) + (u32(1) + b"a") * 9, BAD_COUNT),
    (Pack.FRAMED, u32(1), BAD_MESSAGE),
    (Pack.FRAMED, u32(1) + b"\0\0\0", BAD_MESSAGE),
    (Pack.FRAMED, u32(2) + u32(1) + b"a" + u32(0), BAD_MESSAGE),
    (Pack.FRAMED, u32(1) + u32(-1) + b"a", BAD_MESSAGE),
    (Pack.FRAMED, u32(1) + u32(2) + b"a", BAD_MESSAGE),
    (Pack.FRAMED, u32(1) + u32(11) + b"a" * 11, BAD_MESSAGE),
    (Pack.LINES, b"a\n" + b"b" * 11, BAD_MESSAGE),
]


@pytest.mark.parametrize(("pack", "body", "bodies"), PACKS)
@pytest.mark.parametrize("due_ns", [0, 77])
def test_a_pack_is_appended_as_its_messages(
    side: Side, pack: Pack, body: bytes, bodies: list[bytes], due_ns: int
) -> None:
    one_by_one, packed = side.tail(b"a"), side.tail(b"b")
    for tail in (one_by_one, packed):
        tail.append(b"first")
    for message in bodies:
        one_by_one.append(message, due_ns)
    assert packed.count_pack(pack, body, 8, 10) == len(bodies)
    assert packed.append_pack(pack, bytearray(body), due_ns) == len(bodies)
    assert packed.message_bytes == one_by_one.message_bytes
    batches = [
        b"".join(bytes(part) for part in tail.seal(8, 5, 0)) for tail in (one_by_one, packed)
    ]
    assert batches[0] == batches[1]
    packed.commit_to(packed.written_end)
    packed.validate()


@pytest.mark.parametrize(("pack", "body", "fault"), BROKEN)
def test_a_broken_pack_is_named_and_nothing_of_it_is_taken(
    side: Side, pack: Pack, body: bytes, fault: int, tail: Any
) -> None:
    assert tail.count_pack(pack, body, 8, 10) == fault
    if tail.count_pack(pack, body, BIG, BIG) < 0:
        with pytest.raises(ValueError, match="malformed"):
            tail.append_pack(pack, body)
    assert (tail.open_count, tail.open_bytes) == (0, 0)


def test_an_unknown_kind_of_pack_is_a_mistake_of_the_program(side: Side) -> None:
    with pytest.raises(ValueError, match="3"):
        side.tail().count_pack(3, b"x", 8, 10)


def test_a_body_in_pieces_is_one_message(side: Side) -> None:
    pieces, whole = side.tail(b"a"), side.tail(b"b")
    for tail in (pieces, whole):
        tail.append(b"first")
    pieces.append_parts([b"ab", b"", memoryview(b"cde")])
    whole.append(b"abcde")
    assert pieces.message_bytes == whole.message_bytes == 10
    batches = [b"".join(map(bytes, tail.seal(8, 5, 0))) for tail in (pieces, whole)]
    assert batches[0] == batches[1]
    with pytest.raises(ValueError, match="empty"):
        pieces.append_parts([b""])
