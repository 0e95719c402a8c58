"""What an operator does to all delayed messages of a channel at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import limits
from penstock.broker import delayed
from penstock.broker.channel import Channel

from .world import World, bodies

Start = Callable[..., World]
SECOND = limits.SECOND


def scheduled(world: World, *after_s: int) -> Channel:
    """A channel to which a message is due after each of these seconds."""
    channel = world.broker.topic("news").channel("a")
    for seconds in after_s:
        due_ns = world.clock.wall_ns() + seconds * SECOND
        world.publish("news", b"after %d" % seconds, due_ns=due_ns)
    return channel


def settle(work: delayed.Work) -> int:
    """To its end. What stops it returns how many were settled."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            return int(stop.value)


def test_all_are_finished(start: Start) -> None:
    world = start()
    channel = scheduled(world, 60, 70)
    assert settle(delayed.finish(channel, [0])) == 2
    world.pass_ns(100 * SECOND)
    assert (channel.depth, channel.delayed) == (0, 0)


def test_those_that_are_due_by_then_are_sent_now(start: Start) -> None:
    world = start()
    channel = scheduled(world, 60, 70, 80)
    consumer = world.consumer("news", "a")
    until_ns = world.clock.wall_ns() + 75 * SECOND
    assert settle(delayed.release(channel, [0], until_ns)) == 2
    world.turns()
    assert sorted(bodies(consumer.take())) == [b"after 60", b"after 70"]
    assert channel.delayed == 1


def test_only_what_a_consumer_has_had_counts_as_retried(start: Start) -> None:
    world = start()
    channel = scheduled(world, 60)
    assert settle(delayed.finish_retried(channel, [0])) == 0
    assert channel.delayed == 1


def test_a_channel_that_is_deleted_meanwhile_ends_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SETTLED_TOGETHER", 1)
    world = start()
    channel = scheduled(world, 60, 70)
    work = delayed.finish(channel, [0])
    next(work)
    channel.topic.delete_channel("a")
    assert settle(work) == 1
