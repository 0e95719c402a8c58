"""`replica.json` of a partition's directory: the identity of the replica, and its state.

A partition that is kept on one node needs no such file. Where there are several replicas, a
directory that looks whole is not enough: it may be a copy, a restored backup, or have lost its end
with the power. So each replica has an id of its own, 64 random bits that are drawn again whenever
its content cannot be vouched for, and a state that says how far the log's own headers can be
believed (`recovery.py`):

| state | the replica | synced ends in headers |
|---|---|---|
| alone | is the only one | are its own |
| in_sync | is a member that each commit waits for | hold for its disk, too |
| copying | is being copied, and counts for nothing | speak of other disks |
| stopped | is given up, for `reason` (a sync failed, say) | speak of other disks |

`in_sync` is written after a sync of the whole log, and before the replica acknowledges anything as
a member; from the moment that its leader asks for that, the leader's headers count it in. It is
taken back before the replica is copied: a leader that has dropped a member sends it nothing that
was made since, before the replica says that it is `copying`, for those headers do not count it.
Both are durable on return.

The file is JSON with its own checksum, replaced whole. One that is corrupt, or of a version that is
not known here, is refused: taken for absent it would make the replica believe everything.
"""

import os
import re
from typing import Literal

import msgspec

from penstock import limits
from penstock.log import names
from penstock.log.disk import Disk, read_file, replace_file
from penstock.log.errors import ReplicaUnreadable
from penstock.log.seal import seal, unseal

VERSION = 1
State = Literal["alone", "in_sync", "copying", "stopped"]
_ID = re.compile(r"[0-9a-f]{16}")


class _Version(msgspec.Struct):
    version: int


class ReplicaFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    replica_id: str  # 16 hex digits
    identity: str  # of the topic
    state: State
    reason: str = ""  # why it is stopped
    version: int = -1  # set by `write_replica`

    @property
    def believes_headers(self) -> bool:
        return self.state in ("alone", "in_sync")


def replica_id(random_bits: int) -> str:
    """The name of a new replica."""
    return f"{random_bits & ((1 << 64) - 1):016x}"


def read_replica(disk: Disk, directory: str) -> ReplicaFile | None:
    """None when there is none. Raises ReplicaUnreadable and OSError."""
    path = os.path.join(directory, names.REPLICA)
    if not disk.exists(path):
        return None
    try:
        data = unseal(read_file(disk, path, limits.REPLICA_FILE_BYTES_MAX))
        found = msgspec.json.decode(data, type=_Version).version
        if found != VERSION:
            raise ValueError(f"its version is {found}, and {VERSION} is the one known here")
        file = msgspec.json.decode(data, type=ReplicaFile)
        _check(file)
    except (ValueError, msgspec.DecodeError) as error:
        raise ReplicaUnreadable(path, str(error)) from error
    return file


def write_replica(disk: Disk, directory: str, file: ReplicaFile) -> None:
    """Durable on return. Raises ValueError and OSError."""
    replace_file(disk, os.path.join(directory, names.REPLICA), encode_replica(file))
    disk.sync_directory(directory)


def encode_replica(file: ReplicaFile) -> bytes:
    """Raises ValueError."""
    _check(file)
    return seal(msgspec.json.encode(msgspec.structs.replace(file, version=VERSION)))


def _check(file: ReplicaFile) -> None:
    if not _ID.fullmatch(file.replica_id):
        raise ValueError(f"replica_id {file.replica_id!r} is not 16 hex digits")
    if not file.identity:
        raise ValueError("the topic has no identity")
    if (file.state == "stopped") != bool(file.reason):
        raise ValueError(f"a reason belongs to the state stopped: {file.state}, {file.reason!r}")
