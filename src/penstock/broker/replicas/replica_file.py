"""The identity of a replica in its directory, and its state: `replica.json`, open.

Each change is durable before it is visible here. `log/replica_file.py` has the states and rules.

A node may change the states of a thousand replicas at once, with two syncs for each. So what can
wait is written in a sync thread (`become_soon`), and the loop goes on: a node whose loop stands
still is taken for dead. What cannot wait (`become`) goes before it, and takes its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from penstock.broker.topics import directories
from penstock.errors import StorageError, TopicDamaged, WriteRefused
from penstock.log import names
from penstock.log.errors import ReplicaUnreadable
from penstock.log.replica_file import ReplicaFile, State, read_replica, write_replica

if TYPE_CHECKING:
    from penstock.broker.ports import Syncs
    from penstock.log.disk import Disk


class _StateJob:
    """`superseded`: another state was written meanwhile."""

    def __init__(self, disk: Disk, directory: str, file: ReplicaFile, lock: threading.Lock) -> None:
        self.file = file
        self.superseded = False
        self._disk = disk
        self._directory = directory
        self._lock = lock

    def run(self) -> None:
        with self._lock:
            if not self.superseded:
                write_replica(self._disk, self._directory, self.file)


class ReplicaFileStore:
    def __init__(self, disk: Disk, directory: str, file: ReplicaFile) -> None:
        self.file = file
        self._disk = disk
        self._directory = directory
        self._lock = threading.Lock()  # of the file
        self._job: _StateJob | None = None
        self._waiting: list[Callable[[], None]] = []

    @property
    def busy(self) -> bool:
        """A thread is writing a state."""
        return self._job is not None

    @property
    def replica(self) -> int:
        return int(self.file.replica_id, 16)

    @property
    def state(self) -> State:
        return self.file.state

    @property
    def believes_headers(self) -> bool:
        return self.file.believes_headers

    def become(self, state: State, reason: str = "") -> None:
        """Raises WriteRefused, and then it is as before."""
        if state == self.file.state and reason == self.file.reason:
            return
        file = msgspec.structs.replace(self.file, state=state, reason=reason)
        if self._job is not None:
            self._job.superseded = True
        try:
            with self._lock:
                write_replica(self._disk, self._directory, file)
        except OSError as error:
            text = f"the replica does not become {state!r}: {error}"
            raise WriteRefused(self._directory, text) from error
        self.file = file

    def become_soon(
        self, state: State, syncs: Syncs, ended: Callable[[OSError | None], None]
    ) -> None:
        """Write in a sync thread, one at a time."""
        file = msgspec.structs.replace(self.file, state=state, reason="")
        job = self._job = _StateJob(self._disk, self._directory, file, self._lock)

        def done(error: OSError | None) -> None:
            self._job = None
            if error is None and not job.superseded:
                self.file = job.file
            waiting, self._waiting = self._waiting, []
            ended(error)
            for one in waiting:
                one()

        syncs.when_free(lambda: syncs.submit(job, done, awaited=state == "copying"))

    def when_free(self, act: Callable[[], None]) -> None:
        """Call it when no thread writes a state any more."""
        self._waiting.append(act)


def owns_in(
    disk: Disk, directory: str, numbers: Iterable[int]
) -> tuple[dict[int, ReplicaFileStore], dict[int, TopicDamaged]]:
    """Of these partitions: what is here, and what cannot be read. Raises StorageError."""
    found: dict[int, ReplicaFileStore] = {}
    unreadable: dict[int, TopicDamaged] = {}
    for number in numbers:
        path = directories.partition_directory(directory, number)
        try:
            file = read_replica(disk, path)
        except ReplicaUnreadable as error:
            unreadable[number] = TopicDamaged(path, f"{names.REPLICA} cannot be read: {error}")
            continue
        except OSError as error:
            raise StorageError(path, f"{names.REPLICA} cannot be read: {error}") from error
        if file is not None:
            found[number] = ReplicaFileStore(disk, path, file)
    return found, unreadable
