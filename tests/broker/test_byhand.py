"""One message of a channel, settled by an operator, and over restarts."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import limits
from penstock.broker import byhand, delayed
from penstock.broker.channel import Channel
from penstock.errors import NotFound

from .world import World, bodies

SECOND = limits.SECOND


def channel_of(world: World) -> Channel:
    return world.broker.find_topic("t").find_channel("ch")


def three(world: World) -> list[int]:
    """In flight: the ids of three messages."""
    world.broker.topic("t").channel("ch")
    consumer = world.consumer("t", "ch")
    world.publish("t", b"a", b"b", b"c")
    return [int(message.id, 16) for message in consumer.take()]


@pytest.mark.parametrize("ending", ["restart", "killed"])
def test_it_is_kept(start: Any, ending: str) -> None:
    """Also when the daemon is killed right after the answer."""
    world = start()
    first, second, third = three(world)
    channel = channel_of(world)
    byhand.finish(channel, first)
    byhand.requeue(channel, second, 5 * SECOND, world.clock.wall_ns())
    byhand.requeue(channel, third, 5 * SECOND, world.clock.wall_ns())
    byhand.finish(channel, third)
    world = getattr(world, ending)()
    assert channel_of(world).delayed == 1
    consumer = world.consumer("t", "ch")
    assert consumer.take() == []
    byhand.requeue(channel_of(world), second, 0, world.clock.wall_ns())
    assert bodies(consumer.take()) == [b"b"]


def test_what_is_not_there_is_not_found(start: Any) -> None:
    world = start()
    first, *_ = three(world)
    channel = channel_of(world)
    byhand.finish(channel, first)
    for id in (first, 12345):
        with pytest.raises(NotFound):
            byhand.finish(channel, id)
        with pytest.raises(NotFound):
            byhand.requeue(channel, id, 0, world.clock.wall_ns())
    assert (channel.windows[0].finish_count, channel.requeue_count) == (1, 0)


def test_a_requeue_of_the_last_attempt_makes_a_dead_letter(start: Any) -> None:
    world = start()
    first, *_ = three(world)
    channel = channel_of(world)
    channel.configure({"max_attempts": 1})
    byhand.requeue(channel, first, 0, world.clock.wall_ns())
    world.turns()
    world.turns()
    assert channel.dead_letter_count == 1


def test_a_partition_that_is_led_here_no_more_has_nothing_to_settle(start: Any) -> None:
    """An office may end while a walk through the log looks for the message."""
    world = start()
    ids = three(world)
    channel = channel_of(world)
    with pytest.raises(NotFound):
        byhand.finish(channel, ids[0], [7])
    assert not byhand.finish_ahead(channel, 7, 0)
    assert list(delayed.finish(channel, [7])) == []
