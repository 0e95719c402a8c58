from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from penstock.net.sync import SyncPool


class Task:
    def __init__(self, act: Callable[[], None]) -> None:
        self.run = act


class Woken:
    def __init__(self) -> None:
        self.event = threading.Event()

    def __call__(self) -> None:
        self.event.set()


@pytest.fixture
def woken() -> Woken:
    return Woken()


@pytest.fixture
def pool(woken: Woken) -> Iterator[SyncPool]:
    made = SyncPool(woken, threads=2)
    yield made
    made.close()


def test_a_job_runs_elsewhere_and_comes_back(pool: SyncPool, woken: Woken) -> None:
    names = []
    job = Task(lambda: names.append(threading.current_thread().name))
    pool.submit(job)
    assert woken.event.wait(5)
    assert pool.take_done() == [(job, None)]
    assert pool.take_done() == []
    assert names[0].startswith("sync-")


def test_an_oserror_is_an_answer(pool: SyncPool) -> None:
    broken = OSError(5, "I/O error")

    def fail() -> None:
        raise broken

    job = Task(fail)
    pool.submit(job)
    pool.wait()
    assert pool.take_done() == [(job, broken)]


def test_any_other_exception_comes_up_in_the_callers_thread(pool: SyncPool) -> None:
    def fail() -> None:
        raise ValueError("a fault")

    good = Task(lambda: None)
    pool.submit(good)
    pool.wait()
    pool.submit(Task(fail))
    while len(pool.done) < 2:
        time.sleep(0.001)
    assert pool.take_done() == [(good, None)]
    with pytest.raises(ValueError, match="a fault"):
        pool.take_done()
    assert pool.take_done() == []


def test_jobs_run_side_by_side(pool: SyncPool) -> None:
    both = threading.Barrier(2, timeout=5)
    jobs = [Task(lambda: print(both.wait())) for _ in range(2)]
    for job in jobs:
        pool.submit(job)
    done: list[tuple[object, OSError | None]] = []
    while len(done) < 2:
        pool.wait()
        done += pool.take_done()
    assert {id(job) for job, error in done if error is None} == {id(job) for job in jobs}


def test_wait_returns_at_once_when_nothing_is_out(pool: SyncPool) -> None:
    pool.wait()
    pool.submit(Task(lambda: None))
    pool.wait()
    pool.wait()
    assert len(pool.take_done()) == 1
    pool.wait()


def test_close_lets_waiting_jobs_run(woken: Woken) -> None:
    pool = SyncPool(woken, threads=1)
    ran = []
    for number in range(10):
        pool.submit(Task(lambda number=number: ran.append(number)))  # type: ignore[misc]
    pool.close()
    assert ran == list(range(10))
