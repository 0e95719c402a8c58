"""Jobs that are out at the sync threads, and who waits for each."""

from __future__ import annotations

from collections.abc import Callable

from penstock import limits
from penstock.broker.ports import Job, Syncer


class Syncs:
    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer
        self._waiting: dict[int, Callable[[OSError | None], None]] = {}
        self._postponed: dict[Callable[[], None], None] = {}

    def submit(
        self, job: Job, ended: Callable[[OSError | None], None], awaited: bool = False
    ) -> None:
        self._waiting[id(job)] = ended  # the syncer holds the job, so its id stays its own
        self._syncer.submit(job, awaited)

    def when_free(self, begin: Callable[[], None]) -> None:
        """Call `begin`, which may submit a job, now or when fewer are out. Each keeps its file
        open: were all files of a large node out at once, there would be no descriptor for
        another."""
        if len(self._waiting) < limits.SYNCS_UNAWAITED_MAX:
            begin()
        else:
            self._postponed[begin] = None

    def forget(self, begin: Callable[[], None]) -> None:
        """It is not to be called any more."""
        self._postponed.pop(begin, None)

    def settle(self) -> None:
        """Notify those whose jobs have ended. Called every turn, so cheap when there is nothing."""
        for job, error in self._syncer.take_done():
            self._waiting.pop(id(job))(error)
        while self._postponed and len(self._waiting) < limits.SYNCS_UNAWAITED_MAX:
            begin = next(iter(self._postponed))
            del self._postponed[begin]
            begin()

    def wait_for(self, busy: Callable[[], bool]) -> None:
        """Block until `busy` says no; only for the stop and for a deletion."""
        while busy():
            self._syncer.wait()
            self.settle()
