"""Payloads that are larger than a chunk: there and back, dropped as a whole, and bounded."""

import contextlib
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.kernel import crc32c
from penstock.log.epochs import BatchName
from penstock.log.fold import Position
from penstock.replication.chunks import Assembly, Key
from penstock.replication.effects import Hello
from penstock.replication.frames import AppendFrame, Frame, FrameBroken, Frames, Target, encode
from penstock.replication.journal import HelloJournal, SendRecord

from .received import received

NODE = 7
TARGET = Target(0x1122334455667788, 3)
OTHER = Target(0x1122334455667788, 4)
PIECE = 10  # bytes


KEY = Key(1, 2, 6)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLICA_CHUNK_BYTES", PIECE)
    monkeypatch.setattr(limits, "REPLICA_UNFINISHED_MAX", 3)
    monkeypatch.setattr(limits, "REPLICA_PAYLOAD_BYTES_MAX", 1000)
    monkeypatch.setattr(limits, "REPLICA_UNFINISHED_BYTES_MAX", 1500)


def append(batches: bytes, session: int = 5) -> AppendFrame:
    return AppendFrame(session, 9, BatchName(8, 40, 77), 41, batches, 40)


def record(content: bytes, session: int = 5) -> SendRecord:
    return SendRecord(NODE, session, 9, Position(9 << 32, 2), content, Position(9 << 32, 1))


def parts(frame: Frame, target: Target = TARGET) -> list[bytes]:
    return [b"".join(one) for one in encode(target, frame)]


def fed(receiver: Frames, data: Sequence[bytes]) -> list[Any]:
    found = [one for part in data for one in received(receiver, part)]
    receiver.assembly.validate()
    return found


LETTERS = bytes(range(97, 123))


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 20, 21, 26])
def test_a_payload_goes_in_as_many_frames_as_it_has_chunks(length: int) -> None:
    sent = append(LETTERS[:length])
    data = parts(sent)
    assert len(data) == max(1, -(-length // PIECE))
    receiver = Frames(NODE)
    assert fed(receiver, data[:-1]) == []
    assert receiver.assembly.held_bytes == (len(data) - 1) * PIECE
    assert fed(receiver, data[-1:]) == [(TARGET, sent)]
    assert receiver.assembly.count == 0


def test_the_bytes_are_those_of_the_table() -> None:
    one, two = parts(append(LETTERS[:12]))
    head = struct.pack(">BBHQQ", 1, 15, 3, TARGET.identity, 5)
    fields = struct.pack(">BII", 6, 12, 0) + bytes(4)
    assert (
        one
        == struct.pack(">II", 4 + 33 + 10, crc32c(head + fields)) + head + fields + (LETTERS[:10])
    )
    head = struct.pack(">BBHQQ", 1, 6, 3, TARGET.identity, 5)
    fields = struct.pack(">IIQIQQII", 9, 8, 40, 77, 41, 40, 10, 0)
    assert two == struct.pack(">II", 4 + 64 + 2, crc32c(head + fields)) + head + fields + b"kl"


# --- what is dropped ---


def test_the_hello_of_another_session_drops_what_is_unfinished() -> None:
    receiver = Frames(NODE)
    fed(receiver, parts(append(LETTERS))[:1] + parts(record(LETTERS))[:1])
    fed(receiver, parts(Hello(NODE, 5, 9)) + parts(HelloJournal(NODE, 5, 9)))
    assert receiver.assembly.count == 2  # it is the same one
    fed(receiver, parts(Hello(NODE, 6, 9)))
    assert receiver.assembly.count == 1  # the journal has sessions of its own
    fed(receiver, parts(HelloJournal(NODE, 6, 9)))
    assert receiver.assembly.count == 0
    with pytest.raises(FrameBroken, match="a chunk at 10 of 26 bytes continues nothing"):
        fed(receiver, parts(append(LETTERS))[1:])


# --- what is refused ---


def test_chunks_of_two_sessions_are_not_put_together() -> None:
    one, two = parts(append(LETTERS, session=5)), parts(append(LETTERS, session=6))
    with pytest.raises(FrameBroken, match="a chunk at 10 of 26 bytes continues nothing"):
        fed(Frames(NODE), [one[0], two[1]])
    with pytest.raises(FrameBroken, match="a chunk at 20 of 26 bytes continues nothing"):
        fed(Frames(NODE), [*one[:2], two[2]])


def chunk(kind: int, total: int, at: int, data: bytes, crc: int | None = None) -> bytes:
    head = struct.pack(">BBHQQ", 1, 15, 3, TARGET.identity, 5)
    crc = crc32c(data) if crc is None else crc
    content = head + struct.pack(">BIII", kind, total, at, crc)
    return struct.pack(">II", 4 + len(content) + len(data), crc32c(content)) + content + data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([chunk(6, 1001, 0, LETTERS)], "1001 bytes in chunks, at most 1000 are taken"),
        ([chunk(7, 100, 0, LETTERS)], "chunks of kind 7, which has no payload"),
        ([chunk(6, 100, 0, b"")], "a chunk of 0 bytes at 0 of 100: it is not the last"),
        ([chunk(6, 26, 0, LETTERS)], "a chunk of 26 bytes at 0 of 26: it is not the last"),
        ([chunk(6, 30, 0, LETTERS), chunk(6, 30, 26, LETTERS)], "it is not the last"),
        ([chunk(6, 100, 0, LETTERS), chunk(6, 99, 26, b"x")], "continues nothing"),
        ([chunk(6, 100, 0, LETTERS), chunk(6, 100, 25, b"x")], "continues nothing"),
        ([chunk(6, 100, 0, LETTERS), chunk(13, 100, 26, b"x")], "continues nothing"),
        ([chunk(13, 100, 0, LETTERS, crc=1)], "a payload of 26 bytes fails its checksum"),
        ([chunk(6, 100, 0, b"")[:30]], ""),
    ],
)
def test_invalid_chunks_end_the_link(data: list[bytes], reason: str) -> None:
    receiver = Frames(NODE)
    if not reason:  # it may still become whole
        assert fed(receiver, data) == []
        return
    with pytest.raises(FrameBroken, match=reason):
        fed(receiver, data)


