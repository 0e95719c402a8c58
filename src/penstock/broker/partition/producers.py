"""Idempotent publishing: the batches that each producer has stored in one partition, so that a
retry stores nothing twice and a gap is found.

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

Of a replica of several the table is as of the committed end, since a new leader may cut what lies
above: a follower folds what it learns to be committed, a leader takes publishes once all that it
had is, and a learner is given its leader's table, as it cannot fold what retention has removed.
After an election that an operator forced, a cut may reach below that end: the table is folded
again. The file is made with the replica, so "before the first such batch" holds for batches that
come from a leader, too.

`idempotent.py` has the publishes that are on their way.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock import limits
from penstock.broker.health import Trouble
from penstock.errors import StorageError, TopicDamaged, WriteRefused
from penstock.log.disk import Disk, read_file, replace_file
from penstock.log.names import PRODUCERS
from penstock.log.seal import seal, unseal

if TYPE_CHECKING:
    from penstock.broker.partition.replica import Replica
    from penstock.kernel import BatchHeader


class Known(NamedTuple):
    """The committed state of one producer."""

    epoch: int
    next_sequence: int
    used_ns: int  # when it was last heard of

    def covers(self, epoch: int, end: int) -> bool:
        return epoch == self.epoch and end <= self.next_sequence


class ProducersFile(msgspec.Struct, forbid_unknown_fields=True):
    end: int  # all below it is in the table
    producers: list[tuple[int, int, int, int]]  # its id, and what is `Known` of it
    version: int = 1


def read_producers(disk: Disk, partition_path: str) -> ProducersFile | None:
    """None without a file. Raises TopicDamaged: without the table a retry would be stored twice."""
    path = os.path.join(partition_path, PRODUCERS)
    if not disk.exists(path):
        return None
    try:
        return decode_table(read_file(disk, path, limits.PRODUCERS_FILE_BYTES_MAX))
    except OSError as error:
        kind = TopicDamaged if error.errno == errno.EIO else StorageError
        raise kind(path, f"the table of producers cannot be read: {error}") from error
    except ValueError as error:
        raise TopicDamaged(path, f"the table of producers is corrupt: {error}") from error


def encode_table(end: int, table: dict[int, Known]) -> bytes:
    """The bytes of the file, also sent to a learner."""
    entries = [(producer_id, *known) for producer_id, known in sorted(table.items())]
    return seal(msgspec.json.encode(ProducersFile(end, entries)))


def decode_table(data: bytes) -> ProducersFile:
    """Raises ValueError."""
    return msgspec.json.decode(unseal(data), type=ProducersFile)


def _known(file: ProducersFile) -> dict[int, Known]:
    return {producer_id: Known(*known) for producer_id, *known in file.producers}


class SnapshotJob:
    def __init__(self, disk: Disk, path: str, data: bytes) -> None:
        self._disk = disk
        self._path = path
        self._data = data

    def run(self) -> None:
        replace_file(self._disk, self._path, self._data)
        self._disk.sync_directory(os.path.dirname(self._path))


class ProducerTable:
    """The table of one replica. `committed_end`: the known committed end of the log; None: all of
    it. Raises TopicDamaged and StorageError when its file is unreadable."""

    def __init__(self, replica: Replica, committed_end: int | None = None) -> None:
        self.pending: Collection[int] = ()  # producers with publishes on their way
        self._context = context = replica.topic.context
        self._label = replica.label
        self._log = log = replica.log
        self._kept = kept = replica.kept
        self._touch = replica.topic.touch  # `settle` is to be called
        self._path = os.path.join(log.path, PRODUCERS)
        self._begun = not kept  # the file is there
        self._end = 0  # of the file
        self._candidate: tuple[int, SnapshotJob] | None = None
        self.busy = False  # a thread holds the file
        self._failed = False  # health says so: until the file was written
        self._is_wanted = False  # though the log has not grown enough
        self._counted = (0, 0)  # messages and bytes, when the last candidate was made
        end = log.written_end if committed_end is None else committed_end
        file = read_producers(context.disk, log.path) if kept else None
        self._table: dict[int, Known] = {}  # of batches below this end
        self._committed = end
        self._tail: deque[BatchHeader] = deque()  # of producers' batches above it
        self._read_end = end  # of the log: batches below it were reported to the line
        if file is not None:
            self._bring_back(file, end)

    def find(self, producer_id: int) -> Known | None:
        return self._table.get(producer_id)

    def note(self, producer_id: int, epoch: int, next_sequence: int, used_ns: int) -> None:
        self._table[producer_id] = Known(epoch, next_sequence, used_ns)

    def has_room(self) -> bool:
        if self._count() < limits.PRODUCERS_MAX:
            return True
        self._forget()
        return self._count() < limits.PRODUCERS_MAX

    def _count(self) -> int:
        return len(self._table.keys() | set(self.pending))

    # --- the file ---

    def begin(self) -> None:
        """Before the first batch. It happens once for a topic, so the caller waits for it."""
        if self._begun:
            return
        end = min(self._committed, self._log.synced_end)
        try:
            self._job(end).run()
        except OSError as error:
            self._fail(error)
            raise WriteRefused(self._path, f"cannot be made: {error}") from error
        self._begun = True
        self._succeed(end)

    def _fail(self, error: OSError) -> None:
        self._failed = True
        self._touch()
        reason = f"{self._path}: the table of producers cannot be written: {error}"
        self._context.health.report(self._label, Trouble.PRODUCERS, reason)

    def _succeed(self, end: int) -> None:
        self._end = end
        if self._failed:
            self._failed = False
            self._context.health.clear(self._label, Trouble.PRODUCERS)

    def _job(self, end: int, table: dict[int, Known] | None = None) -> SnapshotJob:
        data = encode_table(end, self._table if table is None else table)
        return SnapshotJob(self._context.disk, self._path, data)

    def _bring_back(self, file: ProducersFile, committed_end: int) -> None:
        self._begun = True
        log = self._log
        self._end = min(file.end, log.written_end)
        self._fold(self._end, _known(file), max(committed_end, self._end))
        if self._end < file.end and log.stopped is None:
            # what the file knew is gone from the log; it must not hide what comes in its place
            self._replace(log.synced_end)

    def _fold(self, end: int, table: dict[int, Known], committed_end: int) -> None:
        """Fold the batches of the log from `end` on into `table`."""
        self._table, self._committed, self._tail = table, end, deque()
        self._read_end = max(end, self._log.start_offset)
        self.learn(committed_end)

    def _replace(self, end: int, table: dict[int, Known] | None = None) -> None:
        try:
            self._job(end, table).run()
        except OSError as error:
            raise StorageError(self._path, f"cannot be written: {error}") from error
        self._end = end

    def renew(self) -> None:
        """The file holds up retention: the next `settle` writes it again."""
        self._is_wanted = True
        self._touch()

    @property
    def floor(self) -> int | None:
        """Retention must keep the log from this offset on; None: no bound."""
        return self._end if self._kept and self._begun else None

    # --- one replica of several ---

    def appended(self, headers: Iterable[BatchHeader]) -> None:
        """For a follower: these batches were appended to the log."""
        for header in headers:
            if header.producer_id:
                self._tail.append(header)
            self._read_end = _end_of(header)

    def restored(self, headers: Iterable[BatchHeader]) -> None:
        """These were corrupt here, and came from another replica: they were stepped over when the
        log was folded, and perhaps when the file was written."""
        for header in headers:
            if header.producer_id:
                known, found = self.find(header.producer_id), _known_of(header)
                if known is None or known[:2] < found[:2]:
                    self._table[header.producer_id] = found
                self.renew()

    def _commit(self, end: int) -> None:
        """All batches below `end` are committed, and were reported."""
        while self._tail and _end_of(self._tail[0]) <= end:
            header = self._tail.popleft()
            self._table[header.producer_id] = _known_of(header)
        self._committed = max(self._committed, end)

    def learn(self, committed_end: int) -> None:
        """For a follower: the log is committed up to here. Batches that were appended without a
        report are read from it. A corrupt batch is skipped: a producer whose last publishes are
        lost in it gets a gap, never a wrong OK; its repeats are stored again. When another
        replica's copy replaces the batch, `restored` adds its entries."""
        if self._read_end < self._log.written_end:
            self.appended(header for header, _ in self._log.intact_batches(self._read_end))
            self._read_end = self._log.written_end  # though its end may not be readable
        self._commit(min(committed_end, self._read_end))

    def leave_leadership(self, committed_end: int, noted_end: int) -> None:
        """For a former leader: its log above the committed end may be cut. Only batches below
        `noted_end` were noted: a leadership can end together with the commit of its last append."""
        self.pending = ()
        self._commit(noted_end)
        self._read_end = noted_end
        self.learn(committed_end)

    def cut(self, end: int) -> bool:
        """The log was cut. False: below the committed end of this table, as only an operator can
        cause; it was folded from the rest, and a leader's table has to be installed."""
        self._read_end = min(self._read_end, end)
        while self._tail and _end_of(self._tail[-1]) > end:
            self._tail.pop()
        if end >= self._committed:
            return True
        self._fold(self._log.start_offset, {}, end)
        if self._begun and self._kept:
            self._replace(end)
        return False

    def snapshot(self, committed_end: int = 0) -> bytes:
        """For a learner, from a leader or a follower; as of `committed_end`, if that is later."""
        self._commit(committed_end)
        self._read_end = max(self._read_end, committed_end)
        return encode_table(self._committed, self._table)

    def install(self, snapshot: bytes) -> None:
        """For a learner: replace this table by another replica's. Its end must lie in the log here,
        so that nothing is missing behind it. Raises StorageError, and then the table is
        unchanged."""
        log = self._log
        try:
            file = decode_table(snapshot)
        except ValueError as error:
            raise StorageError(self._path, f"a table that was sent is corrupt: {error}") from error
        if not log.start_offset <= file.end <= log.synced_end:
            rule = f"the log here goes from {log.start_offset} to {log.synced_end}, synced"
            raise StorageError(self._path, f"a table that ends at {file.end} was sent: {rule}")
        if self._has(file):
            return
        self._replace(file.end, _known(file))
        self._begun = True
        self._fold(file.end, _known(file), max(self._committed, file.end))

    def _has(self, file: ProducersFile) -> bool:
        """The log here has the same entries, so the file need not: a returning node receives a
        table for each of its replicas, and waits for the disk in the loop."""
        self.learn(file.end)
        own = {id: known[:2] for id, known in self._table.items()}
        return self._begun and own == {id: known[:2] for id, known in _known(file).items()}

    # --- housekeeping and the end ---

    def settle(self, committed_end: int, count: int, size: int) -> bool:
        """Write the file again when the log has grown enough since, by `count` messages and `size`
        bytes since the start, or when writing it failed. True when nothing is left of that."""
        self._commit(committed_end)
        self._read_end = max(self._read_end, committed_end)
        if not self._kept or self._log.stopped is not None:
            return True
        if self._begun and not self.busy:
            self._write(committed_end, count, size)
        elif self._failed and not self._begun:
            with suppress(WriteRefused):  # health says so
                self.begin()
        return not (self.busy or self._failed)

    def _write(self, committed_end: int, count: int, size: int) -> None:
        if self._candidate is None and self._is_due(count, size):
            self._counted = (count, size)
            self._is_wanted = False
            self._forget()
            self._candidate = (committed_end, self._job(committed_end))
        if self._candidate is None or self._candidate[0] > self._log.synced_end:
            return
        (end, job), self._candidate = self._candidate, None
        self.busy = True
        self._context.syncs.submit(job, lambda error: self._written(end, error))

    def _is_due(self, count: int, size: int) -> bool:
        return (
            self._failed
            or self._is_wanted
            or count - self._counted[0] >= limits.PRODUCERS_LOG_COUNT
            or size - self._counted[1] >= limits.PRODUCERS_LOG_BYTES
        )

    def _written(self, end: int, error: OSError | None) -> None:
        self.busy = False
        if error is None:
            self._succeed(end)
        else:
            self._fail(error)

    def _forget(self) -> None:
        oldest_ns = self._context.clock.wall_ns() - limits.PRODUCER_FORGET_NS
        table = self._table
        for producer_id, known in list(table.items()):
            if known.used_ns < oldest_ns and producer_id not in self.pending:
                del table[producer_id]

    def wait(self) -> None:
        """Until no thread holds the file; before the topic's files are removed."""
        self._context.syncs.wait_for(lambda: self.busy)

    def close(self, committed_end: int) -> None:
        """After everything was written and synced: the next start need not read it."""
        self.wait()
        if not self._kept or not self._begun or committed_end > self._log.synced_end:
            return
        self._forget()
        try:
            self._replace(committed_end)
        except StorageError as error:
            self._context.health.report(self._label, Trouble.PRODUCERS, str(error))


def _end_of(header: BatchHeader) -> int:
    return header.base_offset + header.count


def _known_of(header: BatchHeader) -> Known:
    next_sequence = header.first_sequence + header.count
    return Known(header.producer_epoch, next_sequence, header.timestamp_ns)
