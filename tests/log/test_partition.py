import random
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from penstock.errors import PartitionMissing, PartitionStopped, StorageError, WriteRefused
from penstock.kernel import id_at
from penstock.log.disk import OsDisk
from penstock.log.partition import PartitionLog
from sim.disk import Fault, SimDisk

from .helpers import NOW_NS, SECOND, SMALL, Writer, bodies_from, body, descriptors, new_log


@pytest.fixture
def disk() -> OsDisk:
    return OsDisk()


@pytest.fixture
def log(disk: OsDisk, tmp_path: Path) -> Iterator[PartitionLog]:
    log, _ = new_log(disk, tmp_path / "0")
    yield log
    log.close()


@pytest.fixture
def writer(log: PartitionLog) -> Writer:
    return Writer(log)


def test_files_are_private(disk: OsDisk, tmp_path: Path) -> None:
    log, writer = new_log(disk, tmp_path / "topic" / "0")
    writer.fill(50)
    log.close()
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "topic" / "0").iterdir()} == {0o600}
    assert (tmp_path / "topic" / "0").stat().st_mode & 0o777 == 0o700


def test_a_partition_is_made_once_and_never_in_place_of_a_lost_one(
    disk: OsDisk, tmp_path: Path
) -> None:
    path = tmp_path / "0"
    with pytest.raises(PartitionMissing):
        PartitionLog.open(disk, path, SMALL)
    path.mkdir()
    with pytest.raises(PartitionMissing):
        PartitionLog.open(disk, path, SMALL)
    (path / "00000000000000000000.log").touch()  # an interrupted creation left it
    log, writer = new_log(disk, path)
    with pytest.raises(ValueError, match="ends at 0"):
        log.write([b"x"], 1, 7, 1, 1, 1, NOW_NS)
    writer.fill(1)
    log.close()
    with pytest.raises(WriteRefused):
        PartitionLog.create(disk, path, SMALL)


def test_a_roll_during_a_sync_is_synced_by_the_next_job(log: PartitionLog, writer: Writer) -> None:
    writer.fill(1)
    job = log.sync_begin()
    assert job is not None
    writer.fill(60)
    assert len(log.segments) > 2
    bodies_from(log, 0)  # opens and closes files: not those that the job holds
    job.run()
    log.sync_end(job, None)
    assert log.synced_end == 3
    job = log.sync_begin()
    assert job is not None
    assert len(job.sealed) == len(log.segments) - 1
    job.run()
    log.sync_end(job, None)
    assert log.synced_end == log.written_end == 183


def test_a_log_at_rest_holds_no_descriptor(disk: OsDisk, tmp_path: Path) -> None:
    log, writer = new_log(disk, tmp_path)
    writer.fill(3)
    log.rest()
    assert descriptors(tmp_path) > 0  # not all is synced: the handle is still wanted
    job = log.sync_begin()
    assert job is not None
    job.run()
    log.rest()
    assert descriptors(tmp_path) > 0  # in use in another thread
    log.sync_end(job, None)
    log.rest()
    assert descriptors(tmp_path) == 0
    before = log.written_end
    writer.fill(1)
    assert bodies_from(log, before)[0] == body(before)
    log.close()


def test_a_message_with_its_own_id_and_time(log: PartitionLog, writer: Writer) -> None:
    writer.fill(30)
    writer.write([b"a", b"b"], sections={2: {1: 4711}, 1: {1: 12345}, 65: {0: b"{}"}})
    writer.fill(30)
    plain, own = log.message(90), log.message(91)
    assert (own.id, own.timestamp_ns, own.body) == (4711, 12345, b"b")
    assert plain.sections == {65: b"{}"}
    assert log.find_id(4711) is None
    assert log.find_id(plain.id) == 90
    assert log.find_id(id_at(plain.header.base_id, 1)) is None  # that message has another id


# --- retention ---


