from __future__ import annotations

from penstock.limits import SECOND
from sim.clock import START_MONO_NS, START_WALL_NS, FakeClock


def test_it_moves_only_when_time_passes() -> None:
    clock = FakeClock()
    assert (clock.mono_ns(), clock.wall_ns()) == (START_MONO_NS, START_WALL_NS)
    clock.pass_ns(SECOND)
    clock.pass_ns(1)
    assert clock.mono_ns() == START_MONO_NS + SECOND + 1
    assert clock.wall_ns() == START_WALL_NS + SECOND + 1


def test_a_wall_clock_that_is_set_moves_no_other() -> None:
    clock = FakeClock(wall_ns=5, mono_ns=7)
    clock.wall_step_ns -= 2
    assert (clock.mono_ns(), clock.wall_ns()) == (7, 3)
