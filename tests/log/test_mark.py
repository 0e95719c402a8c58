import pytest

from penstock.log.mark import (
    COPY_BYTES,
    COPY_POSITIONS,
    FILE_BYTES,
    Mark,
    MarkFile,
    decode_file,
    encode,
)
from penstock.log.partition import PartitionLog
from penstock.log.segment import LogSettings
from sim.disk import SimDisk

from .helpers import NOW_NS, SECOND, body, new_log

OLD = Mark(10, 12, 99)
NEW = Mark(20, 20, 150)


def file_of(first: Mark, second: Mark) -> bytearray:
    data = bytearray(FILE_BYTES)
    for at, mark in zip(COPY_POSITIONS, (first, second), strict=True):
        data[at : at + COPY_BYTES] = encode(mark)
    return data


@pytest.mark.parametrize("order", [(OLD, NEW), (NEW, OLD)])
def test_the_newer_copy_counts_and_the_older_is_overwritten_next(order: tuple[Mark, Mark]) -> None:
    state = decode_file(bytes(file_of(*order)))
    assert state.mark == NEW
    assert order[state.next_copy] == OLD


@pytest.mark.parametrize("torn", [0, 1])
def test_a_torn_write_leaves_the_other_copy(torn: int) -> None:
    data = file_of(NEW, NEW)
    at = COPY_POSITIONS[torn]
    data[at + 8 : at + COPY_BYTES] = encode(OLD)[8:]
    state = decode_file(bytes(data))
    assert (state.mark, state.next_copy) == (NEW, torn)


def test_two_corrupt_copies_are_no_mark() -> None:
    assert decode_file(b"").mark is None
    assert decode_file(bytes(FILE_BYTES)).mark is None


def test_clean_needs_both_copies() -> None:
    clean = NEW._replace(clean=True)
    assert decode_file(bytes(file_of(clean, clean))).mark == clean
    assert decode_file(bytes(file_of(clean, NEW))).mark == NEW
    assert decode_file(bytes(file_of(clean, OLD))).mark == NEW


def test_copies_are_written_in_turn() -> None:
    disk = SimDisk()
    file = MarkFile(disk, "mark")
    file.create(Mark())
    for end in range(1, 6):
        file.write(Mark(end, end, end))
        state = decode_file(disk.content("mark"))
        assert state.mark == Mark(end, end, end)
    file.write_both(Mark(6, 6, 6, clean=True))
    assert decode_file(disk.content("mark")).mark == Mark(6, 6, 6, clean=True)
    disk.unlink("mark")
    file.write_both(Mark(7, 7, 7))
    assert decode_file(disk.content("mark")).mark == Mark(7, 7, 7)


# --- A start reads the tail and nothing else, however long the log is ---


KIB = 1024
SETTINGS = LogSettings(
    segment_bytes_max=64 * KIB,
    index_every_bytes=4 * KIB,
    preallocate_bytes_min=4 * KIB,
    preallocate_bytes_max=16 * KIB,
)
SEGMENTS = 40


def long_log(*, marks: bool) -> tuple[SimDisk, PartitionLog]:
    disk = SimDisk()
    disk.mkdir("data")
    log, writer = new_log(disk, "data/0", SETTINGS)
    while len(log.segments) <= SEGMENTS:
        writer.write([body(log.written_end, 1000)])
        if log.written_end % 5 == 0:
            log.sync()
        if marks and log.written_end % 10 == 0:
            log.mark(NOW_NS + log.written_end * SECOND)
    writer.fill(30)
    log.sync()
    return disk, log


@pytest.mark.parametrize("stop", ["clean", "killed", "killed without any mark"])
def test_a_start_reads_no_more_than_the_newest_segments(stop: str) -> None:
    disk, log = long_log(marks=stop != "killed without any mark")
    end = log.written_end
    if stop == "clean":
        log.close()
    disk.kill()
    disk.bytes_read = 0
    log = PartitionLog.open(disk, "data/0", SETTINGS)
    assert log.written_end == end
    assert disk.bytes_read < 4 * SETTINGS.segment_bytes_max
    assert log.bytes_stored > 10 * disk.bytes_read
