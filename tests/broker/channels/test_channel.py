"""What a channel promises, told as stories."""

import json
from typing import Any

import pytest

from penstock import limits
from penstock.broker.channels.channel import Channel
from penstock.broker.channels.skips import ANY
from penstock.errors import Refused
from penstock.log.seal import unseal

from ..topics.test_partitions import fill
from ..world import Outcome, Start, World, bodies


def test_a_limit_on_consumers(world: World) -> None:
    consumer = world.consumer("news", "a")
    with pytest.raises(Refused) as caught:
        consumer.channel.subscribe(world.engine.open_detached(), consumers_max=1)
    assert caught.value.reason == "consumers for news:a exceeds limit of 1"
    consumer.leave()
    consumer.channel.subscribe(world.engine.open_detached(), consumers_max=1)


def test_messages_of_an_ephemeral_channel_do_not_return_to_the_topic(world: World) -> None:
    consumer = world.consumer("news", "a#ephemeral")
    world.publish("news", b"1")
    consumer.finish(*consumer.take())
    world.pass_ns(limits.SECOND)
    world = world.killed()
    assert world.broker.find_topic("news").depth == 0


def test_an_ephemeral_channel_drops_messages_beyond_its_bound(start: Start) -> None:
    world = start(mem_queue_size=3)
    consumer = world.consumer("news", "a#ephemeral", rdy=0)
    kept = world.consumer("news", "b", rdy=0)
    for number in range(5):
        world.publish("news", b"%d" % number)
    assert consumer.channel.depth == 3
    assert kept.channel.depth == 5
    consumer.ready(10)
    assert bodies(consumer.take()) == [b"0", b"1", b"2"]
    world.publish("news", b"5")
    assert bodies(consumer.take()) == [b"5"]


def test_a_channel_made_again_does_not_inherit(world: World) -> None:
    consumer = world.consumer("news", "a")
    other = world.consumer("news", "b")
    world.publish("news", b"1")
    consumer.take()
    world.broker.find_topic("news").delete_channel("a")
    again = world.consumer("news", "a")
    assert again.take() == []
    world.publish("news", b"2")
    assert bodies(again.take()) == [b"2"]
    assert bodies(other.take()) == [b"1", b"2"]
    world = world.killed()
    assert bodies(world.consumer("news", "a").take()) == [b"2"]


def test_a_consumer_of_a_deleted_channel_is_refused(world: World) -> None:
    channel = world.broker.topic("news").channel("a")
    world.broker.find_topic("news").delete_channel("a")
    with pytest.raises(Refused):
        channel.subscribe(world.engine.open_detached())


# --- channels that are skipped: with one partition and with several ---


def skipped(world: World, partitions: int) -> Channel:
    channel = world.broker.topic("t", partitions).channel("ch")
    channel.skips.change(channel.skips.state.begun(ANY, partitions))
    return channel


@pytest.mark.parametrize("ending", ["restart", "killed"])
def test_a_skip_is_kept(partitions: int, ending: str, world: World) -> None:
    skipped(world, partitions)
    fill(world, b"a")
    world = getattr(world, ending)()
    channel = world.channel("t", "ch")
    assert channel.skips.state.whole
    consumer = world.consumer("t", "ch")
    fill(world, b"b", b"c")
    assert (consumer.take(), channel.depth) == ([], 0)
    channel.skips.change(channel.skips.state.ended(ANY, partitions))
    world = getattr(world, ending)()
    assert not world.channel("t", "ch").skips.state.whole
    fill(world, b"d")
    assert bodies(world.consumer("t", "ch").take()) == [b"d"]


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
    channel.skips.change(channel.skips.state.begun(1, 3))
    publish_to(world, 1, b"gone, too")
    publish_to(world, 2, b"stays")
    assert (channel.depth, channel.skips.count, channel.skips.state.whole) == (1, 2, False)
    assert entry_of(world)["skipped_partitions"] == [1]
    world = getattr(world, ending)()
    channel = world.channel("t", "ch")
    consumer = world.consumer("t", "ch")
    assert bodies(consumer.take()) == [b"stays"]
    publish_to(world, 1, b"gone")
    assert consumer.take() == []
    channel.skips.change(channel.skips.state.ended(1, 3))
    publish_to(world, 1, b"comes")
    assert bodies(consumer.take()) == [b"comes"]
    assert "skipped_partitions" not in entry_of(world)
    channel.validate()
