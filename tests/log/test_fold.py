"""What a row of journal records amounts to."""

import struct
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock.kernel import StrayRecord, crc32c
from penstock.log.fold import (
    ENTRY,
    FLAG_SNAPSHOT,
    PARTITION,
    RECORD,
    ChannelState,
    EntryKind,
    Folding,
    Group,
    clamped,
    corrupt_generation,
    cursor_entry,
    decode_record,
    encode_record,
    epoch_of,
    fold,
    fold_entries,
    generation_of,
    named,
    normalised,
    number_of,
    searched_entry,
    start_entry,
    state_entries,
)


def entry(
    kind: EntryKind, a: int, b: int = 0, id: int = 0, state: int = 0, attempts: int = 0
) -> bytes:
    return ENTRY.pack(kind, state, attempts, 0, a, b, id)


def stray(offset: int, id: int, attempts: int = 1, state: int = 1, due_ns: int = 0) -> bytes:
    return entry(EntryKind.STRAY, offset, due_ns, id, state, attempts)


def record(sequence: int, *groups: Group, generation: int = 1) -> bytes:
    flags = FLAG_SNAPSHOT if sequence == 0 else 0
    return encode_record(flags, generation, sequence, 0, groups)


def test_a_record_is_laid_out_as_the_format_says() -> None:
    data = encode_record(1, 2, 3, 4, [Group(7, cursor_entry(EntryKind.CURSOR, 5, 6))])
    assert len(data) == 40 + 8 + 32
    assert data[:4] == b"PSJ1"
    assert struct.unpack_from("<IIIQQQ", data, 4) == (crc32c(data[8:]), len(data), 1, 2, 3, 4)
    assert struct.unpack_from("<II", data, 40) == (7, 1)
    assert struct.unpack_from("<BBHIqqQ", data, 48) == (1, 0, 0, 0, 5, 6, 0)


def test_a_state_as_entries() -> None:
    entries = (
        cursor_entry(EntryKind.CURSOR, 10, 30)
        + entry(EntryKind.FINISHED, 12, 14)
        + entry(EntryKind.FINISHED, 18, 19)
        + stray(4, 44, attempts=2)
        + stray(20, 45, attempts=3, state=2, due_ns=99)
        + searched_entry(25)
    )
    state = fold_entries(entries)
    assert len(state.finished) == 3
    assert fold_entries(state_entries(state)) == state
    assert fold_entries(state_entries(ChannelState(0, 0, (), ()))) == ChannelState(0, 0, (), ())


def test_a_search_of_offsets_that_are_lost_is_no_search_of_new_ones() -> None:
    state = ChannelState(0, 5, (), (), searched=9)
    assert clamped(state, 0, 9) == (state, False)
    assert clamped(state, 0, 7) == (state._replace(searched=7), True)


@each(
    "behind",
    [
        record(2),  # one is missing
        record(1, generation=2),
        record(1, generation=generation_of(7, 1)),
        record(0),
        record(1)[:-1],
        record(1)[:20],
        b"\0" * 40,
        record(1)[:-1] + b"\xff",
    ],
)
def test_a_file_ends_at_the_first_record_that_does_not_follow(behind: bytes) -> None:
    head = record(0, Group(1, cursor_entry(EntryKind.CURSOR, 0, 3)))
    # what stands behind the tear would follow in sequence, and must not
    folded = fold(head + behind + record(1, Group(1, cursor_entry(EntryKind.CURSOR, 9, 9))))
    assert folded is not None
    assert folded.channels[1].next in (3,)
    assert (folded.end, folded.torn) == (len(head), True)


def synced(sequence: int, synced_records: int) -> bytes:
    flags = FLAG_SNAPSHOT if sequence == 0 else 0
    return encode_record(flags, 1, sequence, 0, [], synced_records)


@pytest.mark.parametrize("lost", [b"\0" * 40, synced(1, 0)[:-1] + b"\xff", b""])
def test_only_a_synced_record_can_be_corrupt(lost: bytes) -> None:
    """Of writes that were not, a power loss may take any, and leave later ones."""
    before = synced(0, 0) + lost
    for witness, found in ((synced(2, 0), 0), (synced(2, 1), 0), (synced(3, 2), 1)):
        folded = fold(before + witness)
        assert folded is not None
        assert (folded.sequence, folded.lost_records) == (1, found)
        assert bool(corrupt_generation(before + witness)) == bool(found)
    assert fold(before + synced(2, 0) + synced(3, 2)).lost_records == 2  # type: ignore[union-attr]


def test_a_synced_snapshot_can_be_corrupt() -> None:
    torn = synced(0, 0)[:-1] + b"\xff"
    assert not corrupt_generation(torn + synced(1, 0))
    assert corrupt_generation(torn + synced(1, 0) + synced(2, 1))


