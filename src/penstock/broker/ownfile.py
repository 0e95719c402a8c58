"""Which replica lives in a partition's directory, and what it may believe: `replica.json`, open.

Each change is durable before it is seen here. `log/replicafile.py` has the states and their rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.errors import WriteRefused
from penstock.log.replicafile import ReplicaFile, State, write_replica

if TYPE_CHECKING:
    from penstock.log.disk import Disk


class OwnFile:
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
