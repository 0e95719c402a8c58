"""Idempotent publishing: what each producer has stored in one partition, so that a retry stores
nothing twice and a gap is seen.

A producer gives its messages numbers: the first of an epoch is 0, and each publish names the number
of its first message. The header of each such batch carries producer, epoch and first sequence.
So the log itself says what was stored: this table is only its summary, and lives and dies with it,
by kill or power loss.

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

`stamped.py` has the publishes that are on their way.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from penstock import limits
from penstock.broker.health import Trouble
from penstock.errors import LogDamaged, StorageError, TopicDamaged, WriteRefused
from penstock.log.disk import Disk, read_file, replace_file
from penstock.log.names import PRODUCERS
from penstock.log.sealed import seal, unseal

if TYPE_CHECKING:
    from penstock.broker.context import Context
    from penstock.kernel import BatchHeader
    from penstock.log.partition import PartitionLog


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


class SnapshotJob:
    """Writes the file, in a sync thread."""

    def __init__(self, disk: Disk, path: str, data: bytes) -> None:
        self._disk = disk
        self._path = path
        self._data = data

    def run(self) -> None:
        replace_file(self._disk, self._path, self._data)
        self._disk.sync_directory(os.path.dirname(self._path))


class ProducerTable:
    """The table of one replica. `kept` False: an ephemeral topic, nothing outlives it. Raises
    TopicDamaged and StorageError when its file cannot be read."""

    def __init__(
        self,
        context: Context,
        topic_name: str,
        log: PartitionLog,
        kept: bool,
        touch: Callable[[], None],
    ) -> None:
        self.pending: Collection[int] = ()  # producers with publishes on their way
        self._context = context
        self._topic_name = topic_name
        self._log = log
        self._kept = kept
        self._touch = touch  # `settle` is to be called
        self._path = os.path.join(log.path, PRODUCERS)
        self._entries: dict[int, Entry] = {}
        self._begun = not kept  # the file is there
        self._end = 0  # of the file
        self._candidate: tuple[int, bytes] | None = None
        self._writing = False
        self._failed = False  # health says so: until the file was written
        self._counted = (0, 0)  # messages and bytes, when the last candidate was made
        file = read_producers(context.disk, log.path) if kept else None
        if file is not None:
            self._bring_back(file)

    def find(self, producer_id: int) -> Entry | None:
        return self._entries.get(producer_id)

    def note(self, producer_id: int, epoch: int, next_sequence: int, used_ns: int) -> None:
        """What is committed of this producer."""
        self._entries[producer_id] = Entry(producer_id, epoch, next_sequence, used_ns)

    def has_room(self) -> bool:
        """For one more producer."""
        if self._count() < limits.PRODUCERS_MAX:
            return True
        self._forget()
        return self._count() < limits.PRODUCERS_MAX

    def _count(self) -> int:
        return len(self._entries.keys() | set(self.pending))

    # --- the file ---

    def begin(self) -> None:
        """The file, before the first batch. Once in the life of a topic, so it is waited for."""
        if self._begun:
            return
        end = self._log.synced_end
        try:
            SnapshotJob(self._context.disk, self._path, self._encode(end)).run()
        except OSError as error:
            self._fail(error)
            raise WriteRefused(self._path, f"cannot be made: {error}") from error
        self._begun = True
        self._succeed(end)

    def _fail(self, error: OSError) -> None:
        self._failed = True
        self._touch()
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
        log = self._log
        self._entries = {entry.producer_id: entry for entry in file.producers}
        self._end = min(file.end, log.written_end)
        for header in _headers(log, max(self._end, log.start_offset)):
            if header.producer_id:
                next_sequence = header.first_sequence + header.count
                self.note(
                    header.producer_id, header.producer_epoch, next_sequence, header.timestamp_ns
                )
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

    def settle(self, committed_end: int, count: int, size: int) -> bool:
        """Write the file again when the log has grown enough since, by `count` messages and `size`
        bytes since the start, or when writing it failed. True when nothing is left of that."""
        if not self._kept or self._log.stopped is not None:
            return True
        if self._begun and not self._writing:
            self._write(committed_end, count, size)
        elif self._failed and not self._begun:
            with suppress(WriteRefused):  # health says so
                self.begin()
        return not (self._writing or self._failed)

    def _write(self, committed_end: int, count: int, size: int) -> None:
        if self._candidate is None and self._is_due(count, size):
            self._counted = (count, size)
            self._forget()
            self._candidate = (committed_end, self._encode(committed_end))
        if self._candidate is None or self._candidate[0] > self._log.synced_end:
            return
        (end, data), self._candidate = self._candidate, None
        self._writing = True
        job = SnapshotJob(self._context.disk, self._path, data)
        self._context.syncs.submit(job, lambda error: self._written(end, error))

    def _is_due(self, count: int, size: int) -> bool:
        return (
            self._failed
            or count - self._counted[0] >= limits.PRODUCERS_LOG_COUNT
            or size - self._counted[1] >= limits.PRODUCERS_LOG_BYTES
        )

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
            if entry.used_ns < oldest_ns and producer_id not in self.pending:
                del self._entries[producer_id]

    def wait(self) -> None:
        """Until no thread holds the file; before the topic's files are removed."""
        self._context.syncs.wait_for(lambda: self._writing)

    def close(self) -> None:
        """After all was written and synced, as far as that could be done: the next start need not
        read it."""
        self.wait()
        log = self._log
        end = log.written_end
        if not self._kept or not self._begun or end != log.synced_end:
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
