from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import limits
from penstock.broker.syncs import Syncs
from sim.threads import Threads


class Work:
    def __init__(self, error: OSError | None = None) -> None:
        self.error = error
        self.ran = 0

    def run(self) -> None:
        self.ran += 1
        if self.error is not None:
            raise self.error


def test_whoever_submits_is_told_once_with_the_error() -> None:
    threads = Threads()
    syncs = Syncs(threads)
    told: list[tuple[str, OSError | None]] = []
    error = OSError(5, "Input/output error")
    syncs.submit(Work(), lambda error: told.append(("good", error)))
    syncs.submit(Work(error), lambda error: told.append(("bad", error)))
    assert told == []
    syncs.settle()
    syncs.settle()
    assert told == [("good", None), ("bad", error)]


@pytest.mark.timeout(10)
def test_waiting_lets_others_be_told_as_well() -> None:
    threads = Threads()
    threads.held = True
    syncs = Syncs(threads)
    busy = {"mine": True, "other": True}
    syncs.submit(Work(), lambda error: busy.update(other=False))
    syncs.submit(Work(), lambda error: busy.update(mine=False))
    syncs.wait_for(lambda: busy["mine"])
    assert busy == {"mine": False, "other": False}


def test_what_can_wait_begins_when_fewer_jobs_are_out() -> None:
    threads = Threads()
    syncs = Syncs(threads)
    begun: list[int] = []

    def begins(number: int) -> Callable[[], None]:
        def begin() -> None:
            begun.append(number)
            syncs.submit(Work(), lambda error: None)

        return begin

    most = limits.SYNCS_UNAWAITED_MAX
    asked = [begins(number) for number in range(most + 3)]
    for begin in asked:
        syncs.when_free(begin)
    syncs.when_free(asked[-1])  # a second time: it begins once
    assert begun == list(range(most))
    syncs.forget(asked[most])
    syncs.settle()
    assert sorted(begun) == [*range(most), most + 1, most + 2]
