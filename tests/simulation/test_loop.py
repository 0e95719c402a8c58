from __future__ import annotations

import asyncio

import pytest

from sim.clock import FakeClock
from sim.loop import FakeLoop


def test_timers_run_in_their_order_and_each_at_its_time() -> None:
    clock = FakeClock()
    loop = FakeLoop(clock)
    ran: list[tuple[str, int]] = []

    def note(name: str) -> None:
        ran.append((name, clock.since_ns))

    loop.call_later(2e-9, note, "b")
    loop.call_later(1e-9, note, "a")
    loop.call_later(2e-9, note, "c")
    loop.call_later(1e-9, note, "cancelled").cancel()
    loop.call_later(9e-9, note, "later")
    rests: list[int] = []
    loop.pass_ns(5, lambda: rests.append(clock.since_ns))
    assert ran == [("a", 1), ("b", 2), ("c", 2)]
    assert (rests, clock.since_ns) == ([1, 1, 2, 2], 5)


def test_calls_run_until_none_is_left() -> None:
    loop = FakeLoop(FakeClock())
    ran: list[int] = []

    def count() -> None:
        ran.append(1)
        if len(ran) < 5:
            loop.call_soon(count)

    loop.call_soon(count)
    loop.call_soon(count).cancel()
    loop.run_ready()
    assert len(ran) == 5


def test_calls_that_never_end_are_an_error() -> None:
    loop = FakeLoop(FakeClock())

    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(RuntimeError, match="never comes to rest"):
        loop.run_ready()


def test_tasks_take_their_steps_in_the_order_of_the_calls() -> None:
    loop = FakeLoop(FakeClock())
    said: list[str] = []

    async def work(name: str) -> str:
        assert asyncio.get_running_loop() is loop  # type: ignore[comparison-overlap]
        for step in range(2):
            said.append(f"{name}{step}")
            await asyncio.sleep(0)
        return name

    async def both() -> list[str]:
        return await asyncio.gather(work("a"), work("b"))

    task = loop.create_task(both())
    loop.run_ready()
    assert (said, task.result()) == (["a0", "b0", "a1", "b1"], ["a", "b"])
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


def test_a_future_wakes_the_task_that_waits_for_it() -> None:
    loop = FakeLoop(FakeClock())
    answer = loop.create_future()

    async def wait() -> int:
        return 1 + await answer

    task = loop.create_task(wait())
    loop.run_ready()
    assert not task.done()
    answer.set_result(6)
    loop.run_ready()
    assert task.result() == 7
