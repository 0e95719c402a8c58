"""A start reads the tail and nothing else, however long the log is."""

from __future__ import annotations

import pytest

from penstock.log.partition import PartitionLog
from penstock.log.settings import LogSettings
from sim.disk import SimDisk

from .helpers import NOW_NS, SECOND, Writer, body, new_log

KIB = 1024
SETTINGS = LogSettings(
    segment_bytes_max=64 * KIB,
    index_every_bytes=4 * KIB,
    preallocate_bytes_min=4 * KIB,
    preallocate_bytes_max=16 * KIB,
)
SEGMENTS = 40


def long_log(*, marks: bool, syncs: bool = True) -> tuple[SimDisk, PartitionLog]:
    disk = SimDisk()
    disk.mkdir("data")
    log, writer = new_log(disk, "data/0", SETTINGS)
    while len(log.segments) <= SEGMENTS:
        writer.write([body(log.written_end, 1000)])
        if syncs and log.written_end % 5 == 0:
            log.sync()
        if marks and log.written_end % 10 == 0:
            log.mark(NOW_NS + log.written_end * SECOND)
    writer.fill(30)
    if syncs:
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
    assert log.report.bytes_read <= disk.bytes_read
    assert disk.bytes_read < 4 * SETTINGS.segment_bytes_max
    assert log.bytes_stored > 10 * disk.bytes_read
    log.close()


def test_what_was_never_synced_is_read() -> None:
    disk, log = long_log(marks=False, syncs=False)
    end = log.written_end
    disk.kill()
    disk.bytes_read = 0
    log = PartitionLog.open(disk, "data/0", SETTINGS)
    assert log.written_end == end
    assert disk.bytes_read > log.bytes_stored
    log.close()


def test_an_idle_log_holds_no_file_open() -> None:
    disk, log = long_log(marks=True)
    log.close()
    log = PartitionLog.open(disk, "data/0", SETTINGS)
    segments = [log._segments[n] for n in range(len(log._segments))]
    assert not any(segment.is_open for segment in segments)
    for segment in log.segments:
        log.read(segment.from_offset, KIB)
    assert sum(segment.is_open for segment in segments) <= 5
    Writer(log).fill(1)
    log.close()
    assert not any(segment.is_open for segment in segments)
