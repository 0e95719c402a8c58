"""What a channel promises, told as stories."""

import pytest

from penstock import limits
from penstock.errors import Refused

from ..world import Start, World, bodies


def test_a_limit_on_consumers(world: World) -> None:
    consumer = world.consumer("news", "a")
    with pytest.raises(Refused) as caught:
        consumer.channel.subscribe(world.engine.open_detached(), consumers_max=1)
    assert caught.value.reason == "consumers for news:a exceeds limit of 1"
    consumer.leave()
    consumer.channel.subscribe(world.engine.open_detached(), consumers_max=1)


def test_what_an_ephemeral_channel_had_does_not_come_back_to_the_topic(world: World) -> None:
    consumer = world.consumer("news", "a#ephemeral")
    world.publish("news", b"1")
    consumer.finish(*consumer.take())
    world.pass_ns(limits.SECOND)
    world = world.killed()
    assert world.broker.find_topic("news").depth == 0


def test_an_ephemeral_channel_drops_what_is_too_much(start: Start) -> None:
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
