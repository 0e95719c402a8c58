"""Commits that are decided and cannot be finished just now: nothing is lost, and it is said."""

import pytest

from penstock import limits
from penstock.broker.commits.apps import Ref
from penstock.errors import CommitUnfinished, GrowthRefused, Refused, StorageError
from penstock.log.disk import replace_file
from penstock.log.seal import seal, unseal
from sim.disk import Fault, SimDisk

from ..staging import REPEATED, block, commit, done, on, pass_ns, put, stage_in_both, stored
from ..world import World

pytestmark = pytest.mark.usefixtures("quiet")


def unfinished(world: World) -> None:
    """It is neither lost nor seen, and the topics take nothing."""
    answers = commit(world, "app", 0, ("a", "x"), ("b", "x"))
    assert isinstance(answers.error, CommitUnfinished), answers.answers
    assert world.broker.health.startswith("NOK - commit 0 of app waits")
    assert world.broker.commits.last("app") is None
    assert stored(world, "a") == stored(world, "b") == []
    for topic in ("a", "b"):
        with pytest.raises(Refused, match="waits to be finished"):
            world.publish(topic, b"plain")
    assert world.publish("other", b"plain").stored
    again = commit(world, "app", 0, ("a", "x"), ("b", "x"))
    assert isinstance(again.error, CommitUnfinished)
    assert isinstance(commit(world, "app", 1).error, CommitUnfinished)


def finished(world: World) -> None:
    assert world.broker.health == "OK"
    assert commit(world, "app", 0, ("a", "x"), ("b", "x")).answers == REPEATED
    for topic in ("a", "b"):
        assert world.publish(topic, b"plain").stored
        assert stored(world, topic) == [b"1", b"2", b"3", b"plain"]
        assert world.broker.topic(topic).leader().group.reserved_count == 0
    assert world.broker.commits.stages.count == 0
    assert world.broker.context.reserved_bytes == 0


STORING = [
    Fault("sync_directory", path_part="/data/commits", times=0),
    Fault("write", path_part="topics/a/0/0", times=0),
    Fault("write", path_part="topics/b/0/0", times=0, skip=1, written=0.5),
    Fault("open", path_part="stages/", times=0, skip=2),
]


@pytest.mark.parametrize("fault", STORING, ids=lambda fault: f"{fault.call} {fault.path_part}")
@pytest.mark.parametrize("how", ["again", "restart", "kill", "kill twice"])
def test_an_unfinished_commit_is_retried(disk: SimDisk, fault: Fault, how: str) -> None:
    world = on(disk)
    disk.mkdir("/data/commits")
    stage_in_both(world, b"1", b"2", b"3")
    disk.faults.append(Fault(fault.call, path_part=fault.path_part, skip=fault.skip,
                             times=fault.times, written=fault.written))  # fmt: skip
    unfinished(world)
    if "commits" not in fault.path_part:
        assert commit(world, "free", 0).answers == done(0)  # others go on
    pass_ns(world)
    assert world.broker.commits.unfinished_count == 1
    disk.faults.clear()
    if how == "again":
        pass_ns(world)
    elif how == "restart":
        world.close()
    for _ in range(how.count("kill") + how.count("twice")):
        disk.kill()
    if how != "again":
        world = on(disk)
    finished(world)


def test_stages_of_an_unfinished_commit_are_kept(disk: SimDisk) -> None:
    world = on(disk)
    stage_in_both(world, b"1", b"2", b"3")
    disk.inject(Fault("write", path_part="topics/a/0/0", times=0))
    assert isinstance(commit(world, "app", 0, ("a", "x"), ("b", "x")).error, CommitUnfinished)
    assert isinstance(commit(world, "other", 0, ("b", "x")).error, Refused)
    assert world.broker.commits.stages.abort([Ref("a", "x"), Ref("b", "x")]) == 0
    world.clock.pass_ns(limits.STAGE_EXPIRE_NS)
    world.pass_ns(limits.SECOND)
    disk.faults.clear()
    pass_ns(world)
    finished(world)


def decided_and_killed(disk: SimDisk) -> None:
    """The record is there, and nothing of the commit in the logs."""
    world = on(disk)
    stage_in_both(world, b"1", b"2", b"3")
    world.publish("free", b"plain")
    disk.inject(Fault("write", path_part="topics/", times=0))
    assert isinstance(commit(world, "app", 0, ("a", "x"), ("b", "x")).error, CommitUnfinished)
    disk.kill()


