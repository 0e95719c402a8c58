"""Messages that a channel gives up on, and their way back."""

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from penstock import limits
from penstock.broker.channels.channel import Channel
from penstock.broker.channels.dead_letter import Origin, origin
from penstock.broker.channels.dead_letters import REDRIVE_CHANNEL
from penstock.broker.replicas.outbox import Outbox
from penstock.broker.topics.settings import ChannelSettings
from penstock.errors import NotFound, Refused
from penstock.log.messages import Message as Stored
from penstock.log.messages import MessageReader
from sim.clock import START_WALL_NS

from ..partition.test_leader import damage
from ..replicas.cluster_world import Cluster
from ..world import MESSAGE_TIMEOUT_NS, Consumer, Message, World

SECOND = limits.SECOND
DEAD = "t.ch.dead"


def give_up_after(world: World, attempts: int, **changes: Any) -> Channel:
    channel = world.broker.topic("t").channel("ch")
    channel.configure({"max_attempts": attempts, **changes})
    return channel


def one_that_is_given_up(start: Any, attempts: int = 1) -> tuple[World, Channel, Consumer]:
    """When it comes back so often: `x`, for a consumer."""
    world: World = start()
    channel = give_up_after(world, attempts)
    consumer = world.consumer("t", "ch")
    world.publish("t", b"x")
    return world, channel, consumer


def requeue_all(consumer: Consumer) -> list[Message]:
    given = consumer.take()
    for message in given:
        consumer.requeue(message)
    return given


def letters(world: World, topic: str = DEAD) -> list[Stored]:
    """All that a dead-letter topic holds."""
    log = world.broker.find_topic(topic).leader().log
    reader = MessageReader(log)
    return [reader.read(offset) for offset in range(log.start_offset, log.written_end)]


def test_an_outbox_with_the_tail_of_an_ended_leadership_is_no_leader(start: Any) -> None:
    """The leader's windows are still there, for the rest of the turn."""
    world, channel, consumer = one_that_is_given_up(start)
    leader = world.broker.topics["t"].leader()
    Outbox(leader.topic, 0, Mock(), leader.tail)
    assert channel.oldest_age_s is not None
    requeue_all(consumer)
    world.turns()
    assert [one.body for one in letters(world)] == [b"x"]


def test_a_message_that_has_used_its_attempts_becomes_a_dead_letter(world: World) -> None:
    channel = give_up_after(world, 2)
    consumer = world.consumer("t", "ch")
    world.publish("t", b"good", b"bad")
    good, bad = consumer.take()
    consumer.finish(good)
    consumer.requeue(bad)
    (again,) = consumer.take()
    assert (again.body, again.attempts) == (b"bad", 2)
    consumer.requeue(again)
    world.turns()
    assert consumer.take() == []
    (letter,) = letters(world)
    assert (letter.body, letter.id) == (b"bad", int(bad.id, 16))
    assert letter.timestamp_ns == START_WALL_NS
    found = origin(letter)
    assert found is not None
    assert found == Origin("t", "ch", 2, "requeued")
    assert (channel.dead_letter_count, channel.depth, channel.unfinished) == (1, 0, 0)
    assert channel.windows[0].low == channel.windows[0].next == 2
    assert world.broker.find_topic(DEAD).channels[REDRIVE_CHANNEL].depth == 1


def test_many_at_once_go_in_several_batches(world: World) -> None:
    channel = give_up_after(world, 1)
    consumer = world.consumer("t", "ch", rdy=2500)
    count = 2 * limits.DEAD_LETTERS_AT_ONCE + 3
    world.publish("t", *[b"%d" % n for n in range(count)])
    assert len(consumer.take()) == count
    world.clock.pass_ns(MESSAGE_TIMEOUT_NS)
    for _ in range(5):
        world.turn()
    assert [letter.body for letter in letters(world)] == [b"%d" % n for n in range(count)]
    assert (channel.dead_letter_count, channel.unfinished) == (count, 0)


def test_the_message_is_finished_once_the_dead_letter_is_stored(start: Any) -> None:
    world, channel, consumer = one_that_is_given_up(start)
    world.broker.topic(DEAD).channel(REDRIVE_CHANNEL)
    world.threads.held = True
    requeue_all(consumer)
    world.turns()
    assert (channel.windows[0].exhausted, channel.depth) == (1, 1)
    assert channel.windows[0].floor == 0
    world.threads.run()
    world.turns()
    assert (channel.windows[0].exhausted, channel.depth) == (0, 0)


def test_a_failed_publish_is_tried_again(start: Any) -> None:
    world, channel, consumer = one_that_is_given_up(start)
    dead = world.broker.topic(DEAD)
    dead.configure({"max_depth": 0})
    dead.refusal = "closed for a test"
    requeue_all(consumer)
    world.turns()
    assert (channel.windows[0].exhausted, channel.dead_letter_count) == (1, 0)
    assert "closed for a test" in world.broker.health
    world.pass_ns(SECOND)
    assert channel.windows[0].exhausted == 1
    dead.refresh_refusal()
    world.pass_ns(SECOND)
    world.turns()
    assert [letter.body for letter in letters(world)] == [b"x"]
    assert (channel.windows[0].exhausted, world.broker.health) == (0, "OK")
    assert consumer.take() == []


