from __future__ import annotations

import pytest

from penstock.broker.syncs import Syncs

from .world import Threads


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
    assert (told, syncs.outstanding) == ([], 2)
    syncs.settle()
    syncs.settle()
    assert told == [("good", None), ("bad", error)]
    assert syncs.outstanding == 0


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