def test_a_gap_in_an_older_generation_is_reported() -> None:
    """A file was begun again, and the power loss left the middle of the new beginning."""
    overwritten = synced(0, 0) + encode_record(0, 3, 1, 0, []) + synced(2, 0) + synced(3, 2)
    assert corrupt_generation(overwritten) == 1
    assert corrupt_generation(overwritten[40:]) == 1
    assert corrupt_generation(synced(0, 0) + synced(1, 0)) == 0


def test_a_generation_of_a_higher_epoch_is_newer_than_any_number_of_a_lower() -> None:
    rising = [generation_of(0, 1), generation_of(0, 900), generation_of(6, 0), generation_of(6, 3)]
    rising += [generation_of(7, 0), generation_of(2**32 - 1, 0)]
    assert rising == sorted(set(rising))
    assert [(epoch_of(one), number_of(one)) for one in rising[:3]] == [(0, 1), (0, 900), (6, 0)]
    assert [named(one) for one in rising[:3]] == ["1", "900", "6.0"]


def test_the_start_of_the_log_is_no_channel_and_only_rises() -> None:
    def start(sequence: int, offset: int) -> bytes:
        return record(sequence, Group(PARTITION, start_entry(offset)))

    folded = fold(start(0, 30) + start(1, 70) + start(2, 50))
    assert folded is not None
    assert (folded.start_offset, folded.channels) == (70, {})
    assert fold(record(0)).start_offset == 0  # type: ignore[union-attr]
    unknown = ENTRY.pack(200, 0, 0, 0, 99, 99, 99)
    assert fold(record(0, Group(PARTITION, unknown))).start_offset == 0  # type: ignore[union-attr]


def test_a_follower_does_not_keep_every_range_that_it_was_sent() -> None:
    folding = Folding()
    one_by_one = [entry(EntryKind.FINISHED, offset, offset + 1) for offset in range(1, 9000)]
    for finished in one_by_one:
        folding.apply(0, [Group(1, finished)])
    assert len(folding._channels[1].finished) < 200
    assert folding.channels()[1] == fold_entries(b"".join(one_by_one))


@given(st.data())
def test_a_changed_byte_is_never_believed(data: Any) -> None:
    whole = record(0, Group(1, cursor_entry(EntryKind.CURSOR, 0, 3) + stray(1, 11)))
    position = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[position] ^= data.draw(st.integers(1, 255))
    assert decode_record(bytes(changed), 0) is None


@given(st.binary(max_size=200), st.binary(max_size=40))
def test_any_bytes_fold_to_something_or_nothing(tail: bytes, body: bytes) -> None:
    fold(tail)
    whole = bytearray(RECORD.pack(b"PSJ1", 0, RECORD.size + len(body), 1, 1, 0, 0) + body)
    whole[4:8] = crc32c(bytes(whole[8:])).to_bytes(4, "little")
    folded = fold(bytes(whole) + tail)  # a right checksum over a body that makes no sense
    if folded is not None:
        assert folded.end >= len(whole)


RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)
STRAYS = st.lists(
    st.builds(
        StrayRecord, st.integers(0, 30), st.integers(1, 9), st.just(1), st.just(1), st.just(0)
    ),
    max_size=4,
    unique_by=lambda stray: stray.id,
)


@given(st.integers(0, 30), st.integers(0, 30), RANGES, STRAYS)
def test_normalising_keeps_which_offsets_are_open(
    low: int, next_offset: int, finished: list[tuple[int, int]], strays: list[StrayRecord]
) -> None:
    state = normalised(low, next_offset, finished, strays)
    covered = {offset for start, end in finished for offset in range(start, end)}
    covered |= {stray.offset for stray in strays}
    still_open = [offset for offset in range(40) if offset >= low and offset not in covered]
    kept = {offset for start, end in state.finished for offset in range(start, end)}
    assert [offset for offset in range(state.low, 40) if offset not in kept] == still_open
    assert all(end < start for (_, end), (start, _) in pairwise(state.finished))
    assert normalised(*state) == state


@given(st.integers(0, 30), RANGES, STRAYS, st.integers(0, 30), st.integers(0, 30))
def test_a_clamped_state_speaks_only_of_the_log(
    low: int,
    finished: list[tuple[int, int]],
    strays: list[StrayRecord],
    start_offset: int,
    length: int,
) -> None:
    end = start_offset + length
    before = normalised(low, low, finished, strays)
    state, beyond = clamped(before, start_offset, end)
    assert start_offset <= state.low <= state.next <= end
    assert all(start_offset <= start < stop <= end for start, stop in state.finished)
    assert all(start_offset <= stray.offset < end for stray in state.strays)
    named = [before.low, before.next, *(stop for _, stop in before.finished)]
    named += [stray.offset + 1 for stray in before.strays]
    assert beyond == (max(named) > end)
    if not beyond and start_offset == 0:
        assert state == before
