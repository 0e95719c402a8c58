"""Channels that are skipped: with one partition and with several."""

import json
from typing import Any

import pytest

from penstock import limits
from penstock.broker.channels.channel import Channel
from penstock.log.sealed import unseal

from ..world import Outcome, World, bodies

SECOND = limits.SECOND


@pytest.fixture(params=[1, 4])
def partitions(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


def channel_of(world: World) -> Channel:
    return world.broker.find_topic("t").find_channel("ch")


def skipped(world: World, partitions: int) -> Channel:
    channel = world.broker.topic("t", partitions).channel("ch")
    channel.skips.change(channel.skips.begun())
    return channel


def fill(world: World, *given: bytes) -> None:
    for body in given:
        assert world.publish("t", body).stored


@pytest.mark.parametrize("ending", ["restart", "killed"])
def test_it_is_kept(partitions: int, ending: str, world: World) -> None:
    skipped(world, partitions)
    fill(world, b"a")
    world = getattr(world, ending)()
    channel = channel_of(world)
    assert channel.skips.on
    consumer = world.consumer("t", "ch")
    fill(world, b"b", b"c")
    assert (consumer.take(), channel.depth) == ([], 0)
    channel.skips.change(channel.skips.ended())
    world = getattr(world, ending)()
    assert not channel_of(world).skips.on
    fill(world, b"d")
    assert bodies(world.consumer("t", "ch").take()) == [b"d"]


# --- one partition ---


def entry_of(world: World) -> dict[str, Any]:
    path = world.path / "topics" / "t" / "topic.json"
    (entry,) = json.loads(unseal(path.read_bytes()))["channels"]
    return dict(entry)


def publish_to(world: World, partition: int, *given: bytes) -> None:
    for body in given:
        outcome = Outcome()
        world.broker.find_topic("t").publish([body], 0, outcome, partition)
        world.turns()
        assert outcome.stored


@pytest.mark.parametrize("ending", ["restart", "killed"])
def test_one_partition_is_skipped_by_itself(ending: str, world: World) -> None:
    channel = world.broker.topic("t", 3).channel("ch")
    publish_to(world, 1, b"gone")
    channel.skips.change(channel.skips.begun(1))
    publish_to(world, 1, b"gone, too")
    publish_to(world, 2, b"stays")
    assert (channel.depth, channel.skips.count, channel.skips.on) == (1, 2, False)
    assert entry_of(world)["skipped_partitions"] == [1]
    world = getattr(world, ending)()
    channel = channel_of(world)
    consumer = world.consumer("t", "ch")
    assert bodies(consumer.take()) == [b"stays"]
    publish_to(world, 1, b"gone")
    assert consumer.take() == []
    channel.skips.change(channel.skips.ended(1))
    publish_to(world, 1, b"comes")
    assert bodies(consumer.take()) == [b"comes"]
    assert "skipped_partitions" not in entry_of(world)
    channel.validate()
