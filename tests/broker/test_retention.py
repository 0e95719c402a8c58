"""Nothing that somebody still wants is deleted; what nobody wants goes by age and size."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import limits
from penstock.broker import broker

from .world import World, bodies

Start = Callable[..., World]
SEGMENT = 4096
BODY = bytes(500)


def fill(world: World, count: int = 40) -> None:
    for _ in range(count):
        world.publish("news", BODY)


def stored(world: World) -> int:
    return world.broker.find_topic("news").partition.log.start_offset


def housekeep(world: World) -> None:
    world.pass_ns(limits.SECOND)


def test_a_backlog_without_a_channel_stays(start: Start) -> None:
    world = start(segment_bytes_max=SEGMENT, retain_age_ns=0, retain_bytes=0)
    fill(world)
    housekeep(world)
    assert stored(world) == 0
    assert len(world.consumer("news", "a").take()) == 40


def test_what_every_channel_has_finished_goes(start: Start) -> None:
    world = start(segment_bytes_max=SEGMENT, retain_age_ns=0, retain_bytes=0)
    fast, slow = world.consumer("news", "fast"), world.consumer("news", "slow")
    fill(world)
    fast.finish(*fast.take())
    housekeep(world)
    assert stored(world) == 0
    got = slow.take()
    slow.finish(*got[:20])
    housekeep(world)
    assert 0 < stored(world) <= 20
    slow.finish(*got[20:])
    housekeep(world)
    assert stored(world) > 20


def test_a_delayed_message_keeps_its_segment(start: Start) -> None:
    world = start(segment_bytes_max=SEGMENT, retain_age_ns=0, retain_bytes=0)
    consumer = world.consumer("news", "a")
    fill(world, 5)
    world.publish("news", b"later", due_ns=world.clock.wall_ns() + 3600 * limits.SECOND)
    fill(world, 30)
    consumer.finish(*consumer.take())
    housekeep(world)
    assert 0 <= stored(world) <= 5
    world = world.killed()
    world.clock.pass_ns(3600 * limits.SECOND)
    consumer = world.consumer("news", "a")
    (late,) = consumer.take()
    assert late.body == b"later"
    consumer.finish(late)
    housekeep(world)
    assert stored(world) > 5


def test_consumed_data_is_kept_for_its_age(start: Start) -> None:
    world = start(segment_bytes_max=SEGMENT, retain_age_ns=3600 * limits.SECOND)
    consumer = world.consumer("news", "a")
    fill(world)
    consumer.finish(*consumer.take())
    housekeep(world)
    assert stored(world) == 0
    world.clock.pass_ns(3600 * limits.SECOND)
    housekeep(world)
    assert stored(world) > 0


def test_a_paused_topic_keeps_what_it_has_not_handed_over(start: Start) -> None:
    world = start(segment_bytes_max=SEGMENT, retain_age_ns=0, retain_bytes=0)
    consumer = world.consumer("news", "a")
    world.broker.find_topic("news").pause()
    fill(world)
    housekeep(world)
    assert stored(world) == 0
    world.broker.find_topic("news").unpause()
    assert len(consumer.take()) == 40


def test_an_ephemeral_topic_does_not_fill_the_disk(start: Start) -> None:
    world = start(segment_bytes_max=SEGMENT, mem_queue_size=2, retain_age_ns=0, retain_bytes=0)
    for _ in range(40):
        world.publish("live#ephemeral", BODY)
    housekeep(world)
    housekeep(world)
    topic = world.broker.find_topic("live#ephemeral")
    assert topic.partition.log.start_offset > 20
    assert bodies(world.consumer("live#ephemeral", "a").take()) == [BODY, BODY]


def test_a_channel_behind_the_start_of_the_log_goes_on_from_there(start: Start) -> None:
    """Its journal may be older than what retention has let go of: a power loss does that."""
    world = start(segment_bytes_max=SEGMENT, retain_age_ns=0, retain_bytes=0)
    consumer = world.consumer("news", "a")
    journal = world.path / "topics" / "news" / "0" / "channels.0"
    old = journal.read_bytes()
    fill(world)
    got = consumer.take()
    consumer.finish(*got)
    housekeep(world)
    first = stored(world)
    assert first > 0
    journal.write_bytes(old)
    world = world.killed()
    assert len(world.consumer("news", "a").take()) == 40 - first


def test_many_topics_all_get_their_turn(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "RETAIN_TOPICS_MIN", 4)
    world = start(segment_bytes_max=SEGMENT, retain_age_ns=0, retain_bytes=0, durability="os")
    names = [f"t{number}" for number in range(11)]
    for name in names:
        consumer = world.consumer(name, "a")
        for _ in range(9):
            world.broker.topic(name).publish([BODY], 0, lambda error: None)
            world.broker.write(world.engine.dirty_tails())
        world.turn()
        consumer.finish(*consumer.take())
    for _ in range(6):  # twice round: the log is synced after two seconds
        housekeep(world)
    assert all(world.broker.topics[name].partition.log.start_offset > 0 for name in names)
