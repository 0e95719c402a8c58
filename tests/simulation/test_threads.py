from __future__ import annotations

import random

import pytest

from sim.threads import SlowThreads, Threads


class Job:
    def __init__(self, error: BaseException | None = None) -> None:
        self._error = error
        self.runs = 0

    def run(self) -> None:
        self.runs += 1
        if self._error is not None:
            raise self._error


def test_a_job_ends_at_once_or_when_it_is_let_go() -> None:
    woken: list[int] = []
    threads = Threads(lambda: woken.append(1))
    first, second = Job(), Job()
    threads.submit(first)
    assert (threads.take_done(), len(woken)) == ([(first, None)], 1)
    threads.held = True
    threads.submit(second)
    assert (threads.take_done(), second.runs, len(woken)) == ([], 0, 1)
    threads.run()
    assert (threads.take_done(), second.runs, len(woken)) == ([(second, None)], 1, 2)


def test_an_error_of_the_disk_is_an_answer() -> None:
    threads = Threads()
    error = OSError(5, "Input/output error")
    own, all_fail = Job(error), Job()
    threads.submit(own)
    threads.error = error
    threads.submit(all_fail)
    assert threads.take_done() == [(own, error), (all_fail, error)]
    assert all_fail.runs == 0


def test_what_ends_the_process_comes_up_again_in_who_waits() -> None:
    threads = Threads()
    with pytest.raises(KeyboardInterrupt):
        threads.submit(Job(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        threads.wait()
    assert threads.take_done() == []


def test_slow_ones_end_one_by_one_in_any_order() -> None:
    orders = set()
    for seed in range(20):
        threads = SlowThreads(random.Random(seed))
        jobs = [Job() for _ in range(3)]
        for job in jobs:
            threads.submit(job)
        assert [job.runs for job in jobs] == [0, 0, 0]
        threads.between_turns()
        assert sum(job.runs for job in jobs) == 1
        ended = []
        while threads.outstanding:
            ended += [jobs.index(job) for job, _ in threads.take_done()]  # type: ignore[arg-type]
        orders.add(tuple(ended))
    assert len(orders) == 6
