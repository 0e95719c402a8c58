"""A disk that fills up, or fails: refused writes leave the log as it was, and it goes on later."""

import errno
import random

import pytest

from penstock.errors import PartitionStopped, StorageError, WriteRefused
from penstock.log.partition import PartitionLog
from sim.disk import Fault, SimDisk

from .helpers import NOW_NS, PATH, SECOND, SMALL, Writer, bodies_from, body, durable_disk, new_log


def write_until_refused(
    writer: Writer, batches_max: int = 10_000, body_bytes: int = 40
) -> WriteRefused:
    with pytest.raises(WriteRefused) as caught:
        writer.fill(batches_max, body_bytes=body_bytes)
    return caught.value


def test_every_size_of_disk_gives_a_clear_refusal_and_a_log_as_before(disk: SimDisk) -> None:
    for capacity in range(9000, 15_000, 397):
        disk = SimDisk(capacity)
        disk.mkdir("data")
        log, writer = new_log(disk, "data/0")
        error = write_until_refused(writer)
        assert isinstance(error.__cause__, OSError)
        assert error.__cause__.errno == errno.ENOSPC
        end, last_id = log.written_end, log.last_id
        write_until_refused(writer)
        assert (log.written_end, log.last_id) == (end, last_id)
        log.validate()
        assert bodies_from(log, 0) == [body(n) for n in range(end)]
        disk.capacity_bytes = None  # room was made
        writer.fill(50)
        log.sync()
        disk.kill()
        log = PartitionLog.open(disk, "data/0", SMALL)
        assert bodies_from(log, 0) == [body(n) for n in range(end + 150)]
        log.close()


@pytest.mark.parametrize("written", [0.0, 0.3, 0.999, 1.0])
def test_a_write_that_fails_half_way_is_overwritten(disk: SimDisk, written: float) -> None:
    log, writer = new_log(disk, "data/0")
    writer.fill(3)
    disk.inject(Fault("write", path_part=".log", written=written))
    write_until_refused(writer, 1)
    disk.inject(Fault("write", path_part=".log", written=written))
    disk.inject(Fault("truncate", skip=1))  # even what it wrote can't be taken back at once
    write_until_refused(writer, 1)
    writer.write([body(9, 1)])
    disk.kill()
    log = PartitionLog.open(disk, "data/0", SMALL)
    assert bodies_from(log, 0) == [*(body(n) for n in range(9)), body(9, 1)]


@pytest.mark.parametrize("call", ["create", "rename", "open"])
def test_a_roll_that_fails_is_tried_again(disk: SimDisk, call: str) -> None:
    log, writer = new_log(disk, "data/0")
    writer.fill(100)
    log.sync()
    if call != "create":
        log.retain(300, 0, 10**18, 0)  # now there are spares to recycle
    fault = disk.inject(Fault(call, path_part=".log", times=2))  # type: ignore[arg-type]
    start, end = log.start_offset, log.written_end
    refusals = 0
    while fault.failed < 2:
        try:
            writer.fill(1)
        except WriteRefused:
            refusals += 1
            log.validate()
    writer.fill(40)
    assert refusals == 2
    assert bodies_from(log, start) == [body(n) for n in range(start, log.written_end)]
    assert log.written_end > end
    log.close()
    again = PartitionLog.open(disk, "data/0", SMALL)
    assert again.damaged == []
    assert bodies_from(again, start) == [body(n) for n in range(start, log.written_end)]


def test_after_a_failed_sync_nothing_more_is_written(disk: SimDisk) -> None:
    log, writer = new_log(disk, "data/0")
    writer.fill(1)
    log.sync()
    writer.fill(1)
    disk.inject(Fault("sync", path_part=".log"))
    with pytest.raises(PartitionStopped):
        log.sync()
    syncs = disk.syncs
    with pytest.raises(PartitionStopped):
        log.sync()
    with pytest.raises(PartitionStopped):
        writer.fill(1)
    assert log.sync_begin() is None
    assert bodies_from(log, 0) == [body(n) for n in range(6)]
    log.mark(10**18)
    log.close()
    assert disk.syncs == syncs  # it is never tried again
    assert log.synced_end == 3
    log = PartitionLog.open(disk, "data/0", SMALL)  # a new start looks at what is there
    assert log.written_end >= 3


def test_a_failed_sync_at_the_start_stops_the_partition(disk: SimDisk) -> None:
    log, writer = new_log(disk, "data/0")
    writer.fill(2)
    disk.kill()
    disk.inject(Fault("sync", path_part=".log"))
    log = PartitionLog.open(disk, "data/0", SMALL)
    assert log.stopped is not None
    assert log.synced_end == 0
    with pytest.raises(PartitionStopped):
        Writer(log).fill(1)


def test_a_failed_directory_sync_is_tried_again(disk: SimDisk) -> None:
    """Nothing is lost by it, and nothing is safe before it."""
    log, writer = new_log(disk, "data/0")
    writer.fill(60)
    disk.inject(Fault("sync_directory"))
    with pytest.raises(StorageError, match="a sync is tried again"):
        log.sync()
    assert (log.synced_end, log.stopped) == (0, None)
    log.sync()
    assert (log.synced_end, log.sync_trouble) == (180, "")


def test_a_log_that_cannot_be_made(disk: SimDisk) -> None:
    for call in ("create", "mkdir", "sync", "sync_directory"):
        disk.inject(Fault(call))  # type: ignore[arg-type]
        with pytest.raises(WriteRefused):
            PartitionLog.create(disk, "data/0", SMALL)
    PartitionLog.create(disk, "data/0", SMALL).close()


def test_a_torn_write_is_gone_for_good_before_others_stand_there(disk: SimDisk) -> None:
    """It reached the disk whole, and failed all the same."""
    log, writer = new_log(disk, "data/0")
    writer.fill(1)
    log.sync()

    def tear() -> None:
        disk.inject(Fault("write", path_part=".log", written=1.0))
        write_until_refused(writer, 1)

    tear()
    disk.inject(Fault("truncate", path_part=".log"))
    write_until_refused(writer, 1)  # nothing is written while it cannot be removed
    assert log.written_end == 3
    syncs = disk.syncs
    writer.fill(1)
    assert disk.syncs == syncs + 1
    writer.fill(1)
    assert disk.syncs == syncs + 1
    assert bodies_from(log, 0) == [body(n) for n in range(9)]
    tear()
    disk.inject(Fault("sync", path_part=".log"))
    with pytest.raises(PartitionStopped):
        writer.fill(1)
    assert log.stopped is not None


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_refused_write_stays_away_after_a_restart_and_a_power_loss(end: str) -> None:
    """The next start does not know that something was removed, and not yet for good."""
    for seed in range(30):
        disk = durable_disk()
        log, writer = new_log(disk, PATH)
        kept = writer.write([b"kept"], NOW_NS)
        log.sync()
        log.mark(NOW_NS + 10 * SECOND)
        disk.inject(Fault("write", path_part=".log", written=1.0))
        with pytest.raises(WriteRefused):
            writer.write([b"refused"], NOW_NS)
        if end == "stop":
            log.close()
        disk.kill()
        log = PartitionLog.open(disk, PATH, SMALL)
        later = Writer(log).write([b"later"], NOW_NS)
        disk.crash(random.Random(seed))
        log = PartitionLog.open(disk, PATH, SMALL)
        found = [bytes(data) for _, data in log.batches(0)]
        assert found in ([kept], [kept, later])
