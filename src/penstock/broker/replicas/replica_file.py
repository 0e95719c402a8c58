"""The identity of a replica in its directory, and what it may trust: `replica.json`, open.

Each change is durable before it is visible here. `log/replica_file.py` has the states and rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from penstock.broker.topics import directories
from penstock.errors import StorageError, TopicDamaged, WriteRefused
from penstock.log import names
from penstock.log.errors import ReplicaUnreadable
from penstock.log.replica_file import ReplicaFile, State, read_replica, write_replica

if TYPE_CHECKING:
    from penstock.log.disk import Disk


class ReplicaFileStore:
    def __init__(self, disk: Disk, directory: str, file: ReplicaFile) -> None:
        self.file = file
        self._disk = disk
        self._directory = directory

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
        try:
            write_replica(self._disk, self._directory, file)
        except OSError as error:
            text = f"the replica does not become {state!r}: {error}"
            raise WriteRefused(self._directory, text) from error
        self.file = file


def owns_in(
    disk: Disk, directory: str, numbers: Iterable[int]
) -> tuple[dict[int, ReplicaFileStore], dict[int, TopicDamaged]]:
    """Which of these partitions have a replica here, and which have one that cannot be read. Raises
    StorageError."""
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
