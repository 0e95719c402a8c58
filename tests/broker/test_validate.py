"""`validate()` finds what it is there for: each breach is made by hand, and named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.broker.topic import Topic

from .world import World

Start = Callable[..., World]


def misfiled(world: World, topic: Topic) -> None:
    world.broker.topics["other"] = topic


def ids_below_a_log(world: World, topic: Topic) -> None:
    world.broker._context.ids.last_id = topic.leader().log.last_id - 1


def tail_beyond_the_log(world: World, topic: Topic) -> None:
    topic.leader().log.written_end -= 1
    topic.leader().log._reader.end_offset -= 1
    topic.leader().log.synced_end -= 1


def sealed_for_nobody(world: World, topic: Topic) -> None:
    topic.leader().group.publish([b"x"], 0, lambda error: None)
    topic.leader().tail.seal(1 << 62, world.clock.wall_ns(), 0)


def window_of_another(world: World, topic: Topic) -> None:
    topic.channels["a"].windows[0], topic.channels["b"].windows[0] = (
        topic.channels["b"].windows[0],
        topic.channels["a"].windows[0],
    )


def deleted_with_consumers(world: World, topic: Topic) -> None:
    channel = world.consumer("t", "a").channel
    channel.deleted = True


def unknown_to_its_topic(world: World, topic: Topic) -> None:
    topic.channels["c"] = topic.channels["a"]
    del topic.channels["a"]


def one_number_twice(world: World, topic: Topic) -> None:
    topic.channels["a"].number = topic.channels["b"].number


def number_given_out_again(world: World, topic: Topic) -> None:
    topic.channel_number_next = topic.channels["b"].number


def not_handing(world: World, topic: Topic) -> None:
    topic.leader().tail.handing = False


@pytest.mark.parametrize(
    ("breach", "named"),
    [
        (misfiled, "topic t is listed as other"),
        (ids_below_a_log, "is above the last one given out"),
        (tail_beyond_the_log, "the log at"),
        (sealed_for_nobody, "sealed batches are not the row in flight"),
        (window_of_another, "a window belongs to another"),
        (deleted_with_consumers, "deleted, but has consumers"),
        (unknown_to_its_topic, "its topic does not know it"),
        (one_number_twice, "two channels share a number"),
        (number_given_out_again, "a channel number could be given out twice"),
        (not_handing, "t: handing is False"),
    ],
)
def test_a_breach_is_found(
    start: Start, breach: Callable[[World, Topic], None], named: str
) -> None:
    world = start()
    topic = world.broker.topic("t")
    for name in ("a", "b"):
        topic.channel(name)
    world.publish("t", b"x")
    world.broker.validate()
    before = dict(world.broker.topics)
    breach(world, topic)
    with pytest.raises(RuntimeError, match=named):
        world.broker.validate()
    world.broker.topics.clear()
    world.broker.topics.update({n: t for n, t in before.items() if n != "t"})
    topic.close_partitions()
    topic.close_cursors()