def test_a_chunk_without_its_fields_is_refused() -> None:
    content = struct.pack(">BBHQQ", 1, 15, 3, TARGET.identity, 5) + bytes(5)
    data = struct.pack(">II", 4 + len(content), crc32c(content)) + content
    with pytest.raises(FrameBroken, match="a chunk of 5 bytes, it has 13"):
        fed(Frames(NODE), [data])


def test_unfinished_payloads_are_bounded_in_number() -> None:
    assembly = Assembly()
    for partition in range(3):
        assembly.add(Key(1, partition, 6), 5, 100, 0, b"x")
    with pytest.raises(ValueError, match="more than 3 payloads are unfinished"):
        assembly.add(Key(1, 3, 6), 5, 100, 0, b"x")


def test_unfinished_payloads_are_bounded_in_bytes() -> None:
    assembly = Assembly()
    assembly.add(Key(1, 0, 6), 5, 900, 0, b"x")
    with pytest.raises(ValueError, match="1501 bytes are announced in chunks, at most 1500"):
        assembly.add(Key(1, 1, 6), 5, 601, 0, b"x")
    assembly.add(Key(1, 0, 6), 5, 100, 0, b"x")  # in the place of the first
    assembly.add(Key(1, 1, 6), 5, 601, 0, b"x")
    assembly.validate()


def test_oversized_payloads_are_not_sent() -> None:
    with pytest.raises(ValueError, match="1001 bytes, at most 1000 are sent"):
        encode(TARGET, append(bytes(1001)))


def test_a_count_that_is_wrong_is_seen() -> None:
    assembly = Assembly()
    assembly.add(KEY, 5, 100, 0, b"x")
    assembly._announced = 7
    with pytest.raises(RuntimeError, match="100 bytes are announced, 7 are counted"):
        assembly.validate()
    assembly._announced = 100
    assembly._unfinished[KEY].have += 100
    with pytest.raises(RuntimeError, match="101 of 100 bytes are unfinished"):
        assembly.validate()


@given(
    st.lists(
        st.tuples(
            st.sampled_from((6, 13, 7)), st.integers(0, 1200), st.integers(0, 60),
            st.binary(max_size=30),
        ),
        max_size=12,
    )
)  # fmt: skip
def test_a_strangers_chunks_never_take_more_than_is_announced(
    given: list[tuple[int, int, int, bytes]],
) -> None:
    receiver = Frames(NODE)
    with contextlib.suppress(FrameBroken):
        for kind, total, at, data in given:
            list(received(receiver, chunk(kind, total, at, data)))
            receiver.assembly.validate()
    assert receiver.assembly.held_bytes <= limits.REPLICA_UNFINISHED_BYTES_MAX
    assert receiver.assembly.count <= limits.REPLICA_UNFINISHED_MAX


LANES = [(TARGET, append), (TARGET, record), (OTHER, append)]


@given(st.lists(st.tuples(st.sampled_from(LANES), st.binary(max_size=45)), max_size=6), st.data())
def test_any_order_between_partitions_gives_each_its_frames(
    sent: list[tuple[Any, bytes]], data: st.DataObject
) -> None:
    """Appends of a partition stay in order, and so do its records; a lane may mix them as it
    likes."""
    frames = [(lane, lane[1](content)) for lane, content in sent]
    queues = {
        lane: [part for other, one in frames if other == lane for part in parts(one, lane[0])]
        for lane in LANES
    }
    mixed = []
    while any(queues.values()):
        lane = data.draw(st.sampled_from([one for one, queue in queues.items() if queue]))
        mixed.append(queues[lane].pop(0))
    found = fed(Frames(NODE), mixed)
    assert len(found) == len(frames)
    for lane in LANES:
        mine = [(lane[0], frame) for other, frame in frames if other == lane]
        assert [one for one in found if one in mine] == mine
