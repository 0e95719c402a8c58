"""A node's ledger: facts that must be durable before the node acts on them, and what its bytes mean
after a stop of any kind.

It is what a node must not forget: its generation, and for each replica the highest epoch
that it has promised to follow and the last record it acted on. A node that forgets an epoch can
acknowledge two leaders; so "there is nothing" must never be concluded from a corrupt file.

One file, appended to. Each record is what one turn changed, synced before anybody hears of it, and
says how much of the file was on the disk when it was written. The first record is a snapshot; a
file that has grown large is replaced by one, whole and in one step. A tidy stop appends a record
without entries, which vouches for all before it. What recovery concludes:

| found | concluded |
|---|---|
| all records are intact and in sequence | this is the ledger |
| the last one is not intact, and none behind it counts it as synced | cut short: it is removed |
| a corrupt record that a later intact one counts as synced | lost |
| the first record is corrupt: it was there before the file had its name | lost |
| records out of sequence | lost |
| no file where there should be one | lost |
| an intact record of an unknown kind, or another version | of a newer release: left alone |

That the very last synced record is corrupt cannot be told from a write that was cut short. The
caller has other witnesses of its own age: the epochs in the node's logs, and what the coordinator
keeps of its generation. A ledger that is older than one of them counts as lost, too.

Lost is not empty: the node goes on as one whose every replica must be copied.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock import limits
from penstock.errors import StorageError, WriteRefused
from penstock.kernel import crc32c
from penstock.log import names
from penstock.log.disk import Disk, File, read_file, replace_file
from penstock.log.errors import LedgerLost, LedgerStopped, LedgerUnreadable
from penstock.log.sync import run_here


@dataclass(slots=True, eq=False)
class LedgerJob:
    """One sync, or the replacement of the file by a snapshot."""

    _disk: Disk
    _path: str
    _file: File
    number: int  # of the newest change in it
    changed: dict[ReplicaKey | None, None]
    end: int = 0  # of the file, once it has run
    snapshot: bytes = b""  # instead of a record
    renamed: bool = False

    def run(self) -> None:
        """May raise OSError."""
        if not self.snapshot:
            self._file.fdatasync()
            return
        replace_file(self._disk, self._path, self.snapshot)
        self.renamed = True
        self._disk.sync_directory(os.path.dirname(self._path))


class Ledger:
    """Made by `create`, `open` or `begin_again`.

    A change is seen at once and is safe when `synced_number` has reached the number that it got.
    All changes of a turn go out with one write and one sync; those that come while a sync is under
    way gather for the next.

    One thread makes all calls but `LedgerJob.run`.
    """

    # --- making one ---

    @classmethod
    def create(cls, disk: Disk, data_path: str, node: LedgerNode) -> Ledger:
        """For a node that has never had a ledger. Durable on return."""
        path = os.path.join(data_path, names.LEDGER)
        if disk.exists(path):
            raise WriteRefused(path, "there is a ledger already")
        try:
            snapshot = encode_record(encode_state(LedgerState(node)), 0, 0, is_snapshot=True)
            replace_file(disk, path, snapshot)
            disk.sync_directory(data_path)
        except OSError as error:
            raise WriteRefused(path, f"the ledger cannot be made: {error}") from error
        return cls.open(disk, data_path)

    @classmethod
    def open(cls, disk: Disk, data_path: str) -> Ledger:
        """Raises LedgerLost, LedgerUnreadable and StorageError."""
        path = os.path.join(data_path, names.LEDGER)
        if not disk.exists(path):
            raise LedgerLost(path, "there is none", is_missing=True)
        try:
            if (size := disk.size(path)) > limits.LEDGER_BYTES_READ_MAX:
                raise LedgerLost(path, f"{size} bytes are no ledger of ours")
            data = read_file(disk, path, limits.LEDGER_BYTES_READ_MAX)
            found = read_ledger(data)
            return cls(disk, path, found, _settled(disk, path, found, len(data)))
        except Corrupt as error:
            raise LedgerLost(path, str(error)) from error
        except Unknown as error:
            raise LedgerUnreadable(path, f"{error}; a newer release wrote it") from error
        except OSError as error:
            raise StorageError(path, f"the ledger cannot be opened: {error}") from error

    @classmethod
    def begin_again(cls, disk: Disk, data_path: str, node: LedgerNode) -> Ledger:
        """After LedgerLost. The corrupt file stays as `ledger.lost`; the caller makes learners of
        all replicas: this ledger knows none of their epochs."""
        path = os.path.join(data_path, names.LEDGER)
        try:
            if disk.exists(path):
                disk.rename(path, path + ".lost")
                disk.sync_directory(data_path)
        except OSError as error:
            raise WriteRefused(path, f"the lost ledger stays in the way: {error}") from error
        return cls.create(disk, data_path, node)

    def __init__(self, disk: Disk, path: str, found: LedgerRead, file: File) -> None:
        self.path = path
        self.synced_number = 0  # changes up to this one are durable
        self.stopped = ""  # why nothing more is written
        self._disk = disk
        self._file = file
        self._state = found.state
        self._end = self._synced_bytes = found.end
        self._sequence = found.sequence
        self._number = 0
        self._changed: dict[ReplicaKey | None, None] = {}  # None: the node itself
        self._job: LedgerJob | None = None
        self._roll_at = max(limits.LEDGER_BYTES_MAX, 2 * found.end)

    # --- contents ---

    @property
    def node(self) -> LedgerNode:
        return self._state.node

    @property
    def replicas(self) -> dict[ReplicaKey, ReplicaEntry]:
        """All replicas; do not change them."""
        return self._state.replicas

    def replica(self, key: ReplicaKey) -> ReplicaEntry | None:
        return self._state.replicas.get(key)

    # --- changes: each returns its number ---

    def set_node(self, node: LedgerNode) -> int:
        """Generation and revision never fall within a cluster: ValueError."""
        old = self._state.node
        if node.generation < old.generation:
            raise ValueError(f"generation {node.generation} after {old.generation}")
        is_same = (node.cluster, node.restorations) == (old.cluster, old.restorations)
        if node.revision < old.revision and is_same:
            raise ValueError(f"revision {node.revision} after {old.revision}")
        encode_node(node)  # it can be written
        self._state.node = node
        return self._change(None)

    def put(self, key: ReplicaKey, entry: ReplicaEntry) -> int:
        """The epoch of a replica never falls: ValueError."""
        old = self._state.replicas.get(key)
        if old is not None and entry.epoch < old.epoch:
            raise ValueError(f"epoch {entry.epoch} of {key} after {old.epoch}")
        encode_replica(key, entry)
        self._state.replicas[key] = entry
        return self._change(key)

    def drop(self, key: ReplicaKey) -> int:
        """The topic is deleted: its identity never returns."""
        self._state.replicas.pop(key, None)
        return self._change(key)

    def _change(self, key: ReplicaKey | None) -> int:
        self._changed[key] = None
        self._number += 1
        return self._number

    # --- syncing ---

    @property
    def busy(self) -> bool:
        return self._job is not None

    def sync_begin(self) -> LedgerJob | None:
        """Write all gathered entries, and return their sync; None when there are none, or a job is
        running. Raises LedgerStopped, and WriteRefused: then they stay gathered."""
        self._check_not_stopped()
        if self._job is not None or not self._changed:
            return None
        job = LedgerJob(self._disk, self.path, self._file, self._number, self._changed)
        if self._end > self._roll_at:
            entries = encode_state(self._state)
            job.snapshot = encode_record(entries, self._sequence, 0, is_snapshot=True)
            job.end = len(job.snapshot)
        else:
            job.end = self._end + self._append(map(self._encode, self._changed))
        self._changed = {}
        self._job = job
        return job

    def _append(self, entries: Iterable[bytes]) -> int:
        data = encode_record(entries, self._sequence, self._synced_bytes)
        try:
            self._file.pwritev((data,), self._end, len(data))
        except OSError as error:
            with suppress(OSError):  # else the next record overwrites the rest of this one
                self._file.truncate(self._end)
            raise WriteRefused(self.path, f"the write failed: {error}") from error
        return len(data)

    def _encode(self, key: ReplicaKey | None) -> bytes:
        if key is None:
            return encode_node(self._state.node)
        entry = self._state.replicas.get(key)
        return encode_gone(key) if entry is None else encode_replica(key, entry)

    def sync_end(self, job: LedgerJob, error: OSError | None) -> None:
        """The job has run. An error stops the ledger for good; but a snapshot that could not be
        made leaves the file as it was, and is tried later."""
        if job is not self._job:
            raise ValueError("this job is not the one under way")
        self._job = None
        if error is not None:
            self._changed = {**job.changed, **self._changed}
            if job.snapshot and not job.renamed:
                self._roll_at *= 2
            else:
                self.stopped = f"a sync failed: {error}"
            return
        if job.snapshot:
            self._adopt()
            self._roll_at = max(limits.LEDGER_BYTES_MAX, 2 * job.end)
        self._sequence += 1
        self._end = self._synced_bytes = job.end
        self.synced_number = job.number

    def _adopt(self) -> None:
        """The file of this name is another one now."""
        self._file.close()
        try:
            self._file = self._disk.open(self.path, write=True)
        except OSError as error:
            self.stopped = f"the new file cannot be opened: {error}"

    def sync(self) -> None:
        """A whole sync in this thread."""
        while (job := self.sync_begin()) is not None:
            run_here(self, job)
        self._check_not_stopped()

    def _check_not_stopped(self) -> None:
        if self.stopped:
            raise LedgerStopped(self.path, self.stopped)

    def close(self) -> None:
        """A clean stop: a last record covers all before it."""
        if self._job is not None:
            raise StorageError(self.path, "closed while a sync is under way")
        try:
            if not self.stopped:
                self.sync()
                self._append(())
                self._file.fdatasync()
        except OSError as error:
            raise StorageError(self.path, f"the stop is not clean: {error}") from error
        finally:
            self._file.close()
            self.stopped = self.stopped or "the ledger is closed"


def _settled(disk: Disk, path: str, found: LedgerRead, size: int) -> File:
    """The file, open, without a torn end, and on disk as it was read."""
    file = disk.open(path, write=True)
    try:
        if size > found.end:
            file.truncate(found.end)
        file.fdatasync()
    except OSError:
        file.close()
        raise
    return file


MAGIC = b"PSL1"
FAMILY = MAGIC[:3]
RECORD = struct.Struct("<4sIIIQQ")  # magic, crc, length, flags, sequence, synced bytes
ENTRY = struct.Struct("<HHI")  # kind, 0, length of the payload
NODE = struct.Struct("<QQQ16s16s16sQQ")  # the fields of `LedgerNode`, in their order
REPLICA = struct.Struct("<II24s")  # epoch, partition, identity; then the record
GONE = struct.Struct("<II24s")  # 0, partition, identity
FLAG_SNAPSHOT = 1
CRC_FROM = 8
ALIGNMENT_BYTES = 8
KIND_NODE, KIND_REPLICA, KIND_GONE = 1, 2, 3
IDENTITY_BYTES_MAX = 24


class Corrupt(Exception):
    """The ledger is lost: why."""


class Unknown(Exception):
    """A record of a newer release."""


class LedgerNode(NamedTuple):
    generation: int = 0  # of its starts
    incarnation: int = 0  # of its process: a random number
    revision: int = 0  # the highest of the coordinator's that it has seen
    cluster: bytes = bytes(16)  # uuid
    uuid: bytes = bytes(16)  # of the node: drawn when its directory was new
    boot: bytes = bytes(16)  # of its machine, when this generation started
    memory_lost_generation: int = 0  # that followed a power loss; 0: none has
    restorations: int = 0  # of the cluster's metadata


class ReplicaKey(NamedTuple):
    identity: str  # of the topic
    partition: int


class ReplicaEntry(NamedTuple):
    epoch: int
    record: bytes  # the last one it acted on; its meaning is the caller's


@dataclass(slots=True)
class LedgerState:
    node: LedgerNode
    replicas: dict[ReplicaKey, ReplicaEntry] = field(default_factory=dict)


class LedgerRead(NamedTuple):
    state: LedgerState
    end: int  # of the last intact record, in bytes
    sequence: int  # of the next record


# --- writing ---


def encode_record(
    entries: Iterable[bytes], sequence: int, synced_bytes: int, is_snapshot: bool = False
) -> bytes:
    content = b"".join(entries)
    length = RECORD.size + len(content)
    fields = (length, FLAG_SNAPSHOT if is_snapshot else 0, sequence, synced_bytes)
    blank = RECORD.pack(MAGIC, 0, *fields) + content
    return RECORD.pack(MAGIC, crc32c(blank[CRC_FROM:]), *fields) + content


def encode_state(state: LedgerState) -> Iterator[bytes]:
    """The entries of a snapshot."""
    yield encode_node(state.node)
    for key, entry in state.replicas.items():
        yield encode_replica(key, entry)


def encode_node(node: LedgerNode) -> bytes:
    for name in ("cluster", "uuid", "boot"):
        if len(getattr(node, name)) != 16:
            raise ValueError(f"{name} has 16 bytes, not {len(getattr(node, name))}")
    return _entry(KIND_NODE, NODE.pack(*node))


def encode_replica(key: ReplicaKey, entry: ReplicaEntry) -> bytes:
    if len(entry.record) > limits.LEDGER_RECORD_BYTES_MAX:
        most = limits.LEDGER_RECORD_BYTES_MAX
        raise ValueError(f"a record of {len(entry.record)} bytes: {most} may be kept")
    fixed = REPLICA.pack(entry.epoch, key.partition, _identity(key))
    return _entry(KIND_REPLICA, fixed + entry.record)


def encode_gone(key: ReplicaKey) -> bytes:
    return _entry(KIND_GONE, GONE.pack(0, key.partition, _identity(key)))


def _identity(key: ReplicaKey) -> bytes:
    name = key.identity.encode()
    if not 0 < len(name) <= IDENTITY_BYTES_MAX:
        raise ValueError(f"identity {key.identity!r}: 1 to {IDENTITY_BYTES_MAX} bytes")
    return name


def _entry(kind: int, payload: bytes) -> bytes:
    return ENTRY.pack(kind, 0, len(payload)) + payload + bytes(-len(payload) % ALIGNMENT_BYTES)


# --- reading ---


class _Record(NamedTuple):
    length: int
    flags: int
    sequence: int
    synced_bytes: int


def read_ledger(data: bytes) -> LedgerRead:
    """Raises Corrupt and Unknown."""
    if data[:3] == FAMILY and data[:4] != MAGIC:
        raise Unknown(f"its version is {data[3:4]!r}, and {MAGIC[3:]!r} is the one known here")
    state, position, sequence = LedgerState(LedgerNode()), 0, -1
    while (record := _intact(data, position)) is not None:
        if position == 0 and not record.flags & FLAG_SNAPSHOT:
            raise Corrupt("it does not begin with a snapshot")
        if position and record.sequence != sequence:
            raise Corrupt(f"record {record.sequence} stands at {position}, where {sequence} must")
        _apply(state, data, position, record)
        position, sequence = position + record.length, record.sequence + 1
    if position == 0:
        raise Corrupt("its first record is not intact")
    _look_for_witness(data, position)
    return LedgerRead(state, position, sequence)


def _intact(data: bytes, position: int) -> _Record | None:
    if len(data) - position < RECORD.size:
        return None
    magic, crc, length, *rest = RECORD.unpack_from(data, position)
    if magic != MAGIC or not RECORD.size <= length <= len(data) - position:
        return None
    if crc != crc32c(data[position + CRC_FROM : position + length]):
        return None
    return _Record(length, *rest)


def _look_for_witness(data: bytes, end: int) -> None:
    """Does an intact record behind `end` prove that the missing one was synced?"""
    position = end
    while (position := data.find(MAGIC, position + 1)) >= 0:
        record = _intact(data, position) if position % ALIGNMENT_BYTES == 0 else None
        if record is not None and record.synced_bytes > end:
            raise Corrupt(f"the record at {end} was synced, and is not intact")


def _apply(state: LedgerState, data: bytes, position: int, record: _Record) -> None:
    if record.flags & ~FLAG_SNAPSHOT:
        raise Unknown(f"the record at {position} has flags {record.flags:#x}")
    at, end = position + RECORD.size, position + record.length
    while at < end:
        kind, reserved, length = ENTRY.unpack_from(data, at)
        if reserved or kind not in (KIND_NODE, KIND_REPLICA, KIND_GONE):
            raise Unknown(f"the record at {position} has an entry of kind {kind}")
        at += ENTRY.size
        _apply_entry(state, kind, data[at : at + length])
        at += length + -length % ALIGNMENT_BYTES


def _apply_entry(state: LedgerState, kind: int, payload: bytes) -> None:
    if kind == KIND_NODE:
        state.node = LedgerNode._make(NODE.unpack(payload))
        return
    epoch, partition, identity = REPLICA.unpack_from(payload)
    key = ReplicaKey(identity.rstrip(b"\0").decode(), partition)
    if kind == KIND_GONE:
        state.replicas.pop(key, None)
    else:
        state.replicas[key] = ReplicaEntry(epoch, payload[REPLICA.size :])
