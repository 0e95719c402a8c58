"""Commits into several partitions of a topic: seen in one step, each in its own order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import limits
from penstock.broker.commits.stageapps import Ref
from penstock.errors import (
    CommitUnfinished,
    GrowthRefused,
    Refused,
    StorageError,
)
from penstock.log.disk import replace_file
from penstock.log.sealed import seal, unseal
from sim.disk import Fault, SimDisk

from ..faults import FaultyDisk
from ..staging import Told, block, commit, done, on, put, settle, stored
from ..world import World

pytestmark = pytest.mark.usefixtures("quiet")

Start = Callable[..., World]
COUNT = 4


def skewed(world: World) -> list[Ref]:
    """Staged for all four, 90 % of it for the third one."""
    world.broker.topic("t", COUNT)
    refs = []
    for partition, count in enumerate((1, 1, 27, 1)):
        said = [b"%d-%d" % (partition, number) for number in range(count)]
        assert put(world, "t", block("x", *said, partition=partition)).told == [None]
        refs.append(Ref("t", "x", partition))
    return refs


def ends(world: World) -> tuple[int, ...]:
    return tuple(leader.tail.committed_end for leader in world.broker.topic("t").leaders)


def test_all_show_it_in_one_turn(start: Start) -> None:
    world = start()
    refs = skewed(world)
    world.threads.held = True
    told = Told()
    world.broker.commits.commit("app", 1, refs, told)
    seen = set()
    for _ in range(200):
        world.turn()
        seen.add(ends(world))
        if told.told:
            break
        job, *rest = world.threads.waiting
        world.threads.held, world.threads.waiting = False, [job]
        world.threads.run()
        world.threads.held, world.threads.waiting = True, [*world.threads.waiting, *rest]
    assert (seen, told.told) == ({(0, 0, 0, 0), (1, 1, 27, 1)}, done(30))
    assert stored(world, "t", 2) == [b"2-%d" % number for number in range(27)]


def test_one_that_has_stopped_refuses_for_all(start: Start) -> None:
    disk = FaultyDisk()
    world = start(disk=disk)
    refs = skewed(world)
    disk.fail.add(("sync", "topics/t/3/"))
    for _ in range(COUNT):
        world.publish("t", b"plain")
    disk.fail.clear()
    before = ends(world)
    told = commit(world, "app", 1, *refs)
    assert isinstance(told.error, Refused)
    assert "topic t/3: " in str(told.error)
    assert ends(world) == before
    with pytest.raises(Refused):
        put(world, "t", block("y", b"a", partition=3))
    assert commit(world, "app", 1, *refs[:3]).told == done(29)


@pytest.mark.parametrize("how", ["again", "restart", "kill"])
def test_an_unfinished_one_holds_its_partitions_alone(disk: SimDisk, how: str) -> None:
    world = on(disk)
    refs = skewed(world)
    for partition in (0, 2):
        put(world, "t", block("y", b"other", partition=partition))
    disk.inject(Fault("write", path_part="topics/t/2/0", times=0))
    waits = commit(world, "app", 1, *refs[1:])
    assert isinstance(waits.error, CommitUnfinished)
    assert ends(world) == (0, 0, 0, 0)
    refused = commit(world, "other", 0, ("t", "y", 0), ("t", "y", 2))
    assert isinstance(refused.error, Refused)
    assert "topic t/2: commit 1 of app waits to be finished" in str(refused.error)
    assert commit(world, "other", 0, ("t", "y", 0)).told == done(1)
    disk.faults.clear()
    if how == "again":
        world.pass_ns(limits.SECOND)
        settle(world)
    else:
        if how == "restart":
            world.close()
        else:
            disk.kill()
        world = on(disk)
    assert ends(world) == (1, 1, 27, 1)
    assert commit(world, "other", 1, ("t", "y", 2)).told == done(1)
    assert stored(world, "t", 2)[-1] == b"other"
    world.close()


def test_keys_are_not_rehashed_under_what_is_staged(start: Start) -> None:
    world = start()
    topic = world.broker.topic("t", 2)
    put(world, "t", block("x", b"a", partition=1))
    with pytest.raises(GrowthRefused, match="commit or abort the stages of topic t first"):
        world.broker.grow_topic(topic, 4, rehash=True)
    assert (len(topic.leaders), topic.hash_partitions) == (2, 2)
    assert commit(world, "app", 0, ("t", "x", 1)).told == done(1)
    consumer = world.consumer("t", "c")
    consumer.finish(*consumer.take())
    world.broker.grow_topic(topic, 4, rehash=True)
    assert (len(topic.leaders), topic.hash_partitions) == (4, 4)


def test_a_topic_may_grow_while_a_commit_waits(disk: SimDisk) -> None:
    world = on(disk)
    refs = skewed(world)
    disk.inject(Fault("write", path_part="topics/t/2/0", times=0))
    assert isinstance(commit(world, "app", 1, *refs).error, CommitUnfinished)
    world.broker.grow_topic(world.broker.topic("t"), 6)
    put(world, "t", block("y", b"new", partition=5))
    assert commit(world, "other", 0, ("t", "y", 5)).told == done(1)
    assert ends(world) == (0, 0, 0, 0, 0, 1)
    disk.kill()
    disk.faults.clear()
    world = on(disk)
    assert ends(world) == (1, 1, 27, 1, 0, 1)
    world.close()


def test_a_record_that_names_what_is_not_there_stops_the_start(disk: SimDisk) -> None:
    world = on(disk)
    refs = skewed(world)
    disk.inject(Fault("write", path_part="topics/t/2/0", times=0))
    assert isinstance(commit(world, "app", 1, *refs).error, CommitUnfinished)
    disk.kill()
    disk.faults.clear()
    (name,) = disk.listdir("/data/commits")
    path = f"/data/commits/{name}"
    record = unseal(disk.content(path)).replace(b'"partition":3', b'"partition":9')
    replace_file(disk, path, seal(record))
    with pytest.raises(StorageError, match="topic t has no partition 9"):
        on(disk)
