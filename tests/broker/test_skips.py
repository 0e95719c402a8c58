"""Channels that are skipped: on both kernels, with one partition and with several."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import limits
from penstock.broker.channel import Channel
from penstock.errors import StorageError
from penstock.log.sealed import unseal
from penstock.trace.events import Kind

from .faults import FaultyDisk
from .test_trace import events
from .world import MESSAGE_TIMEOUT_NS, Outcome, World, bodies

SECOND = limits.SECOND


@pytest.fixture(params=[1, 4])
def partitions(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


def channel_of(world: World) -> Channel:
    return world.broker.find_topic("t").find_channel("ch")


def skipped(world: World, partitions: int) -> Channel:
    channel = world.broker.topic("t", partitions).channel("ch")
    channel.skips.change(channel.skips.begun())
    return channel


def fill(world: World, *given: bytes) -> None:
    for body in given:
        assert world.publish("t", body).stored


def test_nothing_is_delivered_and_the_cursor_follows(start: Any, partitions: int) -> None:
    world = start()
    world.broker.topic("t", partitions).channel("ch")
    fill(world, b"backlog", b"two")
    channel = skipped(world, partitions)
    consumer = world.consumer("t", "ch")
    fill(world, b"a", b"b", b"c", b"d")
    assert (consumer.take(), channel.depth, channel.unfinished) == ([], 0, 0)
    assert (channel.skips.count, channel.expired_count) == (6, 0)
    world.pass_ns(SECOND)
    for leader in channel.topic.leaders:
        assert (
            channel.windows[leader.number].floor == leader.tail.committed_end
        )  # retention goes on
    channel.skips.change(channel.skips.ended())
    fill(world, b"e")
    assert bodies(consumer.take()) == [b"e"]
    assert channel.skips.count == 6


def test_what_is_delayed_or_waits_is_dropped(start: Any, partitions: int) -> None:
    world = start()
    world.broker.topic("t", partitions).channel("ch")
    consumer = world.consumer("t", "ch")
    fill(world, b"a", b"b")
    now, later = consumer.take()
    consumer.requeue(later, 60 * SECOND)
    consumer.ready(0)
    consumer.requeue(now)
    world.publish("t", b"c", due_ns=world.clock.wall_ns() + 60 * SECOND)
    channel = skipped(world, partitions)
    assert (channel.depth, channel.delayed) == (0, 0)
    world.publish("t", b"d", due_ns=world.clock.wall_ns() + 60 * SECOND)
    world.pass_ns(SECOND)
    assert channel.delayed == 0
    channel.skips.change(channel.skips.ended())
    consumer.ready(100)
    world.pass_ns(60 * SECOND)
    assert consumer.take() == []


def test_what_is_in_flight_may_be_finished_and_does_not_come_again(start: Any) -> None:
    world = start()
    world.broker.topic("t").channel("ch")
    consumer = world.consumer("t", "ch")
    fill(world, b"a", b"b")
    first, _ = consumer.take()
    channel = skipped(world, 1)
    assert channel.in_flight == 2
    consumer.finish(first)
    assert channel.finish_count == 1
    world.pass_ns(MESSAGE_TIMEOUT_NS)
    assert (channel.in_flight, channel.unfinished) == (0, 0)
    channel.skips.change(channel.skips.ended())
    assert (consumer.take(), channel.timeout_count) == ([], 1)


@pytest.mark.parametrize("ending", ["restart", "killed"])
def test_it_is_kept(start: Any, partitions: int, ending: str) -> None:
    world = start()
    skipped(world, partitions)
    fill(world, b"a")
    world = getattr(world, ending)()
    channel = channel_of(world)
    assert channel.skips.on
    consumer = world.consumer("t", "ch")
    fill(world, b"b", b"c")
    assert (consumer.take(), channel.depth) == ([], 0)
    channel.skips.change(channel.skips.ended())
    world = getattr(world, ending)()
    assert not channel_of(world).skips.on
    fill(world, b"d")
    assert bodies(world.consumer("t", "ch").take()) == [b"d"]


def test_a_channel_that_is_not_skipped_has_the_entry_of_before(start: Any) -> None:
    world = start()
    channel = skipped(world, 1)
    path = world.path / "topics" / "t" / "topic.json"
    (entry,) = json.loads(unseal(path.read_bytes()))["channels"]
    assert entry["skipped"] is True
    channel.skips.change(channel.skips.ended())
    (entry,) = json.loads(unseal(path.read_bytes()))["channels"]
    assert "skipped" not in entry


def test_paused_and_skipped_are_two_things(start: Any) -> None:
    world = start()
    channel = skipped(world, 1)
    consumer = world.consumer("t", "ch")
    channel.pause()
    channel.skips.change(channel.skips.ended())
    fill(world, b"a")
    assert (consumer.take(), channel.depth) == ([], 1)
    channel.skips.change(channel.skips.begun())
    channel.unpause()
    assert (consumer.take(), channel.depth) == ([], 0)


def test_others_are_not_concerned(start: Any) -> None:
    world = start()
    skipped(world, 1)
    other = world.consumer("t", "other")
    fill(world, b"a")
    assert bodies(other.take()) == [b"a"]


def test_a_disk_that_fails_takes_it_back(start: Any) -> None:
    disk = FaultyDisk()
    world = start(disk=disk)
    channel = world.broker.topic("t").channel("ch")
    fill(world, b"a")
    disk.fail.add(("rename", "topic.json"))
    with pytest.raises(StorageError):
        channel.skips.change(channel.skips.begun())
    assert (channel.skips.on, channel.depth) == (False, 1)
    assert bodies(world.consumer("t", "ch").take()) == [b"a"]


def test_a_full_channel_that_is_skipped_holds_no_publisher_up(start: Any) -> None:
    world = start(max_depth=3)
    skipped(world, 1)
    for _ in range(10):
        assert world.publish("t", b"a", b"b").stored


def test_a_deleted_one_is_forgotten(start: Any) -> None:
    world = start()
    skipped(world, 1)
    world.broker.find_topic("t").delete_channel("ch")
    world.pass_ns(SECOND)
    world.broker.topic("t").channel("ch")
    fill(world, b"a")
    assert bodies(world.consumer("t", "ch").take()) == [b"a"]


def test_it_is_an_event_of_a_traced_message(start: Any) -> None:
    world = start(trace_rate=1.0)
    skipped(world, 1)
    fill(world, b"a")
    world.pass_ns(SECOND)
    found = [event for event in events(world) if event.kind == Kind.SKIPPED]
    assert [(event.channel, event.offset, event.count) for event in found] == [("ch", 0, 1)]


# --- one partition ---


def entry_of(world: World) -> dict[str, Any]:
    path = world.path / "topics" / "t" / "topic.json"
    (entry,) = json.loads(unseal(path.read_bytes()))["channels"]
    return dict(entry)


def publish_to(world: World, partition: int, *given: bytes) -> None:
    for body in given:
        outcome = Outcome()
        world.broker.find_topic("t").publish([body], 0, outcome, partition)
        world.turns()
        assert outcome.stored


@pytest.mark.parametrize("ending", ["restart", "killed"])
def test_one_partition_is_skipped_by_itself(start: Any, ending: str) -> None:
    world = start()
    channel = world.broker.topic("t", 3).channel("ch")
    publish_to(world, 1, b"gone")
    channel.skips.change(channel.skips.begun(1))
    publish_to(world, 1, b"gone, too")
    publish_to(world, 2, b"stays")
    assert (channel.depth, channel.skips.count, channel.skips.on) == (1, 2, False)
    assert entry_of(world)["skipped_partitions"] == [1]
    world = getattr(world, ending)()
    channel = channel_of(world)
    consumer = world.consumer("t", "ch")
    assert bodies(consumer.take()) == [b"stays"]
    publish_to(world, 1, b"gone")
    assert consumer.take() == []
    channel.skips.change(channel.skips.ended(1))
    publish_to(world, 1, b"comes")
    assert bodies(consumer.take()) == [b"comes"]
    assert "skipped_partitions" not in entry_of(world)
    channel.validate()


def test_all_partitions_one_by_one_are_the_whole_channel(start: Any) -> None:
    world = start()
    channel = world.broker.topic("t", 3).channel("ch")
    for partition in (2, 0):
        channel.skips.change(channel.skips.begun(partition))
    assert (channel.skips.chosen, channel.skips.on) == ([0, 2], False)
    channel.skips.change(channel.skips.begun(1))
    assert (channel.skips.chosen, channel.skips.on) == ([], True)
    world.broker.grow_topic(channel.topic, 4, False)
    publish_to(world, 3, b"gone")
    assert channel.depth == 0
    channel.skips.change(channel.skips.ended(0))
    assert channel.skips.chosen == [1, 2, 3]
    publish_to(world, 0, b"comes")
    assert bodies(world.consumer("t", "ch").take()) == [b"comes"]
    channel.skips.change(channel.skips.ended())
    assert (channel.skips.chosen, channel.skips.some) == ([], False)
    channel.validate()


def test_the_only_partition_is_the_whole_channel(start: Any) -> None:
    world = start()
    channel = world.broker.topic("t").channel("ch")
    channel.skips.change(channel.skips.begun(0))
    assert channel.skips.on
    channel.skips.change(channel.skips.ended(0))
    assert not channel.skips.some


# --- messages of load tests ---


@pytest.mark.parametrize("ending", ["restart", "killed"])
def test_skipping_tests_is_kept(start: Any, partitions: int, ending: str) -> None:
    world = start()
    channel = world.broker.topic("t", partitions).channel("ch")
    assert "skips_tests" not in entry_of(world)
    channel.skips.change(channel.skips.state._replace(tests=True))
    world = getattr(world, ending)()
    channel = channel_of(world)
    assert [window.skips_tests for window in channel.windows.values()] == [True] * partitions
    world.broker.grow_topic(channel.topic, partitions + 1, False)
    assert channel.windows[partitions].skips_tests
    assert not channel.is_held
    channel.skips.change(channel.skips.state._replace(tests=False))
    assert [window.skips_tests for window in channel.windows.values()] == [False] * len(
        channel.windows
    )
    assert "skips_tests" not in entry_of(world)
