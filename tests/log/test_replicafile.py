"""`replica.json`, and what a log believes because of it."""

import random

import msgspec
import pytest

from penstock.errors import PartitionStopped
from penstock.log.errors import ReplicaUnreadable
from penstock.log.inspect import find
from penstock.log.partition import PartitionLog
from penstock.log.replica_file import ReplicaFile, State, read_replica, replica_id, write_replica
from penstock.log.seal import seal
from penstock.log.verify import verify
from sim.disk import Fault, SimDisk

from .helpers import PATH, SMALL, Writer, bodies_from, body, put

FILE = f"{PATH}/replica.json"
ID = replica_id(0x0123456789ABCDEF)


def replica(state: State, reason: str = "") -> ReplicaFile:
    return ReplicaFile(replica_id=ID, identity="005-18a26f9ac7a69000", state=state, reason=reason)


@pytest.fixture
def disk(disk: SimDisk) -> SimDisk:
    disk.mkdir(PATH)
    disk.sync_directory("data/topics/orders")
    return disk


# --- the file ---


@pytest.mark.parametrize(
    "file", [replica("alone"), replica("in_sync"), replica("copying"), replica("stopped", "a sync")]
)
def test_a_written_file_survives_a_power_loss(disk: SimDisk, file: ReplicaFile) -> None:
    write_replica(disk, PATH, file)
    disk.crash(random.Random(1))
    found = read_replica(disk, PATH)
    assert found == msgspec.structs.replace(file, version=1)


def test_an_interrupted_change_leaves_the_old_state_or_the_new_one(disk: SimDisk) -> None:
    states = set()
    for seed in range(60):
        write_replica(disk, PATH, replica("in_sync"))
        disk.inject(Fault("sync_directory"))
        with pytest.raises(OSError, match="Input/output"):
            write_replica(disk, PATH, replica("copying"))
        disk.crash(random.Random(seed))
        found = read_replica(disk, PATH)
        assert found is not None
        states.add(found.state)
    assert states == {"in_sync", "copying"}


@pytest.mark.parametrize(
    "file",
    [
        ReplicaFile(replica_id="12", identity="i", state="alone"),
        ReplicaFile(replica_id=ID.upper(), identity="i", state="alone"),
        ReplicaFile(replica_id=ID, identity="", state="alone"),
        replica("stopped"),
        replica("in_sync", "a reason"),
    ],
)
def test_invalid_content_is_not_written(disk: SimDisk, file: ReplicaFile) -> None:
    with pytest.raises(ValueError, match=r"hex digits|identity|reason"):
        write_replica(disk, PATH, file)
    assert not disk.exists(FILE)


def test_an_unknown_version_is_named(disk: SimDisk) -> None:
    PartitionLog.create(disk, PATH, SMALL)
    put(disk, FILE, seal(b'{"version":2,"state":"waiting"}'))
    with pytest.raises(ReplicaUnreadable, match="version is 2, and 1 is the one known") as caught:
        PartitionLog.open(disk, PATH, SMALL)
    assert caught.value.where == FILE


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        seal(b'{"version":1}'),
        seal(b'{"version":1,"replica_id":"x","identity":"i","state":"alone"}'),
        seal(b'{"version":1,"replica_id":"%s","identity":"i","state":"odd"}' % ID.encode()),
    ],
)
def test_a_corrupt_file_is_not_a_missing_one(disk: SimDisk, content: bytes) -> None:
    log = PartitionLog.create(disk, PATH, SMALL)
    log.close()
    put(disk, FILE, content)
    with pytest.raises(ReplicaUnreadable):
        PartitionLog.open(disk, PATH, SMALL)
    findings = verify(disk, find(disk, PATH)).findings
    assert [finding.path for finding in findings] == [FILE]


# --- what the log believes ---


