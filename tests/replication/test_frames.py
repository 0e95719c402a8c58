"""The bytes between nodes: there and back, and whatever a stranger may send."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock.kernel import crc32c
from penstock.limits import REPLICA_EPOCHS_MAX, REPLICA_FRAME_BYTES_MAX
from penstock.log.epochs import NO_BATCH, BatchName, Extent
from penstock.log.fold import Position
from penstock.replication.effects import (
    Acknowledge,
    BeginAt,
    Hello,
    MatchAt,
    Matched,
    Refuse,
    ReportExtent,
)
from penstock.replication.frames import (
    AppendFrame,
    Frame,
    FrameBroken,
    Frames,
    Note,
    Target,
    encode,
)
from penstock.replication.journal import (
    AcknowledgePosition,
    HelloJournal,
    ReportPosition,
    RequestSnapshot,
    RequestSync,
    SendHeld,
    SendRecord,
)
from penstock.replication.side_frames import (
    BatchAnswered,
    Ending,
    HasTable,
    RequestAnswered,
    RequestRange,
    SendBatch,
    SendRange,
    SendRequest,
    SendTable,
    lacking,
)

from .received import received

NODE = 3
TARGET = Target(0x1122334455667788, 7)

u32 = st.integers(0, (1 << 32) - 1)
u64 = st.integers(0, (1 << 64) - 1)
positions = st.builds(Position, u64, u64)
chains = st.builds(BatchName, u32, u64, u32)


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
    st.builds(ReportExtent, u64, u32, u64, u64, extents(), u64),
    st.builds(MatchAt, st.just(NODE), u64, u64, chains),
    st.builds(BeginAt, st.just(NODE), u64, u64),
    st.builds(Matched, u64, u64),
    st.builds(AppendFrame, u64, u32, chains, u64, st.binary(max_size=300), u64),
    st.builds(Acknowledge, u64, u32, u64, u64, u64),
    st.builds(Refuse, u64, u32),
    st.builds(HelloJournal, st.just(NODE), u64, u32),
    st.builds(ReportPosition, u64, u32, u64, positions),
    st.builds(RequestSnapshot, u64, u32),
    st.builds(AcknowledgePosition, u64, u32, u64, positions, positions),
    st.builds(SendRecord, st.just(NODE), u64, u32, positions, st.binary(max_size=300), positions),
    st.builds(SendHeld, st.just(NODE), u64, u32, positions),
    st.builds(RequestSync, st.just(NODE), u64, u32, positions),
    st.builds(SendTable, u64, u32, u64, st.binary(max_size=300)),
    st.builds(HasTable, u64, u32, u64, u64),
    st.builds(RequestRange, u64, u64, u64),
    st.builds(SendRange, u64, u64, chains, st.binary(max_size=300)),
    st.builds(SendBatch, u64, u64, st.booleans(), st.binary(max_size=300)),
    st.builds(SendRequest, u64, u64, st.binary(max_size=300)),
    st.builds(RequestAnswered, u64, u64, st.binary(max_size=300)),
    st.builds(BatchAnswered, u64, u64, st.sampled_from(Ending), u64, u64, st.text(max_size=200)),
    st.builds(Note, st.just(0), st.binary(max_size=300)),
)
targets = st.builds(Target, u64, st.integers(0, 65535))


@given(st.lists(st.tuples(targets, frames), max_size=6), st.integers(1, 70))
def test_there_and_back_in_chunks_of_any_size(
    sent: list[tuple[Target, Frame]], chunk_bytes: int
) -> None:
    data = b"".join(whole(target, frame) for target, frame in sent)
    receiver, found = Frames(NODE), []
    for at in range(0, len(data), chunk_bytes):
        found += received(receiver, data[at : at + chunk_bytes])
    assert found == sent


@each(
    ("frame", "content"),
    [
        (Refuse(5, 9), "01 08 0007 1122334455667788 0000000000000005 00000009"),
        (
            SendHeld(NODE, 5, 9, Position(0x900000002, 3)),
            "01 0e 0007 1122334455667788 0000000000000005"
            "00000009 0000000900000002 0000000000000003",
        ),
    ],
)
def test_the_bytes_are_those_of_the_table(frame: Frame, content: str) -> None:
    assert whole(TARGET, frame) == sealed(bytes.fromhex(content))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_incomplete(data: bytes) -> None:
    with contextlib.suppress(FrameBroken):
        assert list(received(Frames(NODE), data)) == []


@given(frames, st.data())
def test_a_flipped_bit_is_found(frame: Frame, data: st.DataObject) -> None:
    good = bytearray(whole(TARGET, frame))
    end = len(good) - (len(frame.batches) if isinstance(frame, AppendFrame) else 0)  # the log's own
    bit = data.draw(st.integers(8 * 4, 8 * end - 1))  # behind the length
    good[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FrameBroken, match="fails its checksum"):
        list(received(Frames(NODE), bytes(good)))


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
        (sealed(b"\x01\x06" + HEAD + bytes(5)), "an append of 5 bytes, it has 44"),
        (sealed(b"\x01\x11" + HEAD + bytes(5)), "a table of producers of 5 bytes, it has 20"),
        (sealed(b"\x01\x13" + HEAD + bytes(5)), "a question for a range of 5 bytes, it has 16"),
        (sealed(b"\x01\x14" + HEAD + bytes(5)), "a range of 5 bytes, it has 32"),
        (sealed(b"\x01\x12" + HEAD + bytes(5)), "an answer to a table of 5 bytes, it has 20"),
        (sealed(b"\x01\x02" + HEAD + bytes(44 + 5)), "5 bytes of epochs"),
    ],
)
def test_invalid_frames_are_named(data: bytes, reason: str) -> None:
    with pytest.raises(FrameBroken, match=reason):
        list(received(Frames(NODE), data))


@each("kind", [9, 10, 11, 12, 13, 14, 16])
def test_a_journals_frame_without_its_fields_is_refused(kind: int) -> None:
    lengths = (0, 3) if kind == 13 else (0, 3, 5, 60)  # a record may follow the fields of a 13
    what = "a journal's record" if kind == 13 else f"of kind {kind}"
    for length in lengths:
        data = sealed(bytes((1, kind)) + HEAD + bytes(length))
        with pytest.raises(FrameBroken, match=f"{what} of {length} bytes, it has"):
            list(received(Frames(NODE), data))


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
    data = whole(TARGET, ReportExtent(1, 5, 101, 1, extent, 0))
    with pytest.raises(FrameBroken, match="in a log from"):
        list(received(Frames(NODE), data))


def test_oversized_extents_are_not_sent() -> None:
    epochs = tuple((n, n) for n in range(REPLICA_EPOCHS_MAX + 1))
    with pytest.raises(ValueError, match="epochs, at most"):
        encode(TARGET, ReportExtent(1, 5, 101, 1, Extent(0, 1 << 20, epochs), 0))


# --- what an answer without batches says ---


def test_a_replica_says_up_to_where_it_lacks_a_range() -> None:
    assert SendRange(1, 7, lacking(12), b"").lacks_until == 12
    assert SendRange(1, 7, NO_BATCH, b"").lacks_until == 0  # or leaves it open
