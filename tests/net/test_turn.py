"""When turns run, with a kernel and a broker that only take notes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock import limits
from penstock.kernel import Event
from penstock.net.order import LOAD_ROUNDS_MAX
from penstock.net.soon import Soon
from penstock.net.turn import Turn

from .recorder import Recorder

MS = limits.MS


class World(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.faults: list[Exception] = []
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.turn = Turn(
            self.loop, Soon(self.loop), self.wake_fd, self.order, self, self.faults.append
        )

    def poll(self, mono_ns: int) -> list[tuple[Any, ...]]:
        with contextlib.suppress(BlockingIOError):  # nothing was written
            os.eventfd_read(self.wake_fd)
        return super().poll(mono_ns)


@pytest.fixture
def no_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn is followed by a tick some milliseconds later, which a loaded machine may take too."""
    monkeypatch.setattr(limits, "TICK_NS", 600 * limits.SECOND)


def in_loop(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        world = World()
        try:
            await story(world)
        finally:
            world.turn.stop()
            world.turn.stop()
            os.close(world.wake_fd)

    asyncio.run(run())


def test_the_descriptor_starts_a_turn() -> None:
    async def story(world: World) -> None:
        world.turn.start()
        await asyncio.sleep(0.02)
        world.notes.clear()
        os.eventfd_write(world.wake_fd, 1)
        while not world.notes:
            await asyncio.sleep(0.001)
        assert world.notes[:2] == ["poll", "flush"]

    in_loop(story)


@pytest.mark.usefixtures("no_ticks")
def test_soon_runs_one_turn_however_often_it_is_said() -> None:
    async def story(world: World) -> None:
        world.turn.start()
        world.turn.soon()
        world.turn.soon()
        await asyncio.sleep(0.001)
        assert world.polls == 1

    in_loop(story)


def test_busy_means_again_at_once() -> None:
    async def story(world: World) -> None:
        world.busy = True
        world.turn.start()
        for _ in range(20):
            await asyncio.sleep(0)
        assert world.polls >= 5
        world.busy = False

    in_loop(story)


@pytest.mark.usefixtures("no_ticks")
def test_a_backlog_deeper_than_one_turn_loads_has_another_turn() -> None:
    async def story(world: World) -> None:
        world.flushed += [[(Event.NEED, "window", 0, 0)]] * (LOAD_ROUNDS_MAX + 3)
        world.turn.start()
        async with asyncio.timeout(40):
            while world.flushed:
                await asyncio.sleep(0)
        assert world.polls == 2

    in_loop(story)


def test_after_activity_a_tick_comes_within_its_resolution_and_then_silence() -> None:
    async def story(world: World) -> None:
        world.turn.start()
        await asyncio.sleep(0.05)
        ticks, polls = world.ticks, world.polls
        assert ticks == 1
        await asyncio.sleep(0.1)
        assert (world.ticks, world.polls) == (ticks, polls)

    in_loop(story)


@pytest.mark.parametrize("source", ["tick", "engine"])
def test_a_timer_fires_when_it_was_said_to(source: str) -> None:
    async def story(world: World) -> None:
        world.turn.start()
        await asyncio.sleep(0.02)
        started = world.loop.time()
        if source == "tick":
            world.wait_ns = 60 * MS
        else:
            world.deadline_ns = world.mono_ns() + 60 * MS
        world.turn.tick()
        world.wait_ns = 0
        polls = world.polls
        while world.polls == polls:
            await asyncio.sleep(0.001)
        world.deadline_ns = 0
        assert 0.058 < world.loop.time() - started < 20

    in_loop(story)


def test_an_earlier_deadline_moves_the_timer() -> None:
    async def story(world: World) -> None:
        world.wait_ns = 10_000 * MS
        world.turn.tick()
        world.turn.start()
        await asyncio.sleep(0.05)
        world.wait_ns = 0
        started = world.loop.time()
        world.deadline_ns = world.mono_ns() + 3 * MS
        polls = world.polls
        world.turn.soon()
        while world.polls < polls + 2:
            await asyncio.sleep(0.001)
        world.deadline_ns = 0
        assert world.loop.time() - started < 8

    in_loop(story)


def test_a_fault_is_reported_and_not_repeated_after_a_stop() -> None:
    async def story(world: World) -> None:
        def broken(tails: list[Any], wall_ns: int) -> None:
            raise RuntimeError("impossible")

        world.write = broken  # type: ignore[method-assign]
        world.tails = ["tail"]
        world.turn.start()
        await asyncio.sleep(0.001)
        assert [str(fault) for fault in world.faults] == ["impossible"]
        world.turn.stop()
        world.turn.soon()
        world.turn.tick()
        await asyncio.sleep(0.02)
        assert len(world.faults) == 1

    in_loop(story)


def test_gathered_events_are_stored_though_nothing_else_happens() -> None:
    async def story(world: World) -> None:
        world.trace_pending = True
        world.turn.start()
        async with asyncio.timeout(40):
            while "write_trace" not in world.notes:
                await asyncio.sleep(0.005)

    in_loop(story)
