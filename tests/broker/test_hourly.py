"""What was published in each hour."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import limits
from penstock.broker.hourly import HOURS

from .world import World

HOUR = 3600 * limits.SECOND


@pytest.mark.parametrize("partitions", [1, 4])
def test_each_hour_has_its_bytes(start: Any, partitions: int) -> None:
    world = start()
    topic = world.broker.topic("t", partitions)

    def hours() -> list[int]:
        each = [world.broker.hourly.of(topic, leader.number) for leader in topic.leaders]
        assert {len(one) for one in each} == {HOURS}
        return [sum(hour) for hour in zip(*each, strict=True)]

    assert hours() == [0] * HOURS
    world.publish("t", b"12345")
    assert hours() == [0] * 23 + [5]
    world.pass_ns(HOUR)
    world.publish("t", b"123", b"4567")
    assert hours() == [0] * 22 + [5, 7]
    world.pass_ns(3 * HOUR)
    assert hours() == [0] * 19 + [5, 7, 0, 0, 0]
    for _ in range(25):
        world.publish("t", b"1")
        world.pass_ns(HOUR)
    assert hours() == [1] * 23 + [0]


def test_what_was_published_before_the_start_is_not_counted(start: Any) -> None:
    world: World = start()
    world.publish("t", b"12345")
    world = world.restart()
    topic = world.broker.find_topic("t")
    assert sum(world.broker.hourly.of(topic, 0)) == 0
    world.publish("t", b"123")
    assert world.broker.hourly.of(topic, 0)[-1] == 3