def test_a_start_that_cannot_finish_serves_the_rest(disk: SimDisk) -> None:
    decided_and_killed(disk)
    path = "/data/stages/0000000000000002.stage"
    whole = disk.content(path)
    disk.unlink(path)
    world = on(disk)
    assert "waits to be finished" in world.broker.health
    assert world.publish("free", b"plain").stored
    for topic in ("a", "b"):
        with pytest.raises(Refused, match="waits to be finished"):
            world.publish(topic, b"plain")
    assert isinstance(commit(world, "app", 0).error, CommitUnfinished)
    world.close()
    world = on(disk)
    disk.create(path)
    disk.replace(path, whole)  # somebody has found it
    pass_ns(world)
    finished(world)


def test_a_record_that_cannot_be_read_stops_the_start(disk: SimDisk) -> None:
    decided_and_killed(disk)
    (name,) = disk.listdir("/data/commits")
    disk.flip(f"/data/commits/{name}", 20, 0)
    with pytest.raises(StorageError, match="cannot be read"):
        on(disk)


def test_a_log_that_lost_earlier_messages_is_left_alone(disk: SimDisk) -> None:
    world = on(disk)
    world.publish("b", b"before")
    world.close()
    decided_and_killed(disk)
    log_name = "00000000000000000000.log"
    for name in disk.listdir("/data/topics/b/0"):
        if name != log_name:
            disk.unlink(f"/data/topics/b/0/{name}")
    disk.replace(f"/data/topics/b/0/{log_name}", b"")
    world = on(disk)
    assert "what was stored before is lost" in world.broker.health
    assert stored(world, "b") == []


def test_a_failed_sync_is_for_the_next_start_whose_own_has_to_succeed(disk: SimDisk) -> None:
    """The start finds all of it in the log, and its own sync fails: a power loss may take it."""
    world = on(disk)
    stage_in_both(world, b"1", b"2", b"3")
    disk.inject(Fault("sync", path_part="topics/b/0/0"))
    assert isinstance(commit(world, "app", 0, ("a", "x"), ("b", "x")).error, CommitUnfinished)
    world.pass_ns(limits.SECOND)
    assert world.broker.commits.unfinished_count == 1
    assert stored(world, "a") == []
    disk.kill()
    disk.inject(Fault("sync", path_part="topics/b/0/0"))
    world = on(disk)
    assert world.broker.commits.unfinished_count == 1
    assert len(disk.listdir("/data/stages")) == 2
    disk.kill()
    world = on(disk)
    finished(world)


# --- commits into several partitions of a topic ---


def test_keys_are_not_rehashed_while_stages_exist(world: World) -> None:
    topic = world.broker.topic("t", 2)
    put(world, "t", block("x", b"a", partition=1))
    with pytest.raises(GrowthRefused, match="commit or abort the stages of topic t first"):
        world.broker.grow_topic(topic, 4, rehash=True)
    assert (len(topic.leaders), topic.hash_partitions) == (2, 2)
    assert commit(world, "app", 0, ("t", "x", 1)).answers == done(1)
    consumer = world.consumer("t", "c")
    consumer.finish(*consumer.take())
    world.broker.grow_topic(topic, 4, rehash=True)
    assert (len(topic.leaders), topic.hash_partitions) == (4, 4)


def test_a_record_of_missing_stages_stops_the_start(disk: SimDisk) -> None:
    world = on(disk)
    world.broker.topic("t", 4)
    for partition in range(4):
        assert put(world, "t", block("x", b"1", partition=partition)).answers == [None]
    disk.inject(Fault("write", path_part="topics/t/2/0", times=0))
    refs = [Ref("t", "x", partition) for partition in range(4)]
    assert isinstance(commit(world, "app", 1, *refs).error, CommitUnfinished)
    disk.kill()
    disk.faults.clear()
    (name,) = disk.listdir("/data/commits")
    path = f"/data/commits/{name}"
    record = unseal(disk.content(path)).replace(b'"partition":3', b'"partition":9')
    replace_file(disk, path, seal(record))
    with pytest.raises(StorageError, match="topic t has no partition 9"):
        on(disk)
