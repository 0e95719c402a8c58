"""Channels that keep an order: the setting, its life, and messages that hold it up."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import limits
from penstock.broker import byhand
from penstock.errors import Refused
from penstock.kernel import Order, Section

from .world import World

SECOND = limits.SECOND


@pytest.fixture
def world(start: Any) -> World:
    opened: World = start()
    return opened


def ordered(world: World, order: str, **settings: Any) -> Any:
    channel = world.broker.topic("t").channel("ch")
    channel.configure({"order": order, **settings})
    return channel


def say(world: World, words: str) -> None:
    """The first letter is the key."""
    tail = world.broker.topic("t").leader(0).tail
    for word in words.split():
        tail.append(word.encode(), 0, {Section.KEY: word[:1].encode()})
    world.turns()


def heard(consumer: Any) -> list[str]:
    return [message.body.decode() for message in consumer.take()]


def test_it_is_kept_over_a_restart(world: World) -> None:
    channel = ordered(world, "key")
    consumer = world.consumer("t", "ch")
    say(world, "a1 a2 b1 a3")
    first = consumer.take()
    assert [message.body for message in first] == [b"a1", b"b1"]
    consumer.finish(first[0])
    assert heard(consumer) == ["a2"]
    world = world.killed()
    channel = world.broker.find_topic("t").find_channel("ch")
    assert [window.order for window in channel.windows.values()] == [Order.KEY]
    consumer = world.consumer("t", "ch")
    say(world, "a4 c1")
    assert sorted(heard(consumer)) == ["a2", "b1", "c1"]
    channel.validate()


@pytest.mark.parametrize("order", ["key", "strict"])
def test_or_is_held_and_nothing_overtakes_it(world: World, order: str) -> None:
    channel = ordered(world, order, max_attempts=1, poison="hold")
    consumer = world.consumer("t", "ch")
    say(world, "a1 a2")
    (poison,) = consumer.take()
    consumer.requeue(poison)
    assert heard(consumer) == []
    assert (channel.held, channel.dead_letter_count) == (1, 0)
    place = f"id {poison.id.decode()} at offset 0 of partition 0"
    said = f"topic t: messages have used their attempts and are held: 1 in channel ch ({place})"
    assert world.broker.health == f"OK - warning: {said}"
    world = world.killed()
    channel = world.broker.find_topic("t").find_channel("ch")
    consumer = world.consumer("t", "ch")
    assert (heard(consumer), channel.held) == ([], 1)
    assert world.broker.healthy
    byhand.finish(channel, int(poison.id, 16))
    assert (heard(consumer), channel.held) == (["a2"], 0)
    world.pass_ns(SECOND)
    assert world.broker.health == "OK"


def test_an_ephemeral_channel_can_hold_what_it_cannot_bury(world: World) -> None:
    channel = world.broker.topic("t").channel("ch#ephemeral")
    with pytest.raises(Refused, match="no dead letters"):
        channel.configure({"max_attempts": 1})
    channel.configure({"max_attempts": 1, "poison": "hold"})
    with pytest.raises(Refused, match="no dead letters"):
        channel.configure({"poison": "dead_letter"})
