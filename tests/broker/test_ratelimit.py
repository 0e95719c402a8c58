"""How fast a channel is sent: with one partition and with several."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import limits

from .world import World

SECOND = limits.SECOND
BODY = b"x" * 66  # a frame of 100 bytes
ALL = 400


@pytest.fixture(params=[1, 4])
def partitions(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


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


def test_so_many_bytes_a_second(start: Any, partitions: int) -> None:
    world = start()
    consumer = limited(world, partitions, 1_000)
    assert 10 <= take(world, consumer) <= 10 + partitions
    total = 0
    for _ in range(10):
        world.pass_ns(SECOND)
        total += take(world, consumer)
    assert 100 - partitions <= total <= 100 + partitions


def test_a_burst_after_a_rest(start: Any, partitions: int) -> None:
    world = start()
    consumer = limited(world, partitions, 1_000)
    take(world, consumer)
    world.pass_ns(60 * SECOND)
    assert 40 - partitions <= take(world, consumer) <= 40 + partitions
