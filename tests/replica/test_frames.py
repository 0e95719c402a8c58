"""The bytes between nodes: there and back, and whatever a stranger may send."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock import limits
from penstock.kernel import crc32c
from penstock.limits import REPLICA_EPOCHS_MAX, REPLICA_FRAME_BYTES_MAX
from penstock.log.fold import Position
from penstock.replica import pieces
from penstock.replica.effects import Acknowledge, BeginAt, Hello, MatchAt, Matched, Refuse, Tell
from penstock.replica.forwardframes import BatchAnswered, Ending, SendBatch
from penstock.replica.frames import Encoded, Frame, FrameBroken, Frames, Note, Row, Target, encode
from penstock.replica.journalframes import JOURNAL_KINDS
from penstock.replica.journalline import (
    AcknowledgePlace,
    AskSnapshot,
    AskSync,
    HelloJournal,
    SendHeld,
    SendRecord,
    TellPlace,
)
from penstock.replica.matching import NO_BATCH, Chain, Extent
from penstock.replica.pieces import Assembly, Key, cut
from penstock.replica.rangeframes import AskRange, SendRange, lacking
from penstock.replica.stageframes import (
    AskStage,
    SendStage,
    StageStored,
    asked_stage,
    cut_text,
    stage_stored,
)
from penstock.replica.tableframes import HasTable, SendTable

NODE = 3
TARGET = Target(0x1122334455667788, 7)

u32 = st.integers(0, (1 << 32) - 1)
u64 = st.integers(0, (1 << 64) - 1)
places = st.builds(Position, u64, u64)
chains = st.builds(Chain, u32, u64, u32)


@st.composite
def extents(draw: st.DrawFn) -> Extent:
    start = draw(st.integers(0, 1 << 50))
    epochs, at, epoch = [], start, 0
    for _ in range(draw(st.integers(0, 5))):
        epoch += draw(st.integers(1, 1000))
        epochs.append((epoch, at))
        at += draw(st.integers(1, 1 << 40))
    return Extent(start, at, tuple(epochs))


def whole(target: Target, frame: Frame) -> bytes:
    return b"".join(b"".join(parts) for parts in encode(target, frame))


frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Hello, st.just(NODE), u64, u32),
    st.builds(Tell, u64, u32, u64, u64, extents(), u64),
    st.builds(MatchAt, st.just(NODE), u64, u64, chains),
    st.builds(BeginAt, st.just(NODE), u64, u64),
    st.builds(Matched, u64, u64),
    st.builds(Row, u64, u32, chains, u64, st.binary(max_size=300), u64),
    st.builds(Acknowledge, u64, u32, u64, u64, u64),
    st.builds(Refuse, u64, u32),
    st.builds(HelloJournal, st.just(NODE), u64, u32),
    st.builds(TellPlace, u64, u32, u64, places),
    st.builds(AskSnapshot, u64, u32),
    st.builds(AcknowledgePlace, u64, u32, u64, places, places),
    st.builds(SendRecord, st.just(NODE), u64, u32, places, st.binary(max_size=300), places),
    st.builds(SendHeld, st.just(NODE), u64, u32, places),
    st.builds(AskSync, st.just(NODE), u64, u32, places),
    st.builds(SendTable, u64, u32, u64, st.binary(max_size=300)),
    st.builds(HasTable, u64, u32, u64, u64),
    st.builds(AskRange, u64, u64, u64),
    st.builds(SendRange, u64, u64, chains, st.binary(max_size=300)),
    st.builds(SendBatch, u64, u64, st.booleans(), st.binary(max_size=300)),
    st.builds(BatchAnswered, u64, u64, st.sampled_from(Ending), u64, u64, st.text(max_size=200)),
    st.builds(Note, st.just(0), st.binary(max_size=300)),
)
targets = st.builds(Target, u64, st.integers(0, 65535))


@given(st.lists(st.tuples(targets, frames), max_size=6), st.integers(1, 70))
def test_there_and_back_in_pieces_of_any_size(
    sent: list[tuple[Target, Frame]], piece_bytes: int
) -> None:
    data = b"".join(whole(target, frame) for target, frame in sent)
    receiver, received = Frames(NODE), []
    for at in range(0, len(data), piece_bytes):
        received += receiver.feed(data[at : at + piece_bytes])
    assert received == sent


def test_the_bytes_are_those_of_the_table() -> None:
    frame = whole(TARGET, Refuse(5, 9))
    content = bytes.fromhex("01 08 0007 1122334455667788 0000000000000005 00000009")
    assert frame == (4 + len(content)).to_bytes(4, "big") + crc32c(content).to_bytes(4, "big") + (
        content
    )


@given(st.binary(max_size=200))
def test_what_a_stranger_sends_is_refused_or_waited_for(data: bytes) -> None:
    with contextlib.suppress(FrameBroken):
        assert list(Frames(NODE).feed(data)) == []


@given(frames, st.data())
def test_a_flipped_bit_is_found(frame: Frame, data: st.DataObject) -> None:
    good = bytearray(whole(TARGET, frame))
    bit = data.draw(st.integers(8 * 4, 8 * len(good) - 1))  # behind the length
    good[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FrameBroken, match="does not have its checksum"):
        list(Frames(NODE).feed(bytes(good)))


def sealed(content: bytes) -> bytes:
    return (4 + len(content)).to_bytes(4, "big") + crc32c(content).to_bytes(4, "big") + content


HEAD = bytes(18)


@each(
    ("data", "reason"),
    [
        ((3).to_bytes(8, "little"), "a frame of"),
        ((REPLICA_FRAME_BYTES_MAX + 1).to_bytes(4, "big") + bytes(4), "a frame of"),
        (sealed(b"\x02\x08" + HEAD + bytes(4)), "version 2 of frames is not known here"),
        (sealed(b"\x01\x63" + HEAD), "kind 99 of frames is not known here"),
        (sealed(b"\x01\x08" + HEAD + bytes(5)), "a refusal of 5 bytes, it has 4"),
        (sealed(b"\x01\x06" + HEAD + bytes(5)), "a row of 5 bytes, it has 44"),
        (sealed(b"\x01\x11" + HEAD + bytes(5)), "a table of producers of 5 bytes, it has 20"),
        (sealed(b"\x01\x13" + HEAD + bytes(5)), "a question for a range of 5 bytes, it has 16"),
        (sealed(b"\x01\x14" + HEAD + bytes(5)), "a range of 5 bytes, it has 32"),
        (sealed(b"\x01\x12" + HEAD + bytes(5)), "an answer to a table of 5 bytes, it has 20"),
        (sealed(b"\x01\x02" + HEAD + bytes(44 + 5)), "5 bytes of epochs"),
    ],
)
def test_what_is_wrong_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(FrameBroken, match=reason):
        list(Frames(NODE).feed(data))


@each("kind", JOURNAL_KINDS)
def test_a_journals_frame_without_its_fields_is_refused(kind: int) -> None:
    lengths = (0, 3) if kind == 13 else (0, 3, 5, 60)  # a record may follow the fields of a 13
    what = "a journal's record" if kind == 13 else f"of kind {kind}"
    for length in lengths:
        data = sealed(bytes((1, kind)) + HEAD + bytes(length))
        with pytest.raises(FrameBroken, match=f"{what} of {length} bytes, it has"):
            list(Frames(NODE).feed(data))


def test_the_bytes_of_a_journal_are_those_of_the_table() -> None:
    frame = whole(TARGET, SendHeld(NODE, 5, 9, Position(0x900000002, 3)))
    fields = bytes.fromhex("00000009 0000000900000002 0000000000000003")
    assert frame[8:] == bytes.fromhex("01 0e 0007 1122334455667788 0000000000000005") + fields


@each(
    "extent",
    [
        Extent(0, 5, ()),
        Extent(0, 5, ((2, 1),)),
        Extent(0, 5, ((2, 0), (2, 3))),
        Extent(0, 5, ((2, 0), (3, 0))),
        Extent(0, 5, ((2, 0), (3, 5))),
        Extent(7, 5, ()),
    ],
)
def test_a_position_that_contradicts_itself_is_refused(extent: Extent) -> None:
    data = whole(TARGET, Tell(1, 5, 101, 1, extent, 0))
    with pytest.raises(FrameBroken, match="in a log from"):
        list(Frames(NODE).feed(data))


def test_what_is_too_much_is_not_sent() -> None:
    epochs = tuple((n, n) for n in range(REPLICA_EPOCHS_MAX + 1))
    with pytest.raises(ValueError, match="epochs, at most"):
        encode(TARGET, Tell(1, 5, 101, 1, Extent(0, 1 << 20, epochs), 0))


# --- what an answer without batches says ---


def test_a_replica_says_up_to_where_it_lacks_a_range() -> None:
    assert SendRange(1, 7, lacking(12), b"").lacks_until == 12


def test_an_answer_may_leave_it_open() -> None:
    assert SendRange(1, 7, NO_BATCH, b"").lacks_until == 0


def test_batches_say_nothing_of_the_kind() -> None:
    assert SendRange(1, 7, lacking(12), b"a batch").lacks_until == 0


# --- frames of stages, to bytes and back ---


TARGET_STAGEFRAMES = Target(0xA1, 3)
NUMBER = 5 << 32 | 1


@each(
    "frame",
    [
        SendStage(9, NUMBER, b"line\nbatches"),
        SendStage(9, NUMBER, bytes(range(256)) * 3_000),  # in pieces
        StageStored(9, 101, NUMBER),
        StageStored(9, 101, NUMBER, "the disk is full"),
        AskStage(9, 101, NUMBER),
    ],
)
def test_they_come_as_they_were_sent(frame: Frame) -> None:
    data = b"".join(bytes(part) for parts in encode(TARGET_STAGEFRAMES, frame) for part in parts)
    assert list(Frames(1).feed(data)) == [(TARGET_STAGEFRAMES, frame)]


def test_answers_of_a_wrong_length_or_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(ValueError, match="an answer to a stage of 3 bytes"):
        stage_stored(9, b"abc")
    with pytest.raises(ValueError, match="an answer to a stage that is stored: 0"):
        stage_stored(9, bytes(17))
    with pytest.raises(ValueError, match="a question for a stage of 18 bytes"):
        asked_stage(9, bytes(18))


def test_a_broken_answer_ends_the_link() -> None:
    good = b"".join(map(bytes, encode(TARGET_STAGEFRAMES, StageStored(9, 101, NUMBER, "why"))[0]))
    with pytest.raises(FrameBroken):
        list(Frames(1).feed(good[:-1] + b"?"))


def test_a_reason_is_cut_between_characters() -> None:
    assert cut_text("aä", 2) == b"a"
    assert cut_text("aä", 3) == "aä".encode()


# --- payloads that are larger than a piece: there and back, dropped as a whole, and bounded ---


NODE_PIECES = 7
WHERE = Target(0x1122334455667788, 3)
OTHER = Target(0x1122334455667788, 4)
PIECE = 10  # bytes
KEY = Key(1, 2, 6)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLICA_PIECE_BYTES", PIECE)
    monkeypatch.setattr(limits, "REPLICA_UNFINISHED_MAX", 3)
    monkeypatch.setattr(limits, "REPLICA_PAYLOAD_BYTES_MAX", 1000)
    monkeypatch.setattr(limits, "REPLICA_UNFINISHED_BYTES_MAX", 1500)


def row(batches: bytes, session: int = 5) -> Row:
    return Row(session, 9, Chain(8, 40, 77), 41, batches, 40)


def record(content: bytes, session: int = 5) -> SendRecord:
    return SendRecord(NODE_PIECES, session, 9, Position(9 << 32, 2), content, Position(9 << 32, 1))


def parts(frame: Frame, target: Target = WHERE) -> list[bytes]:
    return [b"".join(one) for one in encode(target, frame)]


def fed(receiver: Frames, data: Sequence[bytes]) -> list[Any]:
    found = [one for part in data for one in receiver.feed(part)]
    receiver.assembly.validate()
    return found


LETTERS = bytes(range(97, 123))


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 20, 21, 26])
def test_a_payload_goes_in_as_many_frames_as_it_has_pieces(length: int) -> None:
    sent = row(LETTERS[:length])
    data = parts(sent)
    assert len(data) == max(1, -(-length // PIECE))
    receiver = Frames(NODE_PIECES)
    assert fed(receiver, data[:-1]) == []
    assert receiver.assembly.held_bytes == (len(data) - 1) * PIECE
    assert fed(receiver, data[-1:]) == [(WHERE, sent)]
    assert receiver.assembly.count == 0


def test_the_bytes_are_those_of_the_table_of_pieces() -> None:
    one, two = parts(row(LETTERS[:12]))
    head = struct.pack(">BBHQQ", 1, 15, 3, WHERE.identity, 5)
    fields = struct.pack(">BII", 6, 12, 0) + struct.pack(">I", crc32c(LETTERS[:10]))
    assert (
        one
        == struct.pack(">II", 4 + 33 + 10, crc32c(head + fields)) + head + fields + (LETTERS[:10])
    )
    head = struct.pack(">BBHQQ", 1, 6, 3, WHERE.identity, 5)
    fields = struct.pack(">IIQIQQII", 9, 8, 40, 77, 41, 40, 10, crc32c(b"kl"))
    assert two == struct.pack(">II", 4 + 64 + 2, crc32c(head + fields)) + head + fields + b"kl"


def test_rows_and_records_of_several_partitions_come_between_one_another() -> None:
    sent: list[tuple[Target, Frame]] = [
        (WHERE, row(LETTERS)), (WHERE, record(LETTERS[::-1])), (OTHER, row(LETTERS * 2)),
    ]  # fmt: skip
    queues = [parts(frame, target) for target, frame in sent]
    mixed = [part for at in range(6) for queue in queues for part in queue[at : at + 1]]
    assert fed(Frames(NODE_PIECES), mixed) == sent


def test_a_row_is_cut_once_for_all_its_receivers(monkeypatch: pytest.MonkeyPatch) -> None:
    summed: list[int] = []

    def counting(data: Any) -> int:
        summed.append(len(data))
        return crc32c(data)

    monkeypatch.setattr(pieces, "crc32c", counting)
    payload = cut(LETTERS)
    one: list[Encoded] = encode(WHERE, row(LETTERS, session=5), payload)
    two: list[Encoded] = encode(WHERE, row(LETTERS, session=6), payload)
    assert summed == [10, 10, 6]
    assert [a[1] is b[1] for a, b in zip(one, two, strict=True)] == [True, True, True]
    for session, frames in ((5, one), (6, two)):
        data = [b"".join(parts) for parts in frames]
        assert fed(Frames(NODE_PIECES), data) == [(WHERE, row(LETTERS, session))]


# --- what is dropped ---


def test_the_hello_of_another_session_drops_what_is_unfinished() -> None:
    receiver = Frames(NODE_PIECES)
    fed(receiver, parts(row(LETTERS))[:1] + parts(record(LETTERS))[:1])
    fed(receiver, parts(Hello(NODE_PIECES, 5, 9)) + parts(HelloJournal(NODE_PIECES, 5, 9)))
    assert receiver.assembly.count == 2  # it is the same one
    fed(receiver, parts(Hello(NODE_PIECES, 6, 9)))
    assert receiver.assembly.count == 1  # the journal has sessions of its own
    fed(receiver, parts(HelloJournal(NODE_PIECES, 6, 9)))
    assert receiver.assembly.count == 0
    with pytest.raises(FrameBroken, match="a piece at 10 of 26 bytes continues nothing"):
        fed(receiver, parts(row(LETTERS))[1:])


# --- what is refused ---


@pytest.mark.parametrize("frame", [row(LETTERS), record(LETTERS)])
def test_an_end_without_its_beginning_is_refused(frame: Frame) -> None:
    with pytest.raises(FrameBroken, match="a piece at 20 of 26 bytes continues nothing"):
        fed(Frames(NODE_PIECES), parts(frame)[2:])


def test_pieces_of_two_sessions_are_not_put_together() -> None:
    one, two = parts(row(LETTERS, session=5)), parts(row(LETTERS, session=6))
    with pytest.raises(FrameBroken, match="a piece at 10 of 26 bytes continues nothing"):
        fed(Frames(NODE_PIECES), [one[0], two[1]])
    with pytest.raises(FrameBroken, match="a piece at 20 of 26 bytes continues nothing"):
        fed(Frames(NODE_PIECES), [*one[:2], two[2]])


def piece(kind: int, total: int, at: int, data: bytes, crc: int | None = None) -> bytes:
    head = struct.pack(">BBHQQ", 1, 15, 3, WHERE.identity, 5)
    crc = crc32c(data) if crc is None else crc
    content = head + struct.pack(">BIII", kind, total, at, crc)
    return struct.pack(">II", 4 + len(content) + len(data), crc32c(content)) + content + data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([piece(6, 1001, 0, LETTERS)], "1001 bytes in pieces, at most 1000 are taken"),
        ([piece(7, 100, 0, LETTERS)], "pieces of kind 7, which has no payload"),
        ([piece(6, 100, 0, b"")], "a piece of 0 bytes at 0 of 100: it is not the last"),
        ([piece(6, 26, 0, LETTERS)], "a piece of 26 bytes at 0 of 26: it is not the last"),
        ([piece(6, 30, 0, LETTERS), piece(6, 30, 26, LETTERS)], "it is not the last"),
        ([piece(6, 100, 0, LETTERS), piece(6, 99, 26, b"x")], "continues nothing"),
        ([piece(6, 100, 0, LETTERS), piece(6, 100, 25, b"x")], "continues nothing"),
        ([piece(6, 100, 0, LETTERS), piece(13, 100, 26, b"x")], "continues nothing"),
        ([piece(6, 100, 0, LETTERS, crc=1)], "a payload of 26 bytes does not have its checksum"),
        ([piece(6, 100, 0, b"")[:30]], ""),
    ],
)
def test_what_no_sender_sends_ends_the_link(data: list[bytes], reason: str) -> None:
    receiver = Frames(NODE_PIECES)
    if not reason:  # it may still become whole
        assert fed(receiver, data) == []
        return
    with pytest.raises(FrameBroken, match=reason):
        fed(receiver, data)


def test_a_piece_without_its_fields_is_refused() -> None:
    content = struct.pack(">BBHQQ", 1, 15, 3, WHERE.identity, 5) + bytes(5)
    data = struct.pack(">II", 4 + len(content), crc32c(content)) + content
    with pytest.raises(FrameBroken, match="a piece of 5 bytes, it has 13"):
        fed(Frames(NODE_PIECES), [data])


def test_unfinished_payloads_are_bounded_in_number() -> None:
    assembly = Assembly()
    for partition in range(3):
        assembly.add(Key(1, partition, 6), 5, 100, 0, b"x")
    with pytest.raises(ValueError, match="more than 3 payloads are unfinished"):
        assembly.add(Key(1, 3, 6), 5, 100, 0, b"x")


def test_unfinished_payloads_are_bounded_in_bytes() -> None:
    assembly = Assembly()
    assembly.add(Key(1, 0, 6), 5, 900, 0, b"x")
    with pytest.raises(ValueError, match="1501 bytes are announced in pieces, at most 1500"):
        assembly.add(Key(1, 1, 6), 5, 601, 0, b"x")
    assembly.add(Key(1, 0, 6), 5, 100, 0, b"x")  # in the place of the first
    assembly.add(Key(1, 1, 6), 5, 601, 0, b"x")
    assembly.validate()


def test_what_is_larger_than_any_payload_is_not_sent() -> None:
    with pytest.raises(ValueError, match="1001 bytes, at most 1000 are sent"):
        encode(WHERE, row(bytes(1001)))


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
def test_a_strangers_pieces_never_take_more_than_is_announced(
    given: list[tuple[int, int, int, bytes]],
) -> None:
    receiver = Frames(NODE_PIECES)
    with contextlib.suppress(FrameBroken):
        for kind, total, at, data in given:
            list(receiver.feed(piece(kind, total, at, data)))
            receiver.assembly.validate()
    assert receiver.assembly.held_bytes <= limits.REPLICA_UNFINISHED_BYTES_MAX
    assert receiver.assembly.count <= limits.REPLICA_UNFINISHED_MAX


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=45)), max_size=6), st.data())
def test_any_order_between_partitions_gives_each_its_frames(
    sent: list[tuple[bool, bytes]], data: st.DataObject
) -> None:
    """Each partition's frames stay in order; a lane may mix those of two as it likes."""
    frames = [(WHERE if first else OTHER, row(batches)) for first, batches in sent]
    queues = {
        target: [part for other, frame in frames if other == target for part in parts(frame, other)]
        for target in (WHERE, OTHER)
    }
    mixed = []
    while any(queues.values()):
        target = data.draw(st.sampled_from([one for one, queue in queues.items() if queue]))
        mixed.append(queues[target].pop(0))
    received = fed(Frames(NODE_PIECES), mixed)
    for target in (WHERE, OTHER):
        assert [f for t, f in received if t == target] == [f for t, f in frames if t == target]
