"""One message of a channel, settled by an operator, and over restarts."""

from typing import Any

import pytest

from cases import ended
from penstock import limits
from penstock.broker.channels import operator
from penstock.broker.channels.channel import Channel
from penstock.errors import NotFound

from ..world import Start, World, bodies

SECOND = limits.SECOND


def three(world: World) -> list[int]:
    """In flight: the ids of three messages."""
    world.broker.topic("t").channel("ch")
    consumer = world.consumer("t", "ch")
    world.publish("t", b"a", b"b", b"c")
    return [int(message.id, 16) for message in consumer.take()]


@pytest.mark.parametrize("ending", ["restart", "killed"])
def test_the_command_survives_a_restart(ending: str, world: World) -> None:
    """Also when the daemon is killed right after the answer."""
    first, second, third = three(world)
    channel = world.channel("t", "ch")
    operator.finish(channel, first)
    operator.requeue(channel, second, 5 * SECOND, world.clock.wall_ns())
    operator.requeue(channel, third, 5 * SECOND, world.clock.wall_ns())
    operator.finish(channel, third)
    world = getattr(world, ending)()
    assert world.channel("t", "ch").delayed == 1
    consumer = world.consumer("t", "ch")
    assert consumer.take() == []
    operator.requeue(world.channel("t", "ch"), second, 0, world.clock.wall_ns())
    assert bodies(consumer.take()) == [b"b"]


def test_a_lost_leadership_ends_the_command(world: World) -> None:
    """A leadership may end while a walk through the log looks for the message."""
    ids = three(world)
    channel = world.channel("t", "ch")
    with pytest.raises(NotFound):
        operator.finish(channel, ids[0], [7])
    assert not operator.finish_ahead(channel, 7, 0)
    assert list(operator.finish_delayed(channel, [7])) == []


# --- what an operator does to all delayed messages of a channel at once ---


def scheduled(world: World, *after_s: int) -> Channel:
    """A channel to which a message is due after each of these seconds."""
    channel = world.broker.topic("news").channel("a")
    for seconds in after_s:
        due_ns = world.clock.wall_ns() + seconds * SECOND
        world.publish("news", b"after %d" % seconds, due_ns=due_ns)
    return channel


def test_only_delivered_messages_count_as_retried(world: World) -> None:
    channel = scheduled(world, 60)
    assert ended(operator.finish_retried(channel, [0])) == 0
    assert channel.delayed == 1


def test_deleting_the_channel_ends_the_command(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SETTLED_TOGETHER", 1)
    world = start()
    channel = scheduled(world, 60, 70)
    work = operator.finish_delayed(channel, [0])
    next(work)
    channel.topic.delete_channel("a")
    assert ended(work) == 1


# --- auto-ack ---


HOUR = 3600 * SECOND


def worn(world: World) -> Any:
    """A consumer that has each of four messages for the second time, an hour later."""
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


def test_of_a_channel(start: Any) -> None:
    """It overrules the daemon's, and is kept."""
    world = start(auto_ack_attempts=1, auto_ack_age_ns=HOUR)
    channel = world.broker.topic("t").channel("ch")
    channel.configure({"auto_ack_attempts": 0})
    world = world.restart()
    consumer = worn(world)
    give_back(consumer)
    assert len(consumer.take()) == 4
    consumer.channel.configure({"auto_ack_attempts": None})
    give_back(consumer)
    assert consumer.take() == []
