"""Giving up what is corrupt: nothing else is touched, and the log goes on."""

import pytest

from penstock.errors import LogDamaged
from penstock.log.damage import read_lost
from penstock.log.fold import FLAG_SNAPSHOT, EntryKind, Group, cursor_entry, encode_record
from penstock.log.inspect import find
from penstock.log.partition import PartitionLog
from penstock.log.repair import find_losses, give_up
from penstock.log.seal import seal
from penstock.log.verify import verify
from sim.disk import Fault, SimDisk

from .helpers import (
    DIRECTORY,
    END,
    NOW_NS,
    PATH,
    SMALL,
    Writer,
    bodies_from,
    body,
    corrupt,
    filled_disk,
    put,
)


@pytest.fixture
def disk() -> SimDisk:
    """A topic with two channels: one has finished all but the last ten, the other nothing."""
    disk = filled_disk()
    groups = [
        Group(1, cursor_entry(EntryKind.CURSOR, END - 10, END)),
        Group(2, cursor_entry(EntryKind.CURSOR, 0, 0)),
    ]
    put(disk, f"{PATH}/channels.0", encode_record(FLAG_SNAPSHOT, 1, 0, END, groups))
    channels = b'[{"name":"fast","number":1},{"name":"slow","number":2}]'
    put(disk, "data/topics/orders/topic.json", seal(b'{"name":"orders","channels":%s}' % channels))
    return disk


def findings(disk: SimDisk) -> list[tuple[int | None, int | None]]:
    return [(f.from_offset, f.to_offset) for f in verify(disk, find(disk, "data")).findings]


def repaired(disk: SimDisk) -> list[str]:
    return give_up(disk, "data", DIRECTORY, find_losses(disk, DIRECTORY), NOW_NS)


def test_a_corrupt_batch_in_the_middle(disk: SimDisk) -> None:
    path = corrupt(disk, 10)
    before = disk.content(path)
    assert findings(disk) == [(9, 12)]
    (loss,) = find_losses(disk, DIRECTORY)
    assert (loss.from_offset, loss.to_offset, loss.messages) == (9, 12, 3)
    assert loss.unfinished_by == ["channel slow"]
    (copy,) = repaired(disk)
    assert copy.startswith("data/set-aside/orders/0/")
    assert disk.content(copy) == disk.content(path) == before
    assert findings(disk) == []
    assert find_losses(disk, DIRECTORY) == []
    log = PartitionLog.open(disk, PATH, SMALL)
    with pytest.raises(LogDamaged):  # readers step over it as before
        log.read(10, 100)
    assert log.damaged == []  # and nobody is warned
    assert bodies_from(log, 12) == [body(n) for n in range(12, END)]


def test_a_corrupt_end(disk: SimDisk) -> None:
    corrupt(disk, END - 1)
    log = PartitionLog.open(disk, PATH, SMALL)
    assert log.refusal is not None
    log.close()
    (loss,) = find_losses(disk, DIRECTORY)
    assert (loss.from_offset, loss.to_offset) == (END - 3, END)
    assert loss.unfinished_by == ["channel fast", "channel slow"]
    repaired(disk)
    assert findings(disk) == []
    for start in range(3):  # each goes on where the one before ended
        log = PartitionLog.open(disk, PATH, SMALL)
        assert (log.refusal, log.damaged) == (None, [])
        assert log.written_end == END + 3 * start
        assert not log.synced_end < log.written_end
        Writer(log).fill(1)
        log.validate()
        log.sync() if start else log.close()
        disk.kill()
    log = PartitionLog.open(disk, PATH, SMALL)
    assert bodies_from(log, END) == [body(n) for n in range(END, END + 9)]
    assert [log.message(n).body for n in range(END - 3)] == [body(n) for n in range(END - 3)]
    log.close()
    assert findings(disk) == []


def test_a_repair_that_fails_changes_nothing(disk: SimDisk) -> None:
    corrupt(disk, 10)
    for call in ("write", "sync", "rename"):
        fault = disk.inject(Fault(call, path_part="lost" if call == "rename" else "set-aside"))
        with pytest.raises(OSError, match="error"):
            repaired(disk)
        disk.faults.remove(fault)
        assert read_lost(disk, PATH) == []
        assert findings(disk) == [(9, 12)]
    repaired(disk)
    assert findings(disk) == []


def test_a_corrupt_list_is_no_list(disk: SimDisk) -> None:
    corrupt(disk, 10)
    repaired(disk)
    disk.flip(f"{PATH}/lost", 12, 1)
    assert read_lost(disk, PATH) == []
    assert (9, 12) in findings(disk)
    assert [(loss.from_offset, loss.to_offset) for loss in find_losses(disk, DIRECTORY)] == [
        (9, 12)
    ]
