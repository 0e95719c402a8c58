"""Auto-ack: what was sent too often and is too old is finished. With one partition and several."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import limits

from .world import World

SECOND = limits.SECOND
HOUR = 3600 * SECOND
BOUNDS = {"auto_ack_attempts": 1, "auto_ack_age_ns": HOUR}


def worn(world: World, partitions: int = 1) -> Any:
    """A consumer that has each of four messages for the second time, an hour later."""
    world.broker.topic("t", partitions).channel("ch")
    consumer = world.consumer("t", "ch")
    for body in (b"a", b"b", b"c", b"d"):
        assert world.publish("t", body).stored
    first = consumer.take()
    consumer.ready(0)
    for message in first:
        consumer.requeue(message)
    world.clock.pass_ns(HOUR + 1)
    consumer.ready(100)
    assert [message.attempts for message in consumer.take()] == [2] * 4
    return consumer


def give_back(consumer: Any) -> None:
    held = consumer.received[-4:]
    consumer.ready(0)
    for message in held:
        consumer.requeue(message)
    consumer.ready(100)


@pytest.mark.parametrize("partitions", [1, 4])
def test_of_the_daemon(start: Any, partitions: int) -> None:
    world = start(message_timeout_max_ns=2 * HOUR, **BOUNDS)
    consumer = worn(world, partitions)
    give_back(consumer)
    channel = consumer.channel
    assert consumer.take() == []
    assert (channel.auto_ack_count, channel.unfinished) == (4, 0)
    world = world.killed()
    assert world.consumer("t", "ch").take() == []


def test_of_a_channel(start: Any) -> None:
    """It overrules the daemon's, and is kept."""
    world = start(**BOUNDS)
    channel = world.broker.topic("t").channel("ch")
    channel.configure({"auto_ack_attempts": 0})
    world = world.restart()
    consumer = worn(world)
    give_back(consumer)
    assert len(consumer.take()) == 4
    consumer.channel.configure({"auto_ack_attempts": None})
    give_back(consumer)
    assert consumer.take() == []


def test_one_bound_alone_is_off(start: Any) -> None:
    world = start(auto_ack_attempts=1)
    consumer = worn(world)
    give_back(consumer)
    assert len(consumer.take()) == 4
