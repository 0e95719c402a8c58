"""Idempotent publishing: what each producer has stored in one partition, so that a retry stores
nothing twice and a gap is seen.

A producer gives its messages numbers: the first of an epoch is 0, and each publish names the number
of its first message. A publish that follows on what is stored (or is being stored) becomes a batch
of its own, whose header carries producer, epoch and first sequence. So the log itself says what
was stored: this table is only its summary, and lives and dies with it, by kill or power loss.

The file `producers` holds the table as of an offset, its `end`. A start reads the file and then
the log from there on. Two rules make that right:

- The file is there, and durable, before the first such batch is written. No file: no producers.
- `end` is never above the synced end when the file is written, so the table never knows more than
  the log keeps. Retention lets nothing go at or above `end`.

| the crash comes | the file says | after the start |
|---|---|---|
| before the first file is durable | nothing | nothing was stored; a retry is a first try |
| file written, batch not | an older end | the same |
| batch in the log, not acknowledged | an older end | a retry is answered as a repeat |
| while the file is replaced | the old end or the new | the log from there gives the same |
| never, but bits rot behind `end` | | a producer whose last batch is unreadable meets a gap |

A batch that fails takes along all later ones of its producer: they would leave a gap.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock import limits
from penstock.broker.health import Trouble
from penstock.broker.traced import Stored
from penstock.errors import (
    LogDamaged,
    PenstockError,
    ProducerFenced,
    Refused,
    SequenceGap,
    StorageError,
    TopicDamaged,
    WriteRefused,
)
from penstock.kernel import Section, encode_batch
from penstock.log.disk import Disk, read_file, replace_file
from penstock.log.names import PRODUCERS
from penstock.log.sealed import seal, unseal

if TYPE_CHECKING:
    from penstock.broker.context import Context
    from penstock.broker.partition import Partition
    from penstock.kernel import BatchHeader
    from penstock.log.partition import PartitionLog

SEQUENCE_END_MAX = (1 << 32) - 1
# The error; else where the first message lies, or None: it was stored before, nobody knows where.
StampedDone = Callable[[PenstockError | None, Stored | None], None]


class Stamp(NamedTuple):
    """What an idempotent publish says of itself."""

    producer_id: int
    epoch: int
    sequence: int  # of its first message


class Entry(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """One producer, as stored."""

    producer_id: int
    epoch: int
    next_sequence: int
    used_ns: int


class ProducersFile(msgspec.Struct, forbid_unknown_fields=True):
    end: int  # all below it is in the table
    producers: list[Entry]
    version: int = 1


def read_producers(disk: Disk, partition_path: str) -> ProducersFile | None:
    """None without a file. Raises TopicDamaged: without the table a retry would be stored twice."""
    path = os.path.join(partition_path, PRODUCERS)
    if not disk.exists(path):
        return None
    try:
        data = read_file(disk, path, limits.PRODUCERS_FILE_BYTES_MAX)
        return msgspec.json.decode(unseal(data), type=ProducersFile)
    except OSError as error:
        kind = TopicDamaged if error.errno == errno.EIO else StorageError
        raise kind(path, f"the table of producers cannot be read: {error}") from error
    except (ValueError, msgspec.DecodeError) as error:
        raise TopicDamaged(path, f"the table of producers is corrupt: {error}") from error


class _Pending:
    """A batch on its way to the disk."""

    __slots__ = ("count", "done", "repeats", "stamp", "where")

    def __init__(self, stamp: Stamp, count: int, done: StampedDone) -> None:
        self.stamp = stamp
        self.count = count
        self.done = done
        self.repeats: list[StampedDone] = []  # who has sent the same meanwhile
        self.where = Stored(0, 0)  # known once it is written

    @property
    def next_sequence(self) -> int:
        return self.stamp.sequence + self.count


class SnapshotJob:
    """Writes the file, in a sync thread."""

    def __init__(self, disk: Disk, path: str, data: bytes) -> None:
        self._disk = disk
        self._path = path
        self._data = data

    def run(self) -> None:
        replace_file(self._disk, self._path, self._data)
        self._disk.sync_directory(os.path.dirname(self._path))


class Producers:
    """The table of one partition. `kept` False: an ephemeral topic, nothing outlives it."""

    def __init__(
        self,
        context: Context,
        topic_name: str,
        partition: Partition,
        kept: bool,
        file: ProducersFile | None,
    ) -> None:
        self._context = context
        self._topic_name = topic_name
        self._partition = partition
        self._kept = kept
        self._path = os.path.join(partition.log.path, PRODUCERS)
        self._entries: dict[int, Entry] = {}
        self._pending: dict[int, deque[_Pending]] = {}
        self._begun = not kept  # the file is there
        self._end = 0  # of the file
        self._candidate: tuple[int, bytes] | None = None
        self._writing = False
        self._failed = False  # health says so: until the file was written
        self._counted = (0, 0)  # of the tail, when the last candidate was made
        if file is not None:
            self._bring_back(file)

    # --- publishing ---

    def publish(
        self,
        stamp: Stamp,
        bodies: list[bytes],
        due_ns: int,
        done: StampedDone,
        trace_ids: Sequence[int] = (),
    ) -> None:
        """`trace_ids`: none, or one for each body, where 0 is none. Raises SequenceGap,
        ProducerFenced and Refused. The caller has seen to all other limits."""
        repeated = self._find(stamp, len(bodies))
        if repeated is not None:
            if isinstance(repeated, _Pending):
                repeated.repeats.append(done)
            else:
                done(None, None)
            return
        self._begin()
        pending = _Pending(stamp, len(bodies), done)
        self._pending.setdefault(stamp.producer_id, deque()).append(pending)
        sections = _sections(len(bodies), due_ns, trace_ids)

        def encode(base_offset: int, base_id: int, wall_ns: int, synced_end: int) -> bytes:
            pending.where = Stored(base_offset, base_id)
            return encode_batch(
                bodies,
                base_offset,
                base_id,
                wall_ns,
                synced_end,
                0,
                stamp.producer_id,
                stamp.epoch,
                stamp.sequence,
                sections,
            )

        self._partition.publish_alone(
            encode, len(bodies), lambda error: self._ended(pending, error), stamp.producer_id
        )

    def is_repeat(self, stamp: Stamp, count: int) -> bool:
        """Was it stored, or is it on its way? Raises SequenceGap and ProducerFenced."""
        return self._find(stamp, count) is not None

    def _find(self, stamp: Stamp, count: int) -> Entry | _Pending | None:
        """Where this very publish is known from; None when it is new and in its place."""
        if stamp.sequence + count > SEQUENCE_END_MAX:
            raise Refused("the sequences of this epoch are used up: begin another one")
        entry = self._entries.get(stamp.producer_id)
        pending = self._pending.get(stamp.producer_id)
        newest = (pending[-1].stamp.epoch, pending[-1].next_sequence) if pending else None
        if newest is None:
            newest = (entry.epoch, entry.next_sequence) if entry else (stamp.epoch, 0)
        epoch, expected = newest
        if stamp.epoch < epoch:
            raise ProducerFenced(epoch)
        if stamp.epoch > epoch:
            expected = 0
        if stamp.sequence == expected:
            self._check_room(entry is None and not pending)
            return None
        end = stamp.sequence + count
        if end > expected:
            raise SequenceGap(expected)
        if entry is not None and entry.epoch == stamp.epoch and end <= entry.next_sequence:
            return entry
        return self._covering(pending, stamp.epoch, end)

    def _covering(self, pending: deque[_Pending] | None, epoch: int, end: int) -> _Pending | None:
        """The one whose safety makes all below `end` safe."""
        for one in pending or ():
            if one.stamp.epoch == epoch and end <= one.next_sequence:
                return one
        raise RuntimeError(f"{self._topic_name}: a repeat of nothing")

    def _check_room(self, new: bool) -> None:
        if not new or self._count() < limits.PRODUCERS_MAX:
            return
        self._forget()
        if self._count() >= limits.PRODUCERS_MAX:
            raise Refused(f"{limits.PRODUCERS_MAX} producers of this topic are remembered already")

    def _count(self) -> int:
        return len(self._entries.keys() | self._pending.keys())

    def _ended(self, pending: _Pending, error: PenstockError | None) -> None:
        """The batch is as safe as the topic's durability says, or was not stored."""
        producer_id = pending.stamp.producer_id
        row = self._pending[producer_id]
        row.remove(pending)
        if not row:
            del self._pending[producer_id]
        if error is None:
            self._store(pending.stamp, pending.count, self._context.clock.wall_ns())
        else:
            self._partition.drop_alone(producer_id, error)
        pending.done(error, None if error else pending.where)
        for done in pending.repeats:
            done(error, None)

    def _store(self, stamp: Stamp, count: int, used_ns: int) -> None:
        entry = Entry(stamp.producer_id, stamp.epoch, stamp.sequence + count, used_ns)
        self._entries[stamp.producer_id] = entry

    # --- the file ---

    def _begin(self) -> None:
        """The file, before the first batch. Once in the life of a topic, so it is waited for."""
        if self._begun:
            return
        end = self._partition.log.synced_end
        try:
            SnapshotJob(self._context.disk, self._path, self._encode(end)).run()
        except OSError as error:
            self._fail(error)
            raise WriteRefused(self._path, f"cannot be made: {error}") from error
        self._begun = True
        self._succeed(end)

    def _fail(self, error: OSError) -> None:
        self._failed = True
        self._context.touched[self._partition.tail.owner] = None  # `settle` tries it again
        reason = f"{self._path}: the table of producers cannot be written: {error}"
        self._context.health.report(self._topic_name, Trouble.PRODUCERS, reason)

    def _succeed(self, end: int) -> None:
        self._end = end
        if self._failed:
            self._failed = False
            self._context.health.clear(self._topic_name, Trouble.PRODUCERS)

    def _encode(self, end: int) -> bytes:
        entries = sorted(self._entries.values(), key=lambda entry: entry.producer_id)
        return seal(msgspec.json.encode(ProducersFile(end, entries)))

    def _bring_back(self, file: ProducersFile) -> None:
        self._begun = True
        log = self._partition.log
        self._entries = {entry.producer_id: entry for entry in file.producers}
        self._end = min(file.end, log.written_end)
        for header in _headers(log, max(self._end, log.start_offset)):
            if header.producer_id:
                stamp = Stamp(header.producer_id, header.producer_epoch, header.first_sequence)
                self._store(stamp, header.count, header.timestamp_ns)
        if self._end < file.end and log.stopped is None:
            # what the file knew is gone from the log; it must not hide what comes in its place
            self._replace(log.synced_end)

    def _replace(self, end: int) -> None:
        try:
            SnapshotJob(self._context.disk, self._path, self._encode(end)).run()
        except OSError as error:
            raise StorageError(self._path, f"cannot be written: {error}") from error
        self._end = end

    @property
    def floor(self) -> int | None:
        """Retention must keep what is at or above it; None: there is no bound."""
        return self._end if self._kept and self._begun else None

    # --- housekeeping and the end ---

    def settle(self) -> bool:
        """Write the file again when the log has grown enough since, or when writing it failed. True
        when nothing is left of that."""
        if not self._kept or self._partition.stopped:
            return True
        if self._begun and not self._writing:
            self._write()
        elif self._failed and not self._begun:
            with suppress(WriteRefused):  # health says so
                self._begin()
        return not (self._writing or self._failed)

    def _write(self) -> None:
        if self._candidate is None:
            self._make_candidate()
        if self._candidate is None or self._candidate[0] > self._partition.log.synced_end:
            return
        (end, data), self._candidate = self._candidate, None
        self._writing = True
        job = SnapshotJob(self._context.disk, self._path, data)
        self._context.syncs.submit(job, lambda error: self._written(end, error))

    def _make_candidate(self) -> None:
        tail = self._partition.tail
        count, size = tail.message_count, tail.message_bytes
        if not self._failed and (
            count - self._counted[0] < limits.PRODUCERS_LOG_COUNT
            and size - self._counted[1] < limits.PRODUCERS_LOG_BYTES
        ):
            return
        self._counted = (count, size)
        self._forget()
        end = tail.committed_end
        self._candidate = (end, self._encode(end))

    def _written(self, end: int, error: OSError | None) -> None:
        self._writing = False
        if error is None:
            self._succeed(end)
        else:
            self._fail(error)

    def _forget(self) -> None:
        """Producers that were not heard of for long."""
        oldest_ns = self._context.clock.wall_ns() - limits.PRODUCER_FORGET_NS
        for producer_id, entry in list(self._entries.items()):
            if entry.used_ns < oldest_ns and producer_id not in self._pending:
                del self._entries[producer_id]

    def wait(self) -> None:
        """Until no thread holds the file; before the topic's files are removed."""
        self._context.syncs.wait_for(lambda: self._writing)

    def close(self) -> None:
        """After the log was closed in order: the next start need not read it."""
        self.wait()
        log = self._partition.log
        end = log.written_end
        if not self._kept or not self._begun or self._partition.stopped or end != log.synced_end:
            return
        self._forget()
        try:
            self._replace(end)
        except StorageError as error:
            self._context.health.report(self._topic_name, Trouble.PRODUCERS, str(error))


def _headers(log: PartitionLog, offset: int) -> Iterator[BatchHeader]:
    """Of all batches from `offset` on. A corrupt one is stepped over: a producer whose last
    publishes are lost in it gets a gap, never a wrong OK; what it sends again of them is stored
    again."""
    while offset < log.written_end:
        try:
            for header, _ in log.batches(offset):
                yield header
                offset = header.base_offset + header.count
        except LogDamaged as error:
            offset = max(error.to_offset, offset + 1)


def _sections(
    count: int, due_ns: int, trace_ids: Sequence[int]
) -> dict[int, dict[int, int | bytes]] | None:
    """What the batch says of its messages besides their bodies."""
    sections: dict[int, dict[int, int | bytes]] = {}
    if due_ns:
        sections[Section.DUE] = dict.fromkeys(range(count), due_ns)
    if any(trace_ids):
        sections[Section.TRACE] = {n: one for n, one in enumerate(trace_ids) if one}
    return sections or None
