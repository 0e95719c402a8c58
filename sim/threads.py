"""Sync threads that are none: a job ends when the test says so."""

import random
from collections import deque
from collections.abc import Callable

from penstock.broker.ports import Job


class Threads:
    """Jobs run when they are submitted, or, while `held`, when someone waits or lets go."""

    def __init__(self, wake: Callable[[], object] = lambda: None) -> None:
        self.wake = wake  # have a turn run: some have ended
        self.held = False
        self.error: OSError | None = None  # what every job fails with
        self.waiting: list[Job] = []
        self.done: deque[tuple[Job, OSError | None]] = deque()
        self.submitted = 0
        self.ended: BaseException | None = None

    @property
    def outstanding(self) -> bool:
        return bool(self.done) or (bool(self.waiting) and not self.held)

    def submit(self, job: Job, awaited: bool = False) -> None:
        self.submitted += 1
        self.waiting.append(job)
        if not self.held:
            self.run()

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for job in waiting:
            error = self.error
            if error is None:
                try:
                    job.run()
                except OSError as caught:
                    error = caught
                except BaseException as caught:  # the process ends here, and with it all that waits
                    self.ended = caught
                    raise
            self.done.append((job, error))
        self.wake()

    def take_done(self) -> list[tuple[Job, OSError | None]]:
        taken = list(self.done)
        self.done.clear()
        return taken

    def wait(self) -> None:
        if self.ended is not None:
            raise self.ended
        self.run()

    def between_turns(self) -> None:
        """What ends while the loop sleeps."""

    def close(self) -> None:
        self.run()


class SlowThreads(Threads):
    """Jobs end in any order, one before each turn and each time the broker looks."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self.held = True

    @property
    def outstanding(self) -> bool:
        return bool(self.done or self.waiting)

    def take_done(self) -> list[tuple[Job, OSError | None]]:
        self.wait()
        return super().take_done()

    def wait(self) -> None:
        if self.ended is not None:
            raise self.ended
        if self.waiting:
            chosen = self.waiting.pop(self._rng.randrange(len(self.waiting)))
            rest, self.waiting = self.waiting, [chosen]
            self.run()
            self.waiting += rest

    def between_turns(self) -> None:
        self.wait()
