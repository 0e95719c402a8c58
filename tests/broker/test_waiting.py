"""Publishes that wait for room: how many bytes of them a partition holds."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import limits
from penstock.errors import TooMuchWaiting

from .world import Outcome, World

BODY = b"x" * 1_000


def slow(start: Any, monkeypatch: pytest.MonkeyPatch, partitions: int = 1) -> World:
    """The disk is busy, and the open batches are full."""
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", 1_000)
    world: World = start(waiting_bytes_max=5_000)
    topic = world.broker.topic("t", partitions)
    world.threads.held = True
    for _ in range(2 * partitions):
        topic.publish([BODY], 0, Outcome())
        world.turns()
    return world


def fill(topic: Any, waiting: list[Outcome]) -> None:
    for _ in range(100):
        waiting.append(Outcome())
        topic.publish([BODY], 0, waiting[-1])


def let_go(world: World) -> None:
    world.threads.held = False
    world.threads.run()
    for _ in range(20):
        world.turns()


@pytest.mark.parametrize("partitions", [1, 4])
def test_more_is_refused_until_some_are_stored(
    start: Any, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    world = slow(start, monkeypatch, partitions)
    topic = world.broker.find_topic("t")
    waiting = [Outcome()]
    topic.publish([BODY], 0, waiting[0])
    with pytest.raises(TooMuchWaiting, match="6000 bytes wait to be stored, 5000 may"):
        fill(topic, waiting)
    assert not waiting.pop().told  # the one that was refused
    let_go(world)
    assert all(outcome.stored for outcome in waiting)
    assert world.publish("t", BODY).stored
