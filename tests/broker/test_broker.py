"""Rules about the whole broker: free disk, health, the journal's troubles, housekeeping."""

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock import limits
from penstock.broker.health import Health, Trouble
from penstock.errors import Refused
from sim.disk import SimDisk

from .world import Outcome, Start, World, bodies


def test_a_disk_that_is_almost_full_refuses_publishes_and_recovers(simulate: Start) -> None:
    world = simulate(disk_free_bytes_min=1000)
    consumer = world.consumer("news", "a")
    world.publish("news", b"1")
    topic = world.broker.find_topic("news")
    world.disk.free_bytes = lambda path: 999
    world.pass_ns(limits.SECOND)
    assert topic.leader().tail.refusing
    assert "disk almost full: 999 bytes free" in topic.refusal
    assert "disk almost full" in world.broker.health
    with pytest.raises(Refused):
        topic.publish([b"2"], 0, Outcome())
    assert world.broker.topic("other").leader().tail.refusing  # new topics as well
    assert bodies(consumer.take()) == [b"1"]  # consumers go on

    world.disk.free_bytes = lambda path: 1000
    world.pass_ns(limits.SECOND)
    assert not topic.leader().tail.refusing
    assert world.broker.health == "OK"
    assert world.publish("news", b"2").stored


def test_fast_publishers_do_not_overrun_the_watermark_between_two_looks(
    simulate: Start, disk: SimDisk
) -> None:
    free = [101_000]
    disk.free_bytes = lambda path: free[0]  # type: ignore[method-assign]
    world = simulate(disk_free_bytes_min=1000)
    body = b"x" * 10_000
    for _ in range(4):
        assert world.publish("news", body).stored
        free[0] -= 10_100
    topic = world.broker.find_topic("news")
    assert not topic.leader().tail.refusing
    free[0] = 999
    assert world.publish("news", body).stored  # more than half of the room is written: a look
    assert topic.leader().tail.refusing  # and the clock has not moved


def test_a_journal_that_cannot_be_written_does_not_stop_delivery(simulate: Start) -> None:
    world = simulate()
    consumer = world.consumer("news", "a")
    world.publish("news", b"1", b"2", b"3")
    world.fail("write", "channels.")
    consumer.finish(*consumer.take())
    assert "the state of the channels cannot be stored" in world.broker.health
    world.publish("news", b"4")
    assert bodies(consumer.take()) == [b"4"]

    world.pass_ns(limits.SECOND)
    assert "the state of the channels" in world.broker.health
    world.disk.faults.clear()
    world.pass_ns(limits.SECOND)  # without any change in the channel
    assert world.broker.health == "OK"
    world = world.killed()
    left = world.consumer("news", "a").take()
    assert [(message.body, message.attempts) for message in left] == [(b"4", 2)]


def test_a_journal_whose_sync_fails_begins_a_new_generation(simulate: Start) -> None:
    world = simulate()
    consumer = world.consumer("news", "a")
    world.publish("news", b"1", b"2")
    got = consumer.take()
    consumer.finish(got[0])
    world.fail("sync", "channels.")
    world.pass_ns(limits.JOURNAL_SYNC_EVERY_NS)
    assert "the state of the channels" in world.broker.health
    world.disk.faults.clear()
    world.pass_ns(limits.JOURNAL_SYNC_EVERY_NS)
    world.pass_ns(limits.JOURNAL_SYNC_EVERY_NS)
    assert world.broker.health == "OK"
    consumer.finish(got[1])
    world = world.killed()
    assert world.consumer("news", "a").take() == []


def test_the_journal_is_synced_every_two_seconds_and_then_left_alone(world: World) -> None:
    consumer = world.consumer("news", "a")
    world.publish("news", b"1")
    world.pass_ns(limits.JOURNAL_SYNC_EVERY_NS)
    consumer.finish(*consumer.take())
    world.pass_ns(limits.JOURNAL_SYNC_EVERY_NS)
    submitted = world.threads.submitted
    for _ in range(5):
        world.pass_ns(limits.JOURNAL_SYNC_EVERY_NS)
    assert world.threads.submitted == submitted
    assert world.broker.context.touched == {}
    opened = world.broker.topics["news"].replicas[0].log._segments[0].file
    world.pass_ns(limits.SECOND)
    with pytest.raises(OSError, match="closed"):  # a look at its age had opened it
        opened.size()


def test_a_stop_waits_for_syncs_and_answers_what_is_open(world: World) -> None:
    world.broker.topic("news")
    world.threads.held = True
    syncing, gathering = world.publish("news", b"1"), world.publish("news", b"2")
    world.close()
    assert syncing.stored
    assert gathering.stored
    world = world.restart()
    assert bodies(world.consumer("news", "a").take()) == [b"1", b"2"]


