"""Reading beside the log, places in it by bytes, and searches where little or nothing is there."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel import BatchCheck, check_batch, decode_header
from penstock.log.disk import OsDisk
from penstock.log.index import ENTRY_BYTES, IndexEntry, SparseIndex, encode_entries, load_index
from penstock.log.partition import PartitionLog
from penstock.log.reader import FileRange
from sim.disk import Fault, SimDisk

from .helpers import NOW_NS, SECOND, SMALL, Writer, new_log

BATCH_MESSAGES = 3


def batch_offset(file_range: FileRange, position: int) -> int:
    """Of the intact batch that stands there, by the descriptor alone."""
    data = os.pread(file_range.descriptor, SMALL.segment_bytes_max, position)
    assert check_batch(data, 0)[0] == BatchCheck.INTACT
    return decode_header(data, 0).base_offset


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    log, writer = new_log(OsDisk(), tmp_path / "0")
    for number in range(100):
        writer.fill(1, NOW_NS + number * SECOND)
    yield log
    log.close()


# --- file ranges ---


def test_a_file_range_leads_to_its_batch(log: PartitionLog) -> None:
    assert len(log.segments) > 3
    for offset in range(log.written_end):
        file_range = log.file_range(offset)
        assert file_range is not None
        info = next(s for s in log.segments if s.from_offset <= offset < s.to_offset)
        assert batch_offset(file_range, file_range.position) == file_range.expected <= offset
        # A message has at least 40 bytes.
        near = file_range.expected + SMALL.index_every_bytes // 40
        assert offset < near  # by the index: not from the beginning of the segment
        assert file_range.end == info.bytes_stored
        assert file_range.limit == (info.to_offset if info.sealed else None)
        log.release(file_range)


def test_a_file_range_outlives_the_removal_of_its_file(log: PartitionLog) -> None:
    log.sync()
    file_range = log.file_range(0)
    assert file_range is not None
    before = os.pread(file_range.descriptor, file_range.end, 0)
    end = log.written_end
    assert log.retain(end, NOW_NS + 10**6 * SECOND, SECOND, 10**9) > 1
    assert log.start_offset > 0
    log.remember(file_range, BATCH_MESSAGES, file_range.position)
    assert len(log._positions) == 0  # nobody can ask for it any more
    assert not os.path.exists(file_range.segment.path)
    Writer(log).fill(100)  # into new files: this one is not recycled
    assert os.pread(file_range.descriptor, file_range.end, 0) == before
    log.release(file_range)
    assert file_range.segment.readers == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file_range.descriptor)


# --- places by bytes ---


@pytest.mark.parametrize("reopen", [False, True])
def test_bytes_from_an_offset_fall_to_nothing_at_the_end(
    log: PartitionLog, tmp_path: Path, reopen: bool
) -> None:
    if reopen:
        log.close()
        log = PartitionLog.open(OsDisk(), tmp_path / "0", SMALL)
    left = [log.bytes_from(offset) for offset in range(log.written_end)]
    assert left[0] == log.bytes_stored
    assert left == sorted(left, reverse=True)
    even = log.bytes_stored / log.written_end
    for offset, bytes_left in enumerate(left):
        assert abs(bytes_left - even * (log.written_end - offset)) < SMALL.index_every_bytes
    log.close()


def test_an_offset_after_some_bytes(log: PartitionLog) -> None:
    even = log.bytes_stored / log.written_end
    for offset in (0, 1, 100, 250):
        for length in (0, 1, 300, 5_000, 9_000):
            found = log.after_bytes(offset, length)
            wanted = min(offset + max(length / even, 1), log.written_end)
            assert abs(found - wanted) * even < SMALL.index_every_bytes
            assert found > offset  # a caller that goes on from there gets on
    assert log.after_bytes(299, 1 << 40) == log.after_bytes(0, log.bytes_stored) == 300


# --- the index ---


DATA_BYTES = 100_000


def entries(count: int) -> list[IndexEntry]:
    return [IndexEntry(100 + 10 * n, 800 * n, 5000 + n, 7000 + 100 * n) for n in range(count)]


def index_of(rows: list[IndexEntry]) -> SparseIndex:
    index = SparseIndex("i")
    for row in rows:
        index.add(*row)
    return index


def test_a_failed_save_is_made_up_for() -> None:
    disk = SimDisk()
    index = index_of(entries(3))
    disk.inject(Fault("write", written=0.5))
    try:
        index.save(disk)
    except OSError:
        index.add(*entries(4)[3])
    index.save(disk)
    assert disk.content("i") == encode_entries(entries(4))


@given(st.integers(0, 40 * ENTRY_BYTES), st.binary(min_size=0, max_size=80))
def test_a_loaded_index_is_consistent_whatever_the_file_holds(at: int, junk: bytes) -> None:
    disk = SimDisk()
    index_of(entries(40)).save(disk)
    content = bytearray(disk.content("i"))
    content[at : at + len(junk)] = junk
    disk.replace("i", bytes(content))
    index = load_index(disk, "i", 100, DATA_BYTES)
    offsets, positions = list(index.offsets), list(index.positions)
    assert offsets == sorted(set(offsets))
    assert positions == sorted(set(positions))
    assert all(p % 8 == 0 and p < DATA_BYTES for p in positions)
    assert len(index) >= min(at // ENTRY_BYTES, 40) or junk == b""
    if len(index):
        assert (offsets[0], positions[0]) == (100, 0)
    index.save(disk)
    assert disk.content("i") == encode_entries(index.entries())
