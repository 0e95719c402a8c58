from __future__ import annotations

import logging
import time

import pytest

from penstock.clock import FRESH_NS, SteadyClock, SystemClock
from penstock.limits import SECOND


def test_it_reads_the_monotonic_and_the_wall_clock() -> None:
    clock = SystemClock()
    assert 0 <= clock.mono_ns() - time.monotonic_ns() + 1_000_000_000 <= 2_000_000_000
    assert 0 <= clock.wall_ns() - time.time_ns() + 1_000_000_000 <= 2_000_000_000
    assert clock.mono_ns() <= clock.mono_ns()


class Time:
    """A system whose clock can be set."""

    def __init__(self) -> None:
        self.elapsed_ns = 0
        self.step_ns = 0
        self.clock = SteadyClock(self.system_ns, lambda: self.elapsed_ns)

    def system_ns(self) -> int:
        return START_NS + self.elapsed_ns + self.step_ns

    def wait(self, duration_ns: int, reads: int = 10) -> int:
        """How much the clock shows later."""
        before_ns = self.clock.wall_ns()
        for _ in range(reads):
            self.elapsed_ns += duration_ns // reads
            now_ns = self.clock.wall_ns()
        return now_ns - before_ns


START_NS = 1_780_000_000 * SECOND
HOUR = 3600 * SECOND


def test_it_shows_the_time_of_the_system() -> None:
    time = Time()
    assert time.clock.wall_ns() == START_NS
    assert time.wait(HOUR) == HOUR
    assert time.clock.behind_ns == 0


@pytest.mark.parametrize("jump_ns", [HOUR, -HOUR, 365 * 24 * HOUR])
def test_a_jump_is_followed_gradually(jump_ns: int) -> None:
    time = Time()
    time.step_ns = jump_ns
    shown_ns = time.wait(60 * SECOND)
    assert abs(shown_ns - 60 * SECOND) == 60 * SECOND // 16
    assert (shown_ns > 60 * SECOND) == (jump_ns > 0)
    time.step_ns = 0  # set right again
    time.wait(2 * 60 * SECOND)
    assert time.clock.behind_ns == 0


def test_an_hour_is_caught_up_within_sixteen() -> None:
    time = Time()
    time.step_ns = -HOUR
    last_ns = 0
    for _ in range(16 * 60):
        time.wait(60 * SECOND)
        now_ns = time.clock.wall_ns()
        assert now_ns > last_ns
        last_ns = now_ns
    assert abs(time.clock.behind_ns) <= SECOND


def test_small_corrections_are_followed_at_once_and_never_back() -> None:
    time = Time()
    time.step_ns = SECOND // 2
    assert time.wait(FRESH_NS, reads=1) == FRESH_NS + SECOND // 2
    time.step_ns = 0
    assert time.wait(FRESH_NS, reads=1) == 0
    assert time.wait(SECOND) == SECOND // 2 + FRESH_NS


def test_between_two_looks_at_the_system_it_goes_on_by_itself() -> None:
    time = Time()
    before_ns = time.clock.wall_ns()
    time.step_ns = SECOND // 2
    time.elapsed_ns += FRESH_NS - 1
    assert time.clock.wall_ns() == before_ns + FRESH_NS - 1
    time.elapsed_ns += 1
    assert time.clock.wall_ns() == before_ns + FRESH_NS + SECOND // 2


@pytest.mark.parametrize("step_ns", [-SECOND // 2, -HOUR])
def test_what_was_shown_between_two_looks_is_not_taken_back(step_ns: int) -> None:
    time = Time()
    time.elapsed_ns += FRESH_NS - 1
    before_ns = time.clock.wall_ns()
    time.step_ns = step_ns
    time.elapsed_ns += 1
    assert time.clock.wall_ns() == before_ns


def test_a_jump_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.clock")
    time = Time()
    time.step_ns = HOUR
    for _ in range(5):
        time.clock.check()
        time.wait(SECOND)
    (warned,) = [one.getMessage() for one in caplog.records]
    assert "the system's clock was set forward by 1h" in warned
    time.step_ns = 0
    time.wait(60 * SECOND)
    time.clock.check()
    assert "caught up" in caplog.records[-1].getMessage()
