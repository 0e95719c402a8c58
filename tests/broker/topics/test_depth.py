"""The bound on what a topic may hold, by both ways of publishing, and how room comes back."""

from typing import Any

import pytest

from penstock import limits
from penstock.errors import Refused
from penstock.kernel import Event

from ..world import Outcome, Start, World

SECOND = limits.SECOND


def test_pipelined_publishes_stop_exactly_at_the_bound(start: Start) -> None:
    world = start(max_depth=5)
    topic = world.broker.topic("t")
    conn = world.engine.open_detached()
    conn.feed(b"  V2" + b"PUB t\n\0\0\0\1x" * 9)
    world.turns()
    assert (topic.depth, conn.take_output().count(b"OK")) == (5, 5)
    (refused,) = [event for event in world.events if event[0] == Event.REFUSED]
    assert topic.refusal_of(refused[4]) == "topic depth limit of 5 messages is reached"


def test_http_and_a_list_are_taken_whole_or_not_at_all(start: Start) -> None:
    world = start(max_depth=5)
    assert world.publish("t", b"1", b"2", b"3").stored
    topic = world.broker.find_topic("t")
    with pytest.raises(Refused, match="limit of 5 messages is reached: 3 are more than the 2 left"):
        topic.publish([b"4", b"5", b"6"], 0, Outcome())
    assert world.publish("t", b"4", b"5").stored
    with pytest.raises(Refused, match=r"^topic depth limit of 5 messages is reached$"):
        topic.publish([b"6"], 0, Outcome())
    assert topic.depth == 5


def test_the_channel_that_has_most_to_do_counts(start: Start) -> None:
    world = start(max_depth=3)
    fast, slow = world.consumer("t", "fast"), world.consumer("t", "slow", rdy=1)
    world.publish("t", b"1", b"2", b"3")
    fast.finish(*fast.take())
    topic = world.broker.find_topic("t")
    with pytest.raises(Refused):
        topic.publish([b"4"], 0, Outcome())
    slow.finish(*slow.take())
    assert world.publish("t", b"4").stored
    topic.delete_channel("slow")
    assert world.publish("t", b"5", b"6").stored


@pytest.mark.parametrize("how", ["requeued", "delayed", "DPUB"])
def test_a_delayed_message_counts_as_one(start: Start, how: str) -> None:
    """One that waits for an hour does not make all that came after it count."""
    world = start(max_depth=3)
    consumer = world.consumer("t", "c")
    if how == "DPUB":
        world.publish("t", b"late", due_ns=world.clock.wall_ns() + 3600 * SECOND)
    else:
        world.publish("t", b"late")
        consumer.ready(1)
        (message,) = consumer.take()
        consumer.ready(0)
        consumer.requeue(message, 3600 * SECOND if how == "delayed" else 0)
        if how == "requeued":
            consumer.channel.set_paused(True)
    consumer.ready(100)
    for number in range(20 if how != "requeued" else 0):
        assert world.publish("t", b"%d" % number, b"and").stored
        consumer.finish(*consumer.take())
    assert world.publish("t", b"1", b"2").stored
    with pytest.raises(Refused):
        world.broker.find_topic("t").publish([b"3"], 0, Outcome())


# --- how fast a channel is sent: with one partition and with several ---


BODY = b"x" * 66  # a frame of 100 bytes
ALL = 400


def limited(world: World, partitions: int, bytes_per_second: int) -> Any:
    """A consumer, and a backlog that is even over the partitions."""
    channel = world.broker.topic("t", partitions).channel("ch")
    channel.rate.set(bytes_per_second, world.clock.mono_ns())
    for _ in range(ALL):
        world.broker.find_topic("t").publish([BODY], 0, lambda error: None)
        world.turn()
    return world.consumer("t", "ch", rdy=1)


def take(world: World, consumer: Any) -> int:
    """What it gets while it finishes each at once."""
    count = 0
    while taken := consumer.take():
        count += len(taken)
        consumer.finish(*taken)
    return count


def test_the_rate_in_bytes_a_second(partitions: int, world: World) -> None:
    consumer = limited(world, partitions, 1_000)
    assert 10 <= take(world, consumer) <= 10 + partitions
    total = 0
    for _ in range(10):
        world.pass_ns(SECOND)
        total += take(world, consumer)
    assert 100 - partitions <= total <= 100 + partitions


# --- whether there is room for so many bytes, at this moment ---


def test_an_unknown_free_space_refuses_publishes(simulate: Start) -> None:
    world = simulate()
    world.fail("free_bytes", "")
    words = "cannot determine free disk space: [Errno 5]"
    assert world.broker.context.room_refusal(1).startswith(words)
    world.pass_ns(1_000_000_000)
    assert words in world.broker.health
    assert world.broker.context.room_refusal(1).startswith(words)
    world.disk.faults.clear()
    world.pass_ns(1_000_000_000)
    assert world.broker.health == "OK"
    assert world.broker.context.room_refusal(1) == ""
