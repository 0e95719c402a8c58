"""The age of the oldest message that a channel has not finished."""

from __future__ import annotations

from typing import Any

from penstock import limits

from .test_leader import damage
from .world import World

SECOND = limits.SECOND


def age_s(world: World) -> float | None:
    channel = world.broker.find_topic("t").find_channel("ch")
    return channel.oldest.age_s(world.clock.wall_ns())


def test_it_grows_until_the_message_is_finished(start: Any) -> None:
    world = start()
    world.broker.topic("t").channel("ch")
    assert age_s(world) is None
    world.publish("t", b"one")
    world.pass_ns(3 * SECOND)
    world.publish("t", b"two")
    world.pass_ns(1 * SECOND)
    assert age_s(world) == 4
    consumer = world.consumer("t", "ch")
    first, second = consumer.take()
    assert age_s(world) == 4
    consumer.finish(first)
    world.turn()
    world.pass_ns(limits.OLDEST_LOOK_NS)
    assert age_s(world) == 1 + limits.OLDEST_LOOK_NS / SECOND
    consumer.finish(second)
    world.turn()
    assert age_s(world) is None


def test_a_batch_that_cannot_be_read_has_no_age(start: Any) -> None:
    world = start(tail_memory_bytes_max=0)
    world.broker.topic("t").channel("ch")
    world.publish("t", b"corrupt")
    world.pass_ns(SECOND)
    world.publish("t", b"sound")
    damage(world, 0, "t")
    assert age_s(world) is None
    assert "offsets 0 to 0 are corrupt" in world.broker.health
    world.broker.topic("t").channel("ch").seek(1)
    world.pass_ns(SECOND + limits.OLDEST_LOOK_NS)
    assert age_s(world) == 1 + limits.OLDEST_LOOK_NS / SECOND
    world.broker.topic("t").channel("ch").seek(0)  # back: what is known of a later batch is no use
    assert age_s(world) is None


def test_what_is_not_due_has_no_age(start: Any) -> None:
    world = start()
    world.broker.topic("t").channel("ch")
    for _ in range(3):
        world.publish("t", b"later", due_ns=world.clock.wall_ns() + 60 * SECOND)
    world.pass_ns(30 * SECOND)
    assert age_s(world) is None
    world.publish("t", b"now")  # behind those
    world.pass_ns(10 * SECOND)
    assert age_s(world) == 10
    consumer = world.consumer("t", "ch")
    (now,) = consumer.take()
    world.pass_ns(limits.OLDEST_LOOK_NS)
    assert age_s(world) == 15
    consumer.finish(now)
    world.turn()
    assert age_s(world) is None
    world.pass_ns(35 * SECOND)  # they are due since 20 s
    assert age_s(world) == 20
