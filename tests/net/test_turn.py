"""The order of a turn, and when turns run, with a kernel and a broker that only take notes."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock import limits
from penstock.kernel import Event
from penstock.net.clock import SystemClock
from penstock.net.turn import LOAD_ROUNDS_MAX, Turn

MS = limits.MS


class World:
    """Engine, broker and handler in one; `notes` is what was called, in order."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.notes: list[Any] = []
        self.busy = False
        self.trace_pending = self.trace_full = False
        self.deadline_ns = 0
        self.polled: deque[list[tuple[Any, ...]]] = deque()
        self.flushed: deque[list[tuple[Any, ...]]] = deque()
        self.tails: list[Any] = []
        self.windows: list[Any] = []
        self.conns: list[Any] = []
        self.again: dict[Any, None] = {}
        self.wait_ns = 0
        self.ticks = 0
        self.polls = 0
        self.faults: list[Exception] = []
        self.done: deque[Any] = deque()
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.frozen_ns = 0  # what the clock shows, if it stands still
        clock = SystemClock()
        clock.mono_ns = lambda: self.frozen_ns or time.monotonic_ns()
        self.turn = Turn(
            self.loop,
            self,
            self,
            clock,
            self.done,
            lambda event: self.notes.append(("handle", event)),
            self.faults.append,
            self,
        )

    # engine

    def fileno(self) -> int:
        return self.wake_fd

    def poll(self, mono_ns: int) -> list[tuple[Any, ...]]:
        self.polls += 1
        self.notes.append("poll")
        try:
            os.eventfd_read(self.wake_fd)
        except BlockingIOError:
            self.notes.append("nothing to read")
        return self.polled.popleft() if self.polled else []

    def dirty_tails(self) -> list[Any]:
        return self.tails

    def flush(self, mono_ns: int, wall_ns: int) -> list[tuple[Any, ...]]:
        self.notes.append("flush")
        return self.flushed.popleft() if self.flushed else []

    def dirty_windows(self) -> list[Any]:
        return self.windows

    def tick(self, mono_ns: int, wall_ns: int) -> int:
        self.ticks += 1
        return self.wait_ns

    def dirty_detached(self) -> list[Any]:
        return self.conns

    # links

    def serve(self, conns: list[Any]) -> None:
        self.notes.append(("serve", conns))

    # broker

    def write(self, tails: list[Any]) -> None:
        self.notes.append(("write", tails))

    def load(self, window: Any, which: int, offset: int) -> None:
        self.notes.append(("load", window, which, offset))

    def journal(self, windows: list[Any]) -> None:
        self.notes.append(("journal", windows))

    def write_trace(self) -> None:
        self.notes.append("write_trace")
        self.trace_pending = self.trace_full = False

    def synced(self) -> None:
        self.notes.append("synced")
        self.done.clear()


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


@pytest.mark.usefixtures("no_ticks")
def test_the_sequence_of_a_full_turn() -> None:
    async def story(world: World) -> None:
        line = (Event.LINE, "conn", [b"NOP"])
        failed = (Event.PUB_FAILED, "conn", 1, "tail")
        world.polled.append([line])
        world.flushed += [[(Event.NEED, "window", 1, 7), failed], []]
        world.tails, world.windows = ["tail"], ["window"]
        world.done.append("job")
        os.eventfd_write(world.wake_fd, 1)
        world.turn.start()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert world.notes[:9] == [
            "poll",
            ("handle", line),
            "synced",
            ("write", ["tail"]),
            "flush",
            ("load", "window", 1, 7),
            ("handle", failed),
            "flush",
            ("journal", ["window"]),
        ]

    in_loop(story)


@pytest.mark.usefixtures("no_ticks")
def test_connections_without_a_socket_come_last() -> None:
    async def story(world: World) -> None:
        world.windows, world.conns = ["window"], ["conn"]
        world.turn.start()
        await asyncio.sleep(0.001)
        assert world.notes[3:5] == [("journal", ["window"]), ("serve", ["conn"])]
        world.conns, world.again = [], {"link": None}
        world.notes.clear()
        world.turn.soon()
        await asyncio.sleep(0.001)
        assert world.notes[-1] == ("serve", [])

    in_loop(story)


@pytest.mark.usefixtures("no_ticks")
def test_an_empty_turn_calls_nothing_that_it_need_not() -> None:
    async def story(world: World) -> None:
        world.turn.start()
        await asyncio.sleep(0.001)
        assert world.notes == ["poll", "nothing to read", "flush"]

    in_loop(story)


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
def test_a_deep_backlog_is_loaded_in_portions() -> None:
    async def story(world: World) -> None:
        need = [(Event.NEED, "window", 0, 0)]
        world.flushed += [need] * (LOAD_ROUNDS_MAX + 3)
        world.turn.start()
        await asyncio.sleep(0.01)
        loads = [note for note in world.notes if note[0] == "load"]
        assert len(loads) == LOAD_ROUNDS_MAX + 3
        second = [index for index, note in enumerate(world.notes) if note == "poll"][1]
        assert len([note for note in world.notes[:second] if note[0] == "load"]) == (
            LOAD_ROUNDS_MAX + 1
        )

    in_loop(story)


def test_after_activity_a_tick_comes_within_its_resolution_and_then_silence() -> None:
    async def story(world: World) -> None:
        world.turn.start()
        await asyncio.sleep(0.05)
        ticks, polls = world.ticks, world.polls
        assert ticks == 2  # one before the turn, one after it
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
            world.deadline_ns = SystemClock().mono_ns() + 60 * MS
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
        world.deadline_ns = SystemClock().mono_ns() + 3 * MS
        polls = world.polls
        world.turn.soon()
        while world.polls < polls + 2:
            await asyncio.sleep(0.001)
        world.deadline_ns = 0
        assert world.loop.time() - started < 8

    in_loop(story)


def test_a_fault_is_reported_and_not_repeated_after_a_stop() -> None:
    async def story(world: World) -> None:
        def broken(tails: list[Any]) -> None:
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


def turns_of(world: World, count: int) -> int:
    """How often the events were stored in so many turns."""
    world.notes.clear()
    for _ in range(count):
        world.turn.tick()
    return world.notes.count("write_trace")


def test_events_are_gathered_for_a_while() -> None:
    """And then stored before the flush, so that who reads them is not a turn behind."""

    async def story(world: World) -> None:
        world.frozen_ns = time.monotonic_ns()
        world.trace_pending = True
        assert turns_of(world, 3) == 0
        world.frozen_ns += limits.TRACE_GATHER_NS - 1
        assert turns_of(world, 3) == 0
        world.frozen_ns += 1
        assert turns_of(world, 1) == 1
        assert world.notes.index("write_trace") < world.notes.index("flush")
        assert turns_of(world, 1) == 0  # there is nothing new
        world.trace_pending = True
        world.frozen_ns += limits.TRACE_GATHER_NS
        assert turns_of(world, 1) == 0  # the new ones begin a time of their own

    in_loop(story)


def test_a_whole_chunk_of_events_does_not_wait() -> None:
    async def story(world: World) -> None:
        world.frozen_ns = time.monotonic_ns()
        world.trace_pending = True
        assert turns_of(world, 1) == 0
        world.trace_full = True
        assert turns_of(world, 1) == 1

    in_loop(story)


def test_gathered_events_are_stored_though_nothing_else_happens() -> None:
    async def story(world: World) -> None:
        world.trace_pending = True
        world.turn.start()
        async with asyncio.timeout(40):
            while "write_trace" not in world.notes:
                await asyncio.sleep(0.005)

    in_loop(story)
