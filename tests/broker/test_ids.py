"""No two messages of a broker have the same id, whatever logs they are in: a consumer names what it
finishes by the id alone."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from .world import World

Start = Callable[..., World]
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