def torn_log(disk: SimDisk, state: State | None) -> None:
    """A follower in mid-copy loses its power: batches 0 to 8 were synced, 9 to 14 are missing, and
    the header of the last one, at 15, says that others have synced all before it."""
    log = PartitionLog.create(disk, PATH, SMALL)
    writer = Writer(log)
    for _ in range(3):
        writer.write([body(log.written_end + n) for n in range(3)], epoch=1, synced_end=0)
    log.sync()
    position = log._active.data_bytes
    path = log._active.path
    for _ in range(2):
        writer.write([body(log.written_end + n) for n in range(3)], epoch=1, synced_end=0)
    hole = log._active.data_bytes - position
    writer.write([body(15)], epoch=1, synced_end=15)
    if state is not None:
        write_replica(disk, PATH, replica(state, "a sync failed" if state == "stopped" else ""))
    disk.kill()
    content = bytearray(disk.content(path))
    content[position : position + hole] = bytes(hole)
    disk.replace(path, bytes(content))


def test_a_replica_in_mid_copy_believes_its_own_mark_alone(disk: SimDisk) -> None:
    torn_log(disk, "copying")
    log = PartitionLog.open(disk, PATH, SMALL)
    assert (log.written_end, log.synced_end, log.damaged) == (9, 9, [])
    assert log.refusal is None
    assert log.removed_tail is not None
    assert log.removed_tail.reason == "intact batches behind an unfinished one"
    assert bodies_from(log, 0) == [body(n) for n in range(9)]
    assert log.agreed_end == 9  # the header was true of the members, and this log ends here
    log.close()
    assert verify(disk, find(disk, PATH)).findings == []


def test_a_copy_that_its_own_mark_vouches_for_is_corrupt_where_it_is(disk: SimDisk) -> None:
    log = PartitionLog.create(disk, PATH, SMALL)
    Writer(log).fill(5)
    write_replica(disk, PATH, replica("copying"))
    log.close()
    disk.flip(log.segments[0].path, 200, 1)
    log = PartitionLog.open(disk, PATH, SMALL)
    with pytest.raises(IndexError):
        log.message(15)
    assert log.written_end == 15
    findings = verify(disk, find(disk, PATH)).findings
    assert any(finding.from_offset == 0 for finding in findings)


def test_a_replica_that_was_given_up_stays_so(disk: SimDisk) -> None:
    torn_log(disk, "stopped")
    syncs = disk.syncs
    log = PartitionLog.open(disk, PATH, SMALL)
    assert disk.syncs == syncs  # no proof of anything
    assert log.stopped is not None
    assert "a sync failed" in log.stopped.reason
    assert (log.written_end, log.synced_end) == (9, 0)
    with pytest.raises(PartitionStopped):
        Writer(log).write([b"x"], epoch=1)
    assert bodies_from(log, 0) == [body(n) for n in range(9)]


# --- epochs along the walk ---


def test_an_unfinished_write_of_an_earlier_leader_is_not_taken(disk: SimDisk) -> None:
    """Epoch 5 wrote a row of two batches at 3, which never became safe. Epoch 6 wrote one of the
    same length over the first of them: the second now stands just where its next batch would."""
    log = PartitionLog.create(disk, PATH, SMALL)
    writer = Writer(log)
    writer.write([body(n) for n in range(3)], epoch=4)
    log.sync()
    begin, path = log._active.data_bytes, log._active.path
    writer.write([b"old %d" % n for n in range(3)], epoch=5)
    second = log._active.data_bytes
    writer.write([b"old %d" % n for n in range(3, 6)], epoch=5)
    end = log._active.data_bytes
    new = writer.encode([b"new %d" % n for n in range(3)], 3, epoch=6)
    assert len(new) == second - begin
    disk.kill()
    content = bytearray(disk.content(path))
    content[begin:second] = new
    disk.replace(path, bytes(content))
    log = PartitionLog.open(disk, PATH, SMALL)
    assert log.written_end == 6
    assert log.epochs() == ((4, 0), (6, 3))
    assert bodies_from(log, 3) == [b"new %d" % n for n in range(3)]
    assert log.removed_tail is not None
    assert log.damaged == []
    assert disk.content(path)[second:end] == b""  # and it can never come back
