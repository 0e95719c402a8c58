"""Jobs that are out at the sync threads, and who waits for each."""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.ports import Job, Syncer


class Syncs:
    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer
        self._waiting: dict[int, Callable[[OSError | None], None]] = {}

    def submit(
        self, job: Job, ended: Callable[[OSError | None], None], awaited: bool = False
    ) -> None:
        self._waiting[id(job)] = ended  # the syncer holds the job, so its id stays its own
        self._syncer.submit(job, awaited)

    def settle(self) -> None:
        """Tell those whose jobs have ended. Called every turn, so cheap when there is nothing."""
        for job, error in self._syncer.take_done():
            self._waiting.pop(id(job))(error)

    def wait_for(self, busy: Callable[[], bool]) -> None:
        """Block until `busy` says no; only for the stop and for a deletion."""
        while busy():
            self._syncer.wait()
            self.settle()

    @property
    def outstanding(self) -> int:
        return len(self._waiting)