def test_a_stop_with_a_failing_disk_still_ends(simulate: Start) -> None:
    world = simulate()
    consumer = world.consumer("news", "a")
    world.publish("news", b"1")
    consumer.take()
    for part in (".log", "mark", "channels"):
        world.fail("write", part)
    world.fail("sync", "channels")
    outcome = Outcome()
    world.broker.topic("news").publish([b"2"], 0, outcome)
    world.close()
    assert [type(error).__name__ for error in outcome.answers] == ["WriteRefused"]
    world.disk.faults.clear()
    world = world.restart()
    assert bodies(world.consumer("news", "a").take()) == [b"1"]


def test_health_names_trouble_while_it_lasts_and_it_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    health = Health()
    assert (health.text, health.failing) == ("OK", False)
    with caplog.at_level(logging.INFO, "penstock.broker"):
        for _ in range(3):
            health.report("news", Trouble.WRITE, "no space")
        health.report("other", Trouble.DAMAGED, "corrupt")
        given = "NOK - topic news: no space; topic other: corrupt"
        assert (health.text, health.failing) == (given, True)
        health.clear("news", Trouble.DAMAGED)  # another kind
        assert health.text == given
        for _ in range(2):
            health.clear("news", Trouble.WRITE)
    assert health.text == "NOK - topic other: corrupt"
    assert [one.levelname for one in caplog.records if "news" in one.message] == ["ERROR", "INFO"]
    health.forget("other")
    assert health.text == "OK"


TOPICS = ("a", "b", "c")


@pytest.mark.parametrize("again", [World.restart, World.killed])
def test_logs_share_no_ids(start: Start, again: Callable[[World], World]) -> None:
    """At one instant and over restarts, with batches of all sizes: each log alone would begin at
    the clock's tick."""
    dice = random.Random(1)
    world = start()
    published = 0
    for _ in range(3):
        for _ in range(5):
            for topic in dice.sample(TOPICS, len(TOPICS)):
                bodies = [b"x"] * dice.choice([1, 2, 300, 5_000])
                world.publish(topic, *bodies)
                published += len(bodies)
        world = again(world)
    seen: list[bytes] = []
    for topic in TOPICS:
        consumer = world.consumer(topic, "ch", rdy=2500)
        while got := consumer.take():
            seen += [message.id for message in got]
            consumer.finish(*got)
    assert len(set(seen)) == len(seen) == published


# --- files that no promise hangs on: what fails is reported, and stops nothing ---


def test_a_failed_removal_does_not_stop_a_start(simulate: Any) -> None:
    world = simulate()
    world.broker.topic("t").channel("ch")
    assert world.publish("t", b"a").stored
    partition = "/data/topics/t/0"
    segment = next(name for name in world.disk.listdir(partition) if name.endswith(".log"))
    orphan = segment.replace("0" * 8, "9" * 8, 1).replace(".log", ".index")
    for name in ("spare-0.log", orphan):
        world.disk.create(f"{partition}/{name}").pwritev([b"old"], 0, 3)
    world.fail("unlink", "spare-0.log")
    world.fail("unlink", orphan)
    world = world.restart()
    given = world.broker.health
    assert given.startswith("OK - warning: topic t: ")
    assert "spare-0.log cannot be removed: Input/output error" in given
    assert f"{orphan} cannot be removed: Input/output error" in given
    assert bodies(world.consumer("t", "ch").take()) == [b"a"]
    assert world.publish("t", b"b").stored
    world.disk.faults.clear()
    world = world.restart()  # it is tried again
    assert not {"spare-0.log", orphan} & set(world.disk.listdir(partition))
    assert world.broker.health == "OK"


def test_an_index_that_cannot_be_written_is_reported(simulate: Any) -> None:
    world = simulate(segment_bytes_max=4096)
    topic = world.broker.topic("t")
    topic.channel("ch")
    log = topic.leader().log
    world.fail("create", ".index")
    world.fail("open", ".index")
    while not log.index_failures:
        assert world.publish("t", b"x" * 1000).stored
    world.pass_ns(limits.SECOND)
    given = world.broker.health
    assert given.startswith("OK - warning: topic t: ")
    assert ".index cannot be written: Input/output error" in given
    failures = log.index_failures
    world.disk.faults.clear()
    segments = len(log.segments)
    while len(log.segments) == segments:
        assert world.publish("t", b"x" * 1000).stored
    world.pass_ns(limits.SECOND)
    assert (world.broker.health, log.index_failures) == ("OK", failures)
