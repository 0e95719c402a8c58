"""Dead letters on their way back to their channel."""

import errno
from typing import Any

import pytest

from penstock import limits
from penstock.broker.channels.channel import Channel
from penstock.broker.channels.dead_letter import origin
from penstock.broker.channels.dead_letters import REDRIVE_CHANNEL
from penstock.broker.partition.appends import Content
from penstock.errors import PenstockError, Refused
from penstock.kernel import Section
from sim.clock import START_WALL_NS

from ..partition.test_leader import damage
from ..topics.test_partitions import stored
from ..world import Consumer, World, bodies
from .test_dead_letters import DEAD, SECOND, give_up_after, letters, requeue_all


class Redriven:
    def __init__(self, world: World, channel: Channel) -> None:
        self.answers: list[tuple[int, PenstockError | None]] = []
        world.broker.dead_letters.redrive(channel, 0, lambda *answers: self.answers.append(answers))
        for _ in range(5):
            world.turn()


def redriven(world: World, channel: Channel) -> int:
    ((number, error),) = Redriven(world, channel).answers
    assert error is None
    return number


def dead_letters(world: World, *sent: bytes, **changes: Any) -> Consumer:
    """Each of `sent` has become a dead letter of the channel; its consumer is returned."""
    consumer = world.consumer("t", "ch")
    consumer.channel.configure({"max_attempts": 1, **changes})
    world.publish("t", *sent)
    requeue_all(consumer)
    world.turns()
    return consumer


def test_a_redrive_brings_all_back_to_that_channel_only(world: World) -> None:
    other = world.consumer("t", "other")
    consumer = dead_letters(world, b"a", b"b", b"c")
    before = {message.body: message for message in consumer.received}
    other.finish(*other.take())
    channel = consumer.channel
    assert redriven(world, channel) == 3
    got = consumer.take()
    assert {message.body: message for message in got} == before  # also ids; attempts anew
    assert other.take() == []
    others = other.channel.windows[0]
    assert (others.depth, others.low) == (0, 6)
    assert redriven(world, channel) == 0
    consumer.finish(*got)
    assert channel.unfinished == 0
    assert letters(world)[0].timestamp_ns == START_WALL_NS


def test_a_redrive_is_as_safe_as_a_publish(world: World) -> None:
    consumer = dead_letters(world, b"x")
    world.threads.held = True
    redrive = Redriven(world, consumer.channel)
    assert (redrive.answers, consumer.take()) == ([], [])
    with pytest.raises(Refused, match="under way"):
        Redriven(world, consumer.channel)
    world.threads.run()
    world.turns()
    assert redrive.answers == [(1, None)]
    assert bodies(consumer.take()) == [b"x"]


def test_other_channels_skip_redriven_messages_after_a_restart_too(world: World) -> None:
    consumer = dead_letters(world, b"x")
    other = world.broker.topic("t").channel("other")  # made later: it has seen nothing
    consumer.leave()
    assert redriven(world, consumer.channel) == 1
    assert other.depth == 0
    world = world.killed()
    assert world.consumer("t", "other").take() == []
    assert bodies(world.consumer("t", "ch").take()) == [b"x"]
    assert world.broker.find_topic(DEAD).channels[REDRIVE_CHANNEL].depth == 0


def test_a_redrive_out_of_a_channel_that_is_deleted_meanwhile(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was published is published, and no more follows."""
    monkeypatch.setattr(limits, "DEAD_LETTERS_AT_ONCE", 1)
    world: World = start()
    consumer = dead_letters(world, b"x", b"y")
    world.threads.held = True
    redrive = Redriven(world, consumer.channel)
    world.broker.find_topic(DEAD).delete_channel(REDRIVE_CHANNEL)
    world.release()
    ((count, error),) = redrive.answers
    assert (count, str(error)) == (1, "the channel was deleted")
    assert bodies(consumer.take()) == [b"x"]


def test_a_redrive_whose_publish_fails_keeps_the_dead_letters(world: World) -> None:
    consumer = dead_letters(world, b"x")
    world.threads.error = OSError(errno.EIO, "the disk is gone")
    ((count, error),) = Redriven(world, consumer.channel).answers
    assert count == 0
    assert "the disk is gone" in str(error)
    assert world.broker.find_topic(DEAD).channels[REDRIVE_CHANNEL].depth == 1


def test_a_long_search_goes_on_in_the_next_second(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    consumer = dead_letters(world, b"ours", dead_letter_topic="dead")
    other = world.broker.topic("t").channel("two")
    other.configure({"max_attempts": 1, "dead_letter_topic": "dead"})
    two = world.consumer("t", "two")
    world.publish("t", *[b"%d" % n for n in range(25)])
    requeue_all(two)
    world.turns()
    world.publish("t", b"last")
    requeue_all(two)
    world.turns()
    assert len(letters(world, "dead")) == 27
    monkeypatch.setattr(limits, "REDRIVE_LOOKED_AT", 10)
    answers: list[tuple[int, PenstockError | None]] = []
    wanted = letters(world, "dead")[-1].id
    world.broker.dead_letters.redrive(other, 0, lambda *args: answers.append(args), wanted)
    consumer.leave()
    for looked_at in (10, 20):
        assert answers == [], looked_at
        world.pass_ns(SECOND)
    world.pass_ns(SECOND)
    assert answers == [(1, None)]
    assert bodies(two.take()) == [b"last"]


def test_corrupt_dead_letters_are_stepped_over(start: Any) -> None:
    world: World = start(tail_memory_bytes_max=0)
    consumer = dead_letters(world, b"a")
    for text in (b"b", b"c"):
        world.publish("t", text)
        requeue_all(consumer)
        world.turns()
    damage(world, 1, DEAD)
    waiting = world.broker.dead_letters.waiting(consumer.channel, 10)
    assert [letter.stored.body for letter in waiting] == [b"a", b"c"]
    assert redriven(world, consumer.channel) == 2
    assert bodies(consumer.take()) == [b"a", b"c"]
    assert "offsets 1 to 1 are corrupt" in world.broker.health


@pytest.mark.parametrize(
    ("headers", "back"),
    [(b'{"trace":"abc"}', b'{"trace":"abc"}'), (b"no JSON", b""), (b"[1]", b""), (b"{}", b"")],
)
def test_headers_of_its_own_come_back_without_the_origin(
    headers: bytes, back: bytes, world: World
) -> None:
    channel = give_up_after(world, 1)
    consumer = world.consumer("t", "ch")
    letter = Content(b"x", {Section.HEADERS: headers, Section.KEY: b"k"})
    world.broker.find_topic("t").publish_dead_letters([letter], lambda error, position: None)
    world.turns()
    requeue_all(consumer)
    world.turns()
    (dead,) = letters(world)
    assert origin(dead) is not None
    assert back[1:-1] in dead.headers
    assert redriven(world, channel) == 1
    found = [(one.headers, one.sections[Section.KEY]) for one in letters(world, "t")]
    assert found == [(headers, b"k"), (back, b"k")]


def test_a_redriven_message_goes_to_the_partition_of_its_key(world: World) -> None:
    topic = world.broker.topic("t", 4)
    consumer = world.consumer("t", "ch")
    consumer.channel.configure({"max_attempts": 1})
    for key in (b"a", b"b", b"c", b"d") * 2:
        letter = Content(key, {Section.KEY: key})
        topic.publish_located([letter], 0, print, topic.partition_of_key(key))
    world.turns()
    requeue_all(consumer)
    world.turns()
    assert redriven(world, consumer.channel) == 8
    for number, found in enumerate(stored(topic)):
        assert {topic.partition_of_key(body) for body in found} <= {number}
