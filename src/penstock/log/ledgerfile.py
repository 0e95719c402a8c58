"""The bytes of a node's ledger, and what they mean after a stop of any kind.

The ledger is what a node must not forget: its generation, and for each replica the highest epoch
that it has promised to follow and the last record it acted on. A node that forgets an epoch can
acknowledge two leaders; so "there is nothing" must never be concluded from a corrupt file.

One file, appended to. Each record is what one turn changed, synced before anybody hears of it, and
says how much of the file was on the disk when it was written. The first record is a snapshot; a
file that has grown large is replaced by one, whole and in one step. A tidy stop appends a record
without entries, which vouches for all before it. What recovery concludes:

| found | concluded |
|---|---|
| all records are sound and in sequence | this is the ledger |
| the last one is not sound, and none behind it counts it as synced | cut short: it is removed |
| an unsound record that a later sound one counts as synced | lost |
| the first record is unsound: it was there before the file had its name | lost |
| records out of sequence | lost |
| no file where there should be one | lost |
| a sound record of an unknown kind, or another version | of a newer release: left alone |

That the very last synced record rotted cannot be told from a write that was cut short. The caller
has other witnesses of its own age: the epochs in the node's logs, and what the coordinator keeps of
its generation. A ledger that is older than one of them counts as lost, too.

Lost is not empty: the node goes on as one whose every replica must be copied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock import limits
from penstock.kernel import crc32c

MAGIC = b"PSL1"
FAMILY = MAGIC[:3]
RECORD = struct.Struct("<4sIIIQQ")  # magic, crc, length, flags, sequence, synced bytes
ENTRY = struct.Struct("<HHI")  # kind, 0, length of the payload
NODE = struct.Struct("<QQQ16s16s16sQQ")  # the fields of `Node`, in their order
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
    """It was written by a newer release."""


class Node(NamedTuple):
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
class State:
    node: Node
    replicas: dict[ReplicaKey, ReplicaEntry] = field(default_factory=dict)


class Read(NamedTuple):
    state: State
    end: int  # of the last sound record, in bytes
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


def encode_state(state: State) -> Iterator[bytes]:
    """The entries of a snapshot."""
    yield encode_node(state.node)
    for key, entry in state.replicas.items():
        yield encode_replica(key, entry)


def encode_node(node: Node) -> bytes:
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


def read_ledger(data: bytes) -> Read:
    """Raises Corrupt and Unknown."""
    if data[:3] == FAMILY and data[:4] != MAGIC:
        raise Unknown(f"its version is {data[3:4]!r}, and {MAGIC[3:]!r} is the one known here")
    state, position, sequence = State(Node()), 0, -1
    while (record := _sound(data, position)) is not None:
        if position == 0 and not record.flags & FLAG_SNAPSHOT:
            raise Corrupt("it does not begin with a snapshot")
        if position and record.sequence != sequence:
            raise Corrupt(f"record {record.sequence} stands at {position}, where {sequence} must")
        _apply(state, data, position, record)
        position, sequence = position + record.length, record.sequence + 1
    if position == 0:
        raise Corrupt("its first record is not sound")
    _look_for_witness(data, position)
    return Read(state, position, sequence)


def _sound(data: bytes, position: int) -> _Record | None:
    if len(data) - position < RECORD.size:
        return None
    magic, crc, length, *rest = RECORD.unpack_from(data, position)
    if magic != MAGIC or not RECORD.size <= length <= len(data) - position:
        return None
    if crc != crc32c(data[position + CRC_FROM : position + length]):
        return None
    return _Record(length, *rest)


def _look_for_witness(data: bytes, end: int) -> None:
    """Does a sound record behind `end` say that what should stand there was synced?"""
    position = end
    while (position := data.find(MAGIC, position + 1)) >= 0:
        record = _sound(data, position) if position % ALIGNMENT_BYTES == 0 else None
        if record is not None and record.synced_bytes > end:
            raise Corrupt(f"the record at {end} was synced, and is not sound")


def _apply(state: State, data: bytes, position: int, record: _Record) -> None:
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


def _apply_entry(state: State, kind: int, payload: bytes) -> None:
    if kind == KIND_NODE:
        state.node = Node._make(NODE.unpack(payload))
        return
    epoch, partition, identity = REPLICA.unpack_from(payload)
    key = ReplicaKey(identity.rstrip(b"\0").decode(), partition)
    if kind == KIND_GONE:
        state.replicas.pop(key, None)
    else:
        state.replicas[key] = ReplicaEntry(epoch, payload[REPLICA.size :])
