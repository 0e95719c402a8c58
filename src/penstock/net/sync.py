"""A few threads in which the broker's slow disk calls run.

A job is anything with `run()`. It runs in one of the threads, comes back through `take_done`, and
`wake` tells the loop that something is there. An OSError is the job's answer and travels with it.
Any other exception is a fault of the program: `take_done` raises it in the loop's thread, where it
stops the daemon; it is never lost in a thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from penstock import limits


class Job(Protocol):
    def run(self) -> None: ...


class SyncPool:
    def __init__(self, wake: Callable[[], None], threads: int = limits.SYNC_THREADS) -> None:
        self._wake = wake
        self._waiting: SimpleQueue[Job | None] = SimpleQueue()
        self.done: deque[tuple[Job, BaseException | None]] = deque()
        self._ended = threading.Condition()
        self._out = 0  # submitted and not yet taken; only the loop's thread counts
        self._threads = [
            threading.Thread(target=self._work, name=f"sync-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        self._out += 1
        self._waiting.put(job)

    def take_done(self) -> list[tuple[Job, OSError | None]]:
        taken: list[tuple[Job, OSError | None]] = []
        while self.done:
            job, error = self.done[0]
            if error is not None and not isinstance(error, OSError):
                if taken:  # hand these over first; the fault comes up at the next call
                    break
                self._take_one()
                raise error
            self._take_one()
            taken.append((job, error))
        return taken

    def _take_one(self) -> None:
        self.done.popleft()
        self._out -= 1

    def wait(self) -> None:
        """Block until `take_done` has something to give; at once when nothing is out."""
        if not self._out:
            return
        with self._ended:
            while not self.done:
                self._ended.wait()

    def close(self) -> None:
        """Let the jobs that wait run, then end the threads."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            job = self._waiting.get()
            if job is None:
                return
            error: BaseException | None = None
            try:
                job.run()
            except BaseException as caught:
                error = caught
            with self._ended:
                self.done.append((job, error))
                self._ended.notify()
            self._wake()
