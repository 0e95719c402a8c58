from __future__ import annotations

import pytest

from penstock.sim.clock import FakeClock
from penstock.sim.loop import FakeLoop


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