def test_messages_that_wait_no_more_are_no_trouble(start: Any) -> None:
    world, channel, consumer = one_that_is_given_up(start)
    world.broker.topic(DEAD).refusal = "closed for a test"
    requeue_all(consumer)
    world.turns()
    assert "closed for a test" in world.broker.health
    channel.empty()
    world.pass_ns(2 * SECOND)
    assert world.broker.health == "OK"


@pytest.mark.parametrize("again", [World.restart, World.killed])
def test_an_exhausted_message_stays_exhausted(start: Any, again: Callable[..., World]) -> None:
    world, _, consumer = one_that_is_given_up(start, 2)
    dead = world.broker.topic(DEAD)
    dead.refusal = "closed for a test"
    requeue_all(consumer)
    requeue_all(consumer)
    world.turns()
    world = again(world)
    channel = world.broker.find_topic("t").channels["ch"]
    assert channel.settings.max_attempts == 2
    consumer = world.consumer("t", "ch")
    world.turns()
    assert consumer.take() == []
    (letter,) = letters(world)
    assert letter.body == b"x"
    assert origin(letter) == Origin("t", "ch", 2, "")  # the journal does not say the cause
    assert b"cause" not in letter.headers
    assert channel.dead_letter_count == 1


def test_a_kill_before_the_finish_duplicates_the_dead_letter_at_worst(start: Any) -> None:
    world, _, consumer = one_that_is_given_up(start)
    world.broker.topic(DEAD).channel(REDRIVE_CHANNEL)
    world.threads.held = True
    requeue_all(consumer)
    world.turns()  # written, not synced, not finished
    world = world.killed()
    world.turns()
    assert [letter.body for letter in letters(world)] == [b"x", b"x"]
    (first, second) = world.consumer(DEAD, REDRIVE_CHANNEL).take()
    assert (first.body, second.body) == (b"x", b"x")
    assert first.id != second.id  # the second gave way


# --- settings ---


def test_a_name_that_would_be_too_long_is_refused(world: World) -> None:
    channel = world.broker.topic("t" * 40).channel("c" * 20)
    with pytest.raises(Refused, match="66 characters"):
        channel.configure({"max_attempts": 3})
    assert channel.settings.max_attempts == channel.windows[0].attempts_max == 0
    channel.configure({"max_attempts": 3, "dead_letter_topic": "short"})
    with pytest.raises(Refused, match="66 characters"):
        channel.configure({"dead_letter_topic": ""})
    assert channel.dead_letter_topic == "short"


@pytest.mark.parametrize("names", [("t", "ch#ephemeral"), ("t#ephemeral", "ch")])
def test_ephemeral_channels_have_no_dead_letters(names: tuple[str, str], world: World) -> None:
    channel = world.broker.topic(names[0]).channel(names[1])
    with pytest.raises(Refused, match="ephemeral"):
        channel.configure({"max_attempts": 3})


def test_a_message_whose_bytes_are_corrupt_makes_no_dead_letter(start: Any) -> None:
    world: World = start(tail_memory_bytes_max=0)
    channel = give_up_after(world, 1)
    consumer = world.consumer("t", "ch")
    for text in (b"sound", b"corrupt", b"sound too"):
        world.publish("t", text)
    given = consumer.take()
    damage(world, 1, "t")
    for message in given:
        consumer.requeue(message)
    world.pass_seconds(3)
    assert [letter.body for letter in letters(world)] == [b"sound", b"sound too"]
    assert "offsets 1 to 1 are corrupt" in world.broker.health
    assert (channel.windows[0].exhausted, channel.unfinished, channel.dead_letter_count) == (
        0,
        0,
        2,
    )


# --- A dead letter whose message is corrupt on a leader of several replicas ---


def test_the_dead_letter_is_made_after_a_repair(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    channel: Channel = node.topic.find_channel("billing")
    channel.adopt(ChannelSettings(max_attempts=1, dead_letter_topic="dead"))
    cluster.publish(0, b"poison")
    cluster.pass_ns(limits.SECOND)
    consumer = node.consume()
    (message,) = consumer.take()
    node.rot(b"poison")
    cluster.cut.update((1, 2))
    consumer.requeue(message)
    cluster.pass_seconds(2)
    assert (channel.windows[0].exhausted, channel.dead_letter_count) == (1, 0)
    assert "corrupt" in node.broker.health
    cluster.cut.clear()
    cluster.pass_seconds(2 * limits.REPAIR_PAUSE)
    assert (channel.windows[0].exhausted, channel.dead_letter_count) == (0, 1)
    assert node.broker.health == "OK"


def test_names_of_dead_letter_topics(world: World) -> None:
    channel = give_up_after(world, 1)
    assert channel.dead_letter_topic == DEAD
    for bad in ("no blank", "x" * 65, "t", "x#ephemeral"):
        with pytest.raises(Refused):
            channel.configure({"dead_letter_topic": bad})
    channel.configure({"dead_letter_topic": "elsewhere"})
    consumer = world.consumer("t", "ch")
    world.publish("t", b"x")
    requeue_all(consumer)
    world.turns()
    assert [letter.body for letter in letters(world, "elsewhere")] == [b"x"]
    with pytest.raises(NotFound):
        letters(world)
    assert world.killed().broker.topics["t"].channels["ch"].dead_letter_topic == "elsewhere"
