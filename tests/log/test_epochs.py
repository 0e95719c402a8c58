"""The epochs of a log, found from its headers, and the names of its batches."""

import pytest

from penstock.kernel.layout import name_at
from penstock.log.partition import PartitionLog
from sim.disk import SimDisk

from .helpers import NOW_NS, PATH, SECOND, SMALL, Writer, body, corrupt


def fill(log: PartitionLog, epochs: list[int]) -> None:
    """One batch of three messages for each."""
    writer = Writer(log)
    for epoch in epochs:
        writer.write([body(log.written_end + n) for n in range(3)], epoch=epoch)


def reopened(log: PartitionLog, disk: SimDisk) -> PartitionLog:
    log.close()
    return PartitionLog.open(disk, PATH, SMALL)


def test_a_corrupt_beginning_counts_from_the_first_intact_batch(disk: SimDisk) -> None:
    log = PartitionLog.create(disk, PATH, SMALL)
    fill(log, [1] * 5 + [2] * 40)
    log.close()
    corrupt(disk, 15)
    log = PartitionLog.open(disk, PATH, SMALL)
    assert log.epochs() == ((1, 0), (2, 18))


def test_retention_moves_the_first_epoch_up(disk: SimDisk) -> None:
    log = PartitionLog.create(disk, PATH, SMALL)
    fill(log, [1] * 60 + [2] * 60 + [3] * 3)
    assert log.epochs() == ((1, 0), (2, 180), (3, 360))
    log.sync()
    log.retain(300, NOW_NS + SECOND, 0, 0)
    start = log.start_offset
    assert 180 < start <= 300
    assert log.epochs() == ((2, start), (3, 360))
    assert reopened(log, disk).epochs() == ((2, start), (3, 360))


def test_the_last_batch_is_named_as_its_header_says(disk: SimDisk) -> None:
    log = PartitionLog.create(disk, PATH, SMALL)
    writer = Writer(log)
    for epoch in range(100):  # over several segments
        base = log.written_end
        data = writer.write([b"a", b"b"], epoch=epoch)
        assert log.last() == name_at(data, 0) == (epoch, base, name_at(data, 0)[2])
    assert reopened(log, disk).last() == name_at(data, 0)


def test_a_batch_is_named_by_any_of_its_offsets(disk: SimDisk) -> None:
    log = PartitionLog.create(disk, PATH, SMALL)
    data = [Writer(log).write([b"a", b"b", b"c"], epoch=5) for _ in range(3)]
    for offset in range(9):
        number = offset // 3
        assert log.batch_at(offset) == (name_at(data[number], 0), 3 * number + 3)
    with pytest.raises(IndexError):
        log.batch_at(9)


def test_the_highest_synced_end_of_the_headers_is_known_again(disk: SimDisk) -> None:
    log = PartitionLog.create(disk, PATH, SMALL)
    fill(log, [1])
    log.sync()
    fill(log, [1])
    assert log.agreed_end == 3
    log.sync()
    assert log.agreed_end == 3  # no header says more
    log = reopened(log, disk)
    assert (log.synced_end, log.agreed_end) == (6, 3)
