"""More partitions for a topic that is in use."""

import random

import pytest

from penstock import limits
from penstock.broker.topics.topic import Topic
from penstock.errors import GrowthRefused, StorageError
from sim.clock import FakeClock
from sim.disk import Call, Fault, SimDisk

from ..partition.test_producers import REPEATED, STORED, send
from ..staging import empty, on
from ..world import Start, World, bodies
from .test_partitions import fill, several, stored


def grow(world: World, count: int, rehash: bool = False) -> Topic:
    topic = world.broker.find_topic("t")
    world.broker.grow_topic(topic, count, rehash)
    world.turns()
    return topic


def test_new_partitions_serve_at_once(world: World) -> None:
    several(world, 2)
    consumer = world.consumer("t", "a")
    fill(world, b"0", b"1")
    topic = grow(world, 4)
    assert world.changes[-1] == ("TOPIC_RESHAPED", "t", "")
    fill(world, *(b"%d" % number for number in range(2, 10)))
    assert [len(one) for one in stored(topic)] == [3, 3, 2, 2]
    taken = consumer.take()
    assert sorted(bodies(taken)) == [b"%d" % number for number in range(10)]
    consumer.finish(*taken)
    assert consumer.channel.unfinished == 0
    assert sorted(consumer.channel.windows) == [0, 1, 2, 3]


@pytest.mark.parametrize("count", [1, 2, limits.PARTITIONS_MAX + 1])
def test_numbers_that_are_refused(count: int, world: World) -> None:
    several(world, 3)
    with pytest.raises(GrowthRefused, match=f"has 3 partitions, not {count}: it can have 3 to 255"):
        grow(world, count)
    with pytest.raises(GrowthRefused, match="topic _pipelines of penstock's own has 1 partition"):
        world.broker.grow_topic(world.broker.topic("_pipelines"), 2)


# --- keys ---


def test_a_rehash_waits_until_everything_is_finished(world: World) -> None:
    topic = several(world, 2)
    fill(world, b"0")
    with pytest.raises(GrowthRefused, match="topic t itself has 1 messages"):
        grow(world, 4, rehash=True)
    topic.channel("idle").empty()
    consumer = world.consumer("t", "a")
    fill(world, b"1")
    topic.find_channel("idle").empty()
    with pytest.raises(GrowthRefused, match="channel a of topic t has 1 messages"):
        grow(world, 4, rehash=True)
    (message,) = consumer.take()
    consumer.requeue(message, delay_ns=5 * limits.SECOND)
    with pytest.raises(GrowthRefused, match="channel a of topic t has 1 messages"):
        grow(world, 4, rehash=True)
    assert (len(topic.replicas), topic.hash_partitions) == (2, 2)
    world.pass_ns(6 * limits.SECOND)
    consumer.finish(*consumer.take())
    grow(world, 4, rehash=True)
    assert (len(topic.replicas), topic.hash_partitions) == (4, 4)
    again = world.killed()
    assert again.broker.find_topic("t").hash_partitions == 4


def test_a_producer_in_the_midst_of_a_retry_stays_where_it_is(world: World) -> None:
    """Whatever the hash says after a rehash: elsewhere the retry would be stored again, and what
    follows would be a gap."""
    topic, ids = several(world, 2), range(1, 21)
    for id in ids:
        assert send(world, 0, b"0", producer=id).answers == STORED
    places = [topic.stamped_leader(id).number for id in ids]
    assert set(places) == {0, 1}
    grow(world, 7)
    topic.channel("a").empty()
    grow(world, 7, rehash=True)
    for answers in (STORED, REPEATED):
        topic = world.broker.find_topic("t")
        assert [topic.stamped_leader(id).number for id in ids] == places
        for id in ids:
            assert send(world, 0, b"0", producer=id).answers == REPEATED
            assert send(world, 1, b"1", producer=id).answers == answers
        world = world.killed()
    topic = world.broker.find_topic("t")
    assert sum(len(one) for one in stored(topic)) == 40
    assert len({topic.stamped_leader(id).number for id in range(100, 200)}) == 7  # of new ones


@pytest.mark.parametrize(
    "fault",
    [("create", "topics/t/3"), ("sync", "topics/t/2"), ("sync_directory", "topics/t"),
     ("write", "topic.json"), ("sync", "topic.json"), ("rename", "topic.json")],
)  # fmt: skip
def test_a_growth_that_fails_changes_nothing(simulate: Start, fault: tuple[str, str]) -> None:
    world = simulate()
    topic = several(world, 2)
    consumer = world.consumer("t", "a")
    injected = world.fail(*fault)
    with pytest.raises(StorageError):
        grow(world, 4)
    assert injected.failed
    assert (len(topic.replicas), len(topic.tails)) == (2, 2)
    world.disk.faults.clear()
    fill(world, b"0", b"1")
    assert len(consumer.take()) == 2
    world.pass_ns(2 * limits.SECOND)
    assert world.broker.health == "OK"
    grow(world, 4)
    fill(world, b"2", b"3", b"4")
    assert len(consumer.take()) == 3
    assert len(world.killed().broker.find_topic("t").replicas) == 4


CALLS: tuple[Call, ...] = ("mkdir", "create", "write", "sync", "sync_directory", "rename")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power loss"])
@pytest.mark.parametrize("call", CALLS)
def test_a_stop_at_any_point_leaves_a_topic_that_opens(call: Call, power: bool) -> None:
    counts, clock = set(), FakeClock()
    for skip in range(30):
        disk = empty(SimDisk())
        world = on(disk, clock=clock)
        several(world, 2).channel("a")
        fill(world, b"0", b"1")
        fault = disk.inject(Fault(call, skip=skip, times=0))
        try:
            grow(world, 4)
        except StorageError:
            failed = True
        else:
            failed = False
        assert fault.failed or not failed
        disk.faults.clear()
        if power:
            disk.crash(random.Random(skip))
        else:
            disk.kill()
        world.engine.close()
        again = on(disk, clock=clock)
        topic = again.broker.find_topic("t")
        counts.add(len(topic.replicas))
        assert failed or len(topic.replicas) == 4
        assert sum(len(one) for one in stored(topic)) == 2
        assert grow(again, 4) is topic
        fill(again, b"2", b"3", b"4", b"5")
        assert sorted(bodies(again.consumer("t", "a").take())) == [b"%d" % n for n in range(6)]
        again.broker.close()
        again.engine.close()
        if not fault.failed:
            break
    else:
        raise AssertionError(f"{call} was called more than 30 times")
    assert 4 in counts
