"""One sync of a log: the files that must be on disk before its offsets are safe.

The loop thread makes the job and takes its result; only `run` happens in another thread. It
touches nothing but its own handles, which are pinned until the job has ended.

The data comes first. Once a sync of it has failed, the contents of the disk are unknown and the log
stops. A file that cannot be opened, or a directory that cannot be synced, as when descriptors run
out, loses nothing: `retryable` says so, the offsets stay unsafe, and the next job tries again.
"""

from typing import Protocol, TypeVar

from penstock.log.disk import Disk, File
from penstock.log.segment import Segment


class SyncJob:
    def __init__(
        self,
        disk: Disk,
        sealed: list[Segment],
        active: File,
        directory: str | None,
        end_offset: int,
        unsynced_bytes: int,
    ) -> None:
        self._disk = disk
        self._files = [*(segment.file for segment in sealed), active]
        self._unopened: OSError | None = None
        try:
            for file in self._files:
                file.pin()
        except OSError as error:
            self._unopened = error
        self._directory = directory  # where a segment was made since the last sync
        self.retryable = False
        self.sealed = sealed
        self.end_offset = end_offset
        self.unsynced_bytes = unsynced_bytes

    def run(self) -> None:
        """May raise OSError. Older segments first: a log has no holes."""
        if self._unopened is not None:
            self.retryable = True
            raise self._unopened
        for file in self._files:
            file.fdatasync()
        self.retryable = True
        if self._directory is not None:
            self._disk.sync_directory(self._directory)


class _Runs(Protocol):
    def run(self) -> None: ...


Flush = TypeVar("Flush", bound=_Runs)


class Syncable(Protocol[Flush]):
    """A log, a journal or a ledger: one job at a time syncs it."""

    def sync_begin(self) -> Flush | None:
        """None: nothing is unsynced, or a job is out. May raise."""
        ...

    def sync_end(self, job: Flush, error: OSError | None) -> None: ...


def run_here(what: Syncable[Flush], job: Flush) -> OSError | None:
    """On this thread. Returns why it failed."""
    failed = None
    try:
        job.run()
    except OSError as error:
        failed = error
    what.sync_end(job, failed)
    return failed
