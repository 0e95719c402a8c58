import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from penstock import limits
from penstock.broker.ports import Job
from penstock.net.sync import SyncPool, SyncTimes


def task(act: Callable[[], None] = lambda: None) -> Job:
    return SimpleNamespace(run=act)


@pytest.fixture
def pool() -> Iterator[SyncPool]:
    made = SyncPool(lambda: None, threads=2)
    yield made
    made.close()


def test_an_oserror_is_an_answer(pool: SyncPool) -> None:
    broken = OSError(5, "I/O error")

    def fail() -> None:
        raise broken

    job = task(fail)
    pool.submit(job)
    pool.wait()
    assert pool.take_done() == [(job, broken)]


def test_any_other_exception_comes_up_in_the_callers_thread(pool: SyncPool) -> None:
    def fail() -> None:
        raise ValueError("a fault")

    good = task()
    pool.submit(good)
    pool.wait()
    pool.submit(task(fail))
    while len(pool.done) < 2:
        time.sleep(0.001)
    assert pool.take_done() == [(good, None)]
    with pytest.raises(ValueError, match="a fault"):
        pool.take_done()
    assert pool.take_done() == []


def test_wait_returns_at_once_when_nothing_is_out(pool: SyncPool) -> None:
    pool.wait()
    pool.submit(task())
    pool.wait()
    pool.wait()
    assert len(pool.take_done()) == 1
    pool.wait()


def test_close_lets_waiting_jobs_run() -> None:
    pool = SyncPool(lambda: None, threads=1)
    ran = []
    for number in range(10):
        pool.submit(task(lambda number=number: ran.append(number)))  # type: ignore[misc]
    pool.close()
    assert ran == list(range(10))


class Clock:
    """Stands still but for what the jobs take, so a loaded machine is as quick as any."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * limits.SECOND

    def perf_counter_ns(self) -> int:
        return self.now_ns

    monotonic_ns = perf_counter_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("penstock.net.sync.time", clock)
    return clock


class Timed:
    """Takes some time, and remembers which thread it ran in."""

    def __init__(self, clock: Clock, took_ns: int = 1_000) -> None:
        self.clock = clock
        self.took_ns = took_ns
        self.thread: threading.Thread | None = None

    def run(self) -> None:
        self.thread = threading.current_thread()
        self.clock.now_ns += self.took_ns


def ran_here(pool: SyncPool, job: Timed, awaited: bool = True) -> bool:
    pool.submit(job, awaited)
    pool.wait()
    assert [done for done, _ in pool.take_done()] == [job]
    return job.thread is threading.current_thread()


def test_an_awaited_job_runs_at_once_when_such_jobs_have_been_quick(clock: Clock) -> None:
    pool = SyncPool(lambda: None, threads=1)
    assert not ran_here(pool, Timed(clock))  # a disk has to show that it is quick
    for _ in range(20):
        ran_here(pool, Timed(clock))
    assert ran_here(pool, Timed(clock))
    assert not ran_here(pool, Timed(clock), awaited=False)
    pool.close()


@pytest.fixture
def quick(clock: Clock) -> Iterator[SyncPool]:
    """Such jobs have been quick, so that it runs them at once."""
    pool = SyncPool(lambda: None, threads=1)
    for _ in range(20):
        ran_here(pool, Timed(clock))
    yield pool
    pool.close()


def test_only_one_job_runs_at_once_in_a_turn(quick: SyncPool, clock: Clock) -> None:
    first, second = Timed(clock), Timed(clock)
    quick.submit(first, True)
    quick.submit(second, True)
    quick.close()
    assert [job for job, _ in quick.take_done()] == [first, second]
    assert first.thread is threading.current_thread()
    assert second.thread is not threading.current_thread()


def test_a_job_run_at_once_returns_its_error(quick: SyncPool, clock: Clock) -> None:
    class Failing(Timed):
        def run(self) -> None:
            raise OSError(5, "Input/output error")

    quick.submit(Failing(clock), True)
    ((_, error),) = quick.take_done()
    assert isinstance(error, OSError)


def test_the_slowest_sync_of_the_last_minute() -> None:
    now_ns = 1_000 * limits.SECOND
    times = SyncTimes(lambda: now_ns)
    assert (times.slowest_ns(), times.since_last_ns()) == (0, None)
    for took_ns in (7, 30, 5):
        times.note(took_ns)
    now_ns += 20 * limits.SECOND
    times.note(9)
    now_ns += 30 * limits.SECOND
    assert (times.slowest_ns(), times.since_last_ns()) == (30, 30 * limits.SECOND)
    now_ns += 20 * limits.SECOND
    assert times.slowest_ns() == 9
    now_ns += 60 * limits.SECOND
    assert times.slowest_ns() == 0
