"""What the broker asks of the world besides the time: threads that wait for the disk.

The broker itself never sleeps and never starts a thread. `net/sync.py` has the real ones, tests
have those of `sim/threads.py`.
"""

from __future__ import annotations

from typing import Protocol


class Job(Protocol):
    """One flush to the disk. It touches nothing but its file, so any thread may run it."""

    def run(self) -> None: ...


class Syncer(Protocol):
    """Runs jobs side by side. Jobs of one partition come one at a time."""

    def submit(self, job: Job, awaited: bool = False) -> None:
        """`awaited`: publishers wait for this one. It may be run at once, in the caller's thread,
        where that is the quicker way."""
        ...

    def take_done(self) -> list[tuple[Job, OSError | None]]:
        """The jobs that ended since the last call, each with its error."""
        ...

    def wait(self) -> None:
        """Block until a submitted job has ended that `take_done` has not given out yet. Returns at
        once when there is none out. Used at the stop and before a topic is deleted."""
        ...
