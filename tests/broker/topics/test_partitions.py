"""Topics with several partitions: one log each, and one topic to all who use it."""

import json
from typing import Any

import pytest

from penstock import limits
from penstock.broker.topics.topic import Topic
from penstock.errors import PartitionMissing, Refused
from penstock.kernel import decode_bodies
from penstock.log.seal import unseal

from ..world import Start, World


def several(world: World, count: int = 3) -> Topic:
    return world.broker.topic("t", count)


def fill(world: World, *given: bytes) -> None:
    """An append each."""
    for body in given:
        assert world.publish("t", body).stored


def stored(topic: Topic) -> list[list[bytes]]:
    """The bodies in each log."""
    return [
        [body for _, data in leader.log.batches(0) for body in decode_bodies(data, 0)]
        if leader.log.written_end
        else []
        for leader in topic.leaders
    ]


def document(world: World) -> dict[str, Any]:
    path = world.path / "topics" / "t" / "topic.json"
    found: dict[str, Any] = json.loads(unseal(path.read_bytes()))
    return found


def test_an_older_release_refuses_several_partitions(world: World) -> None:
    """It would serve the first partition alone."""
    several(world)
    found = document(world)
    assert (found["version"], found["partitions"]) == (2, 3)
    assert sorted(found["more_marks"]) == ["1", "2"]


@pytest.mark.parametrize("count", [-1, limits.PARTITIONS_MAX + 1])
def test_too_many_partitions_are_refused(count: int, world: World) -> None:
    with pytest.raises(Refused, match=f"{count} partitions: a topic has 1 to"):
        several(world, count)
    assert world.broker.topics == {}


def test_a_missing_partition_is_named(world: World) -> None:
    several(world)
    fill(world, b"1", b"2")
    world.close()
    (world.path / "topics" / "t" / "1").rename(world.path / "elsewhere")
    with pytest.raises(PartitionMissing, match="partition 1 of topic t is gone"):
        world.restart()
    (world.path / "elsewhere").rename(world.path / "topics" / "t" / "1")
    assert [len(one) for one in stored(world.restart().broker.find_topic("t"))] == [1, 1, 0]


def test_swapped_partitions_are_not_served(world: World) -> None:
    several(world, 2).channel("a")
    fill(world, b"zero", b"one")
    world.close()
    here = world.path / "topics" / "t"
    (here / "0").rename(here / "x")
    (here / "1").rename(here / "0")
    (here / "x").rename(here / "1")
    world = world.restart()
    assert "the segment belongs to another log" in world.broker.health


def test_changes_of_a_channel_reach_all_partitions(world: World) -> None:
    topic = several(world)
    channel = topic.channel("a")
    fill(world, *(b"%d" % number for number in range(6)))
    channel.set_paused(True)
    assert [window.paused for window in channel.windows.values()] == [True] * 3
    again = world.restart()
    channel = again.channel("t", "a")
    assert channel.paused
    assert [window.paused for window in channel.windows.values()] == [True] * 3
    channel.set_paused(False)
    channel.empty()
    assert (channel.depth, channel.backend_depth, channel.unfinished) == (0, 0, 0)
    channel.seek({2: 0})
    assert channel.depth == 2
    again = again.killed()
    assert again.channel("t", "a").depth == 2
    again.broker.find_topic("t").delete_channel("a")
    again.broker.validate()
    assert again.broker.find_topic("t").depth == 0


def test_a_failing_partition_does_not_affect_the_others(simulate: Start) -> None:
    world = simulate(durability="os")
    several(world, 2)
    world.fail("write", "topics/t/1/")
    assert [n for n in range(4) if world.publish("t", b"%d" % n).stored] == [0, 2]
    assert "t/1: " in world.broker.health
    world.broker.delete_topic("t")
    world.disk.faults.clear()
    assert world.broker.health == "OK"
