"""Who is deleted for not being used, and who is not."""

import pytest

from penstock import limits

from .world import Start

SECOND = limits.SECOND


def test_an_unused_channel_is_removed(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = start(idle_channel_delete_ns=10 * SECOND)
    used = world.consumer("t", "used")
    world.broker.topic("t").channel("unused")
    world.pass_seconds(9)
    assert set(world.broker.topics["t"].channels) == {"used", "unused"}
    world.pass_seconds(3)
    assert set(world.broker.topics["t"].channels) == {"used"}
    assert ("CHANNEL_DELETED", "t", "unused") in world.changes
    assert "t:unused: no consumer for 10s: it is deleted" in caplog.text
    used.leave()
    world.pass_seconds(9)
    assert set(world.broker.topics["t"].channels) == {"used"}
    world.pass_seconds(3)
    assert not world.broker.topics["t"].channels


def test_an_unused_topic_is_removed(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = start(idle_topic_delete_ns=10 * SECOND)
    for name in ("quiet", "published", "consumed"):
        world.broker.topic(name).channel("c")
    consumer = world.consumer("consumed", "c")
    reader = world.consumer("published", "c")
    for _ in range(15):
        world.publish("published", b"x")
        reader.finish(*reader.take())
        world.pass_ns(SECOND)
    assert set(world.broker.topics) == {"published", "consumed"}
    assert ("TOPIC_DELETED", "quiet", "") in world.changes
    assert "quiet: no publish and no consumer for 10s: it is deleted" in caplog.text
    consumer.leave()
    reader.leave()
    world.pass_seconds(12)
    assert not world.broker.topics
    world = world.restart()
    assert not world.broker.topics


def test_paused_topics_and_channels_stay(start: Start) -> None:
    world = start(
        idle_topic_delete_ns=10 * SECOND,
        idle_channel_delete_ns=10 * SECOND,
        idle_delete_backlog=True,
    )
    world.broker.topic("paused").set_paused(True)
    world.broker.topic("t").channel("paused").set_paused(True)
    world.pass_seconds(30)
    assert set(world.broker.topics) == {"paused", "t"}
    assert set(world.broker.topics["t"].channels) == {"paused"}


def test_a_deletion_that_fails_is_tried_again(simulate: Start) -> None:
    world = simulate(idle_topic_delete_ns=10 * SECOND, idle_channel_delete_ns=5 * SECOND)
    world.broker.topic("t").channel("c")
    world.fail("create", "topic.json")
    world.pass_seconds(20)
    assert set(world.broker.topics["t"].channels) == {"c"}
    world.disk.faults.clear()
    world.pass_seconds(14)
    assert not world.broker.topics