def test_retention_by_size_keeps_what_is_wanted(
    log: PartitionLog, writer: Writer, tmp_path: Path
) -> None:
    writer.fill(200)
    log.sync()
    forever = 10**18
    assert log.retain(0, NOW_NS, forever, 0) == 0  # nobody has finished anything
    floor = log.segments[5].from_offset + 1
    assert log.retain(floor, NOW_NS, forever, 10**9) == 0  # it is small enough
    assert log.retain(floor, NOW_NS, forever, 2 * 4096) == 3
    assert log.retain(floor, NOW_NS, forever, 0) == 2
    start = log.start_offset
    assert start == log.segments[0].from_offset
    assert start < floor
    assert bodies_from(log, start) == [body(n) for n in range(start, 600)]
    names = sorted(p.name for p in (tmp_path / "0").iterdir())
    assert [n for n in names if "spare" in n] == ["spare-0.log", "spare-1.log"]
    with pytest.raises(IndexError):
        log.read(start - 1, 100)


@pytest.mark.parametrize(("call", "part"), [("sync_directory", ""), ("unlink", ".index")])
def test_a_removal_that_is_not_durable_is_completed_before_the_next(
    call: Literal["sync_directory", "unlink"], part: str
) -> None:
    """Else a power loss could bring the oldest segment back, and lack the one behind it."""
    disk = SimDisk()
    log, writer = new_log(disk, "data/0")
    writer.fill(200)
    log.sync()
    log.mark(NOW_NS)
    for segment in log.segments[:3]:
        log.read(segment.from_offset, 100)
    fault = disk.inject(Fault(call, path_part=part, times=0))
    second, floor = log.segments[1].from_offset, log.segments[5].from_offset
    for _ in range(3):
        with pytest.raises(StorageError, match="old segments could not be removed"):
            log.retain(floor, NOW_NS, 10**18, 0)
        assert log.start_offset == second
    disk.faults.remove(fault)
    assert log.retain(0, NOW_NS, 10**18, 0) == 0  # there is nothing more to remove
    assert not [name for name in disk.listdir("data/0") if name.startswith(f"{0:020d}")]
    disk.crash(random.Random(1))
    log = PartitionLog.open(disk, "data/0", SMALL)
    assert log.start_offset == second


def test_an_idle_log_can_shrink_to_nothing_and_ids_go_on(disk: OsDisk, tmp_path: Path) -> None:
    log, writer = new_log(disk, tmp_path / "0")
    writer.fill(100)
    log.sync()
    last_id = log.last_id
    assert log.retain(300, NOW_NS + 7200 * SECOND, SECOND, 10**9) > 3
    assert (log.start_offset, log.written_end, log.bytes_stored) == (300, 300, 0)
    log.close()
    log = PartitionLog.open(disk, tmp_path / "0", SMALL)
    assert (log.start_offset, log.written_end, log.last_id) == (300, 300, last_id)
    Writer(log).fill(2)
    assert bodies_from(log, 300) == [body(n) for n in range(300, 306)]
    assert log.message(300).id > last_id
    log.close()


def test_destroy_removes_everything(disk: OsDisk, tmp_path: Path) -> None:
    log, writer = new_log(disk, tmp_path / "0")
    writer.fill(100)
    log.destroy()
    assert not (tmp_path / "0").exists()
    with pytest.raises(PartitionStopped):
        writer.fill(1)


# --- room that was prepared for a segment goes back when it is sealed, or later ---


AGE_NS = 3600 * 10**9


def retain(log: PartitionLog, floor_offset: int = 0, age_ns: int = AGE_NS) -> None:
    log.retain(floor_offset, NOW_NS, age_ns, 1 << 40)


def untrimmed(log: PartitionLog, disk: SimDisk) -> list[int]:
    """How much the sealed segments have behind their data."""
    return [disk.size(one.path) - one.bytes_stored for one in log.segments if one.sealed]


def test_a_failed_cut_is_reported_and_done_later() -> None:
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
