"""Jobs of stages, few at a time: the sync threads have publishes to serve."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from penstock import limits
from penstock.broker.ports import Job
from penstock.broker.syncs import Syncs

Ended = Callable[[OSError | None], None]


class JobRow:
    def __init__(self, syncs: Syncs) -> None:
        self._syncs = syncs
        self._waiting: deque[tuple[Job, Ended]] = deque()
        self._out = 0

    @property
    def busy(self) -> bool:
        return self._out > 0

    def submit(self, job: Job, ended: Ended) -> None:
        self._waiting.append((job, ended))
        self._next()

    def _next(self) -> None:
        while self._waiting and self._out < limits.STAGE_JOBS_MAX:
            job, ended = self._waiting.popleft()
            self._out += 1
            self._syncs.submit(job, partial(self._ended, ended))

    def _ended(self, ended: Ended, error: OSError | None) -> None:
        self._out -= 1
        ended(error)
        self._next()
