"""Ids in stock: bounded, rising, and waited for."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for

import pytest

from penstock.errors import ConfigError, IdPoolClosed, IdPoolEmpty
from penstock.ids.factory import GuidFactory
from penstock.ids.guid import SEQUENCES_PER_TICK
from penstock.ids.pool import IdPool
from sim.clock import FakeClock

NOW_NS = 1_700_000_000 * 10**9
TICK_NS = 1 << 20
PATIENCE_S = 40.0


class Clock(FakeClock):
    def __init__(self, wall_ns: int = NOW_NS) -> None:
        super().__init__(wall_ns)
        self.reads = 0

    def wall_ns(self) -> int:
        self.reads += 1
        return super().wall_ns()


def pool_of(clock: Clock, count_max: int = 10) -> IdPool:
    return IdPool(GuidFactory(7, clock), clock, count_max)


def eventually(holds: object) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < until_s
        time.sleep(0.001)


def test_a_full_pool_makes_no_more() -> None:
    clock = Clock()
    with pool_of(clock) as pool:
        eventually(lambda: len(pool) == 10)
        time.sleep(0.02)
        assert (len(pool), clock.reads) == (10, 10)
        first = pool.take()
        eventually(lambda: len(pool) == 10)
        assert [pool.take() for _ in range(3)] == [first + 1, first + 2, first + 3]


def test_takers_wait_when_there_is_none() -> None:
    """The clock stands still, so one tick's ids are all there are."""
    clock = Clock()
    with pool_of(clock) as pool:
        made = [pool.take() for _ in range(SEQUENCES_PER_TICK)]
        with pytest.raises(IdPoolEmpty, match=r"no id within 0\.01 s"):
            pool.take(0.01)
        with ThreadPoolExecutor(2) as threads:
            waiting = [threads.submit(pool.take) for _ in range(2)]
            assert not wait_for(waiting, 0.02).done
            clock.wall_step_ns += TICK_NS
            made += [one.result(PATIENCE_S) for one in waiting]
    assert len(set(made)) == SEQUENCES_PER_TICK + 2
    assert made[:SEQUENCES_PER_TICK] == sorted(made[:SEQUENCES_PER_TICK])


def test_a_clock_that_steps_back_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with pool_of(clock, 1) as pool:
        before = pool.take()
        eventually(lambda: len(pool) == 1)
        clock.wall_step_ns -= 5 * TICK_NS
        in_stock = pool.take()
        with pytest.raises(IdPoolEmpty):
            pool.take(0.05)
        clock.wall_step_ns += 6 * TICK_NS
        assert before < in_stock < pool.take(PATIENCE_S)
    said = [record.getMessage() for record in caplog.records]
    step = "tick 332411363597 comes after tick 332411363602"
    assert said == [f"ids: time went backwards: {step}; trying again"]  # once, however often


def test_whoever_waits_at_the_end_is_woken() -> None:
    pool = pool_of(Clock(0))
    pool.start()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.take)
        pool.close()
        with pytest.raises(IdPoolClosed):
            waiting.result(PATIENCE_S)
    with pytest.raises(IdPoolClosed):
        pool.start()
    assert "penstock ids" not in [thread.name for thread in threading.enumerate()]


def test_a_pool_that_was_not_started_has_none() -> None:
    pool = pool_of(Clock())
    with pytest.raises(IdPoolClosed, match="not started"):
        pool.take()
    pool.close()
    with pytest.raises(ConfigError, match="count_max"):
        pool_of(Clock(), 0)
