"""Room that was prepared for a segment goes back when the segment is sealed, or later."""

from __future__ import annotations

import pytest

from penstock.errors import StorageError, WriteRefused
from penstock.log.partition import PartitionLog
from sim.disk import Fault, SimDisk

from .helpers import NOW_NS, SMALL, bodies_from, body, new_log

AGE_NS = 3600 * 10**9


def retain(log: PartitionLog, floor_offset: int = 0, age_ns: int = AGE_NS) -> None:
    log.retain(floor_offset, NOW_NS, age_ns, 1 << 40)


def untrimmed(log: PartitionLog, disk: SimDisk) -> list[int]:
    """How much the sealed segments have behind their data."""
    return [disk.size(one.path) - one.bytes_stored for one in log.segments if one.sealed]


def test_what_could_not_be_cut_is_reported_and_cut_later_or_removed() -> None:
    disk = SimDisk()
    log, writer = new_log(disk, "log")
    fault = disk.inject(Fault("truncate", times=0))
    writer.fill(50)
    assert any(untrimmed(log, disk))
    for _ in range(2):
        with pytest.raises(StorageError, match="room of sealed segments"):
            retain(log)
    disk.faults.remove(fault)
    retain(log)
    assert not any(untrimmed(log, disk))
    assert bodies_from(log, 0) == [body(offset) for offset in range(150)]
    disk.inject(Fault("truncate", times=0))
    writer.fill(50)
    log.sync()
    with pytest.raises(StorageError, match="room of sealed segments"):
        retain(log)
    for _ in range(2):  # what is removed in the first pass needs no cutting in the second
        log.retain(log.written_end, NOW_NS, 0, 0)
    assert untrimmed(log, disk) == []


def test_a_spare_that_could_not_be_used_is_used_later() -> None:
    disk = SimDisk()
    log, writer = new_log(disk, "log")
    writer.fill(50)
    log.sync()
    log.retain(log.written_end, NOW_NS, 0, 0)
    spares = [name for name in disk.listdir("log") if name.startswith("spare")]
    assert len(spares) == SMALL.spare_segments_max
    disk.inject(Fault("rename"))
    with pytest.raises(WriteRefused):
        writer.fill(50)
    writer.fill(50)
    assert not [name for name in disk.listdir("log") if name.startswith("spare")]
