"""Records of commits that cannot be written: health names it until one could be."""

import errno

import pytest

from penstock import limits
from penstock.broker.commits.apps import CommitParts, Ref
from penstock.broker.commits.record import PROBE_NAMES, commit_file_name, read_commit_file
from penstock.errors import CommitGap, WriteRefused
from sim.disk import Call, Fault, SimDisk

from ..staging import REPEATED, block, commit, done, on, pass_ns, put, stored

pytestmark = pytest.mark.usefixtures("quiet")

RECORD = f"/data/commits/{commit_file_name('app')}"
NAMED = "the record of a commit cannot be written"


def break_records(disk: SimDisk, call: Call, skip: int = 0) -> Fault:
    return disk.inject(Fault(call, errno.EIO, "/data/commits", times=0, skip=skip))


@pytest.mark.parametrize("call", ["create", "write", "sync", "rename"])
def test_a_failing_write_of_a_decision_is_shown_until_one_succeeds(
    disk: SimDisk, call: Call
) -> None:
    world = on(disk)
    put(world, "t", block("x", b"1"))
    disk.mkdir("/data/commits")
    fault = break_records(disk, call)
    assert isinstance(commit(world, "app", 0, ("t", "x")).error, WriteRefused)
    group = world.broker.topic("t").leader().group
    assert (group.tail.committed_end, group.reserved_count) == (0, 0)  # refused whole
    assert (world.broker.context.reserved_bytes, world.broker.commits.last("app")) == (0, None)
    assert world.publish("t", b"plain").stored
    for _ in range(3):
        assert NAMED in world.broker.health
        pass_ns(world)
    disk.faults.remove(fault)
    pass_ns(world)  # though nobody commits
    assert world.broker.health == "OK"
    assert not [name for name in disk.listdir("/data/commits") if name.startswith("probed")]
    assert commit(world, "app", 0, ("t", "x")).answers == done(1)


@pytest.mark.parametrize("call", ["create", "write", "sync", "rename", "sync_directory"])
def test_a_commit_that_cannot_be_noted_as_done_is_noted_later(disk: SimDisk, call: Call) -> None:
    world = on(disk)
    put(world, "t", block("x", b"1"))
    disk.mkdir("/data/commits")
    fault = break_records(disk, call, skip=1)  # the decision is written
    assert commit(world, "app", 0, ("t", "x")).answers == done(1)
    for _ in range(3):
        assert NAMED in world.broker.health
        pass_ns(world)
    disk.faults.remove(fault)
    pass_ns(world)
    assert world.broker.health == "OK"
    assert read_commit_file(disk, RECORD).state == "done"
    world.close()
    world = on(disk)
    assert commit(world, "app", 0, ("t", "x")).answers == REPEATED
    assert stored(world, "t") == [b"1"]


def test_a_newer_record_is_never_replaced_by_an_older_one(disk: SimDisk) -> None:
    world = on(disk)
    for name in ("x", "y"):
        put(world, "t", block(name, b"1"))
    disk.mkdir("/data/commits")
    fault = break_records(disk, "rename", skip=1)
    commit(world, "app", 0, ("t", "x"))
    assert NAMED in world.broker.health
    disk.faults.remove(fault)
    log = disk.inject(Fault("write", errno.EIO, "topics/t/0/00000000000000000000.log", times=0))
    commit(world, "app", 1, ("t", "y"))  # decided, and unfinished
    for _ in range(3):
        pass_ns(world)
    assert NAMED not in world.broker.health
    record = read_commit_file(disk, RECORD)
    assert (record.version, record.state) == (1, "prepared")
    disk.faults.remove(log)
    pass_ns(world)
    assert world.broker.health == "OK"
    assert stored(world, "t") == [b"1", b"1"]
    assert read_commit_file(disk, RECORD).state == "done"


@pytest.mark.parametrize("name", PROBE_NAMES)
def test_a_start_removes_leftovers_of_a_probe(disk: SimDisk, name: str) -> None:
    disk.mkdir("/data/commits")
    disk.create(f"/data/commits/{name}")
    on(disk)
    assert disk.listdir("/data/commits") == []


# --- A commit's list in parts: in order, again as often as its sender likes, bounded ---


X, Y, Z = (Ref("t", name) for name in "xyz")


def test_parts_come_in_order() -> None:
    parts = CommitParts()
    assert parts.add("app", 1, 0, [X]) == [X]
    assert parts.add("app", 1, 1, [Y]) == [X, Y]
    assert parts.add("app", 1, 1, [Z]) == [X, Z]  # the answer was lost, and it was sent again
    with pytest.raises(CommitGap) as gap:
        parts.add("app", 1, 3, [Y])
    assert gap.value.expected == 2
    assert parts.add("app", 1, 0, [Z]) == [Z]
    with pytest.raises(CommitGap):
        parts.add("app", 2, 1, [Y])


def test_the_oldest_list_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMIT_GATHERED_MAX", 3)
    parts = CommitParts()
    parts.add("one", 1, 0, [X, Y])
    parts.add("two", 1, 0, [X, Y])
    assert parts.count == 2
    with pytest.raises(CommitGap):
        parts.add("one", 1, 1, [Z])
