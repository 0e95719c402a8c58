"""The end at which a log is written: appends, rolls and syncs.

A write goes to the kernel at once and is safe after the next sync; the log keeps both ends, and
whoever acknowledges looks at the one that the topic's durability asks for.

A sealed segment gives its prepared room back. The bytes do no harm where they stay, so a failure
stops nothing; it takes room that retention counts as free, so it is tried again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from penstock.errors import LogDamaged, PartitionStopped, StorageError, WriteRefused
from penstock.kernel.layout import HEADER_BYTES, is_short, name_at
from penstock.log import names
from penstock.log.copies import check_append
from penstock.log.damage import Damage, DamageList
from penstock.log.disk import Disk, File
from penstock.log.epochs import BatchName, Epochs
from penstock.log.head import LogOwner
from penstock.log.index import SparseIndex
from penstock.log.mark import Mark, MarkFile
from penstock.log.names import spare_name
from penstock.log.opening import Opened
from penstock.log.reader import ReadableLog
from penstock.log.recovery import RemovedTail
from penstock.log.segment import LogSettings, Preallocation, Segment
from penstock.log.sync import SyncJob, run_here

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.kernel import BatchHeader, LogEnd


_NAMES_MAX = 8  # a leader asks for those of appends on their way, a follower for the last one
_NEVER_NS = (1 << 63) - 1  # the latest that the kernel can compare


class WrittenLog(ReadableLog):
    __slots__ = (
        "_active",
        "_directory_dirty",
        "_disk",
        "_guarded",
        "_index_next",
        "_job",
        "_last_position",
        "_mark_file",
        "_marked",
        "_marked_ns",
        "_names",
        "_owner",
        "_preallocation",
        "_roll_after_ns",
        "_settings",
        "_spares",
        "_torn",
        "_untrimmed",
        "agreed_end",
        "last_id",
        "last_timestamp_ns",
        "leftovers",
        "refusal",
        "removed_tail",
        "stopped",
        "sync_trouble",
        "synced_end",
        "unsynced_bytes",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        settings: LogSettings,
        opened: Opened,
        wall_ns: int,
        owner: LogOwner | None,
    ) -> None:
        damage = DamageList(opened.damaged, opened.lost)
        epochs = Epochs(opened.segments, opened.newest_epoch)
        super().__init__(directory, opened.segments, damage, epochs, opened.written_end)
        self._owner = owner
        self.removed_tail: RemovedTail | None = opened.removed_tail
        self.leftovers = opened.leftovers
        self.synced_end = opened.synced_end
        self.agreed_end = opened.agreed_end  # the highest synced end that any header tells of
        self.last_id = opened.last_id
        self.last_timestamp_ns = opened.last_timestamp_ns
        self.refusal: Damage | None = opened.refusal  # the end is corrupt
        self.stopped: PartitionStopped | None = opened.stopped
        self.unsynced_bytes = 0
        self._disk = disk
        self._settings = settings
        self._active = opened.segments.active
        self._preallocation = Preallocation(settings, opened.prepared)
        self._last_position = -1  # of the last batch, once it was written here
        # Of the last few batches, by where they end: the name, or the header that it is in.
        self._names: dict[int, BatchName | bytes] = {}
        self._untrimmed: list[Segment] = []  # sealed ones that keep their prepared room
        self._spares = Spares(disk, directory, settings.spare_segments_max)
        self._mark_file = MarkFile(
            disk, os.path.join(directory, names.MARK), opened.mark_state.next_copy
        )
        self._marked: Mark | None = opened.mark_state.mark
        self._marked_ns = wall_ns
        self._job: SyncJob | None = None
        self._directory_dirty = False
        self.sync_trouble = ""  # why the last sync is to be tried again
        self._torn = False  # a write has failed, and its removal is not known to be on the disk
        # Writing looks at this one flag; it is set while anything out of the common is to be done.
        self._guarded = True
        self._roll_after_ns = _NEVER_NS
        self._index_next = 0
        self._settle_active()

    # --- writing ---

    def write(
        self,
        buffers: Sequence[Buffer],
        length: int,
        base_offset: int,
        count: int,
        base_id: int,
        last_id: int,
        timestamp_ns: int,
        inner: Sequence[tuple[int, int, int]] = (),
        epoch: int = 0,
        synced_end: int = 0,
    ) -> None:
        """Append at the tail in one gathered write: one batch, or several. `inner` has the offset,
        the position in the append and the id of each batch but the first. `epoch` and `synced_end`
        go into the headers: that of the leader, and the end that every member has."""
        epochs = self._epochs
        if epoch < epochs.newest:
            epochs.check(epoch)
        if self._guarded or base_offset != self.written_end:
            self._before_write(base_offset)
        active, first = self._active, buffers[0]
        position = active.data_bytes
        if position and (
            timestamp_ns > self._roll_after_ns
            or position + length > self._settings.segment_bytes_max
        ):
            self._roll_or_refuse()
            active = self._active
            position = 0
        begun = position
        if not position:
            head = active.begin()
            buffers, begun = (head, *buffers), len(head)
        end = begun + length
        if end > self._preallocation.prepared:
            self._preallocation.extend(active, end, end - position)
        try:
            file = active.file
            file.pinned = True  # until it is synced
            file.pwritev(buffers, position, end - position)
        except OSError as error:
            raise self.write_failed(error) from error
        if position >= self._index_next:
            self._segments.active_index.add(base_offset, begun, timestamp_ns, base_id)
            self._index_next = begun + self._settings.index_every_bytes
        for offset, at, id in inner:
            self._index_one(offset, begun + at, timestamp_ns, id)
        if not position:
            self._roll_after_ns = timestamp_ns + self._settings.segment_age_max_ns
        if epoch != epochs.newest:
            epochs.begin(epoch, base_offset)
        active.data_bytes = end
        self._last_position = begun + inner[-1][1] if inner else begun
        if synced_end > self.agreed_end:
            self.agreed_end = synced_end
        self.written_end = base_offset + count
        if not inner and type(first) is bytes:  # who copies this log soon asks what it ends with
            self._keep_name(first[:HEADER_BYTES])
        self.last_id = last_id
        self.last_timestamp_ns = timestamp_ns
        self.unsynced_bytes += length

    def lend(self, end: LogEnd, written_end: int) -> bool:
        """The end of this log, for the kernel to write batches there by itself, and to commit them
        by that. It is given back by `take_back` before anything else is done with the log. False:
        there is more to do than to write."""
        active = self._active
        position = active.data_bytes
        if (
            self._guarded
            or not position
            or position >= self._index_next
            or end.epoch != self._epochs.newest
            or written_end != self.written_end
        ):
            return False
        end.file = active.file
        end.file.pinned = True  # until it is synced
        end.position = position
        end.prepared = self._preallocation.prepared
        end.index_position = self._index_next
        end.age_end_ns = min(self._roll_after_ns, _NEVER_NS)
        end.synced_end = self.synced_end
        end.last_timestamp_ns = self.last_timestamp_ns
        return True

    def take_back(self, end: LogEnd, written_end: int) -> int:
        """Returns how many bytes were written."""
        active = self._active
        length = end.position - active.data_bytes
        if length:
            active.data_bytes = end.position
            self._last_position = end.last_position
            self.agreed_end = max(self.agreed_end, end.synced_end)
            self.written_end = written_end
            self.last_id = end.last_id
            self.last_timestamp_ns = end.last_timestamp_ns
            self.unsynced_bytes += length
        return length

    def write_failed(self, error: OSError) -> WriteRefused:
        """Also of the kernel's write at the lent end, after `take_back`. The half-written bytes are
        removed, if that can be done; if not, a later write overwrites them."""
        with suppress(OSError):
            self._active.file.truncate(self._active.data_bytes)
        self._preallocation.prepared = self._active.data_bytes
        self._torn = self._guarded = True
        return WriteRefused(self._active.path, f"the write failed: {error}")

    def append_batches(self, batches: Sequence[Buffer], previous: BatchName) -> list[BatchHeader]:
        """Append a leader's batches unchanged, in one gathered write; `copies.py` has the rules.
        Each buffer holds one whole batch or several. `previous` is the batch that the leader has
        before them. Returns the headers. Raises AppendRefused, and the errors of `write`; then the
        log is unchanged."""
        is_empty = self.written_end == self.start_offset
        last = None if is_empty else self.last()
        newest = self._epochs.newest
        append = check_append(self.path, batches, previous, self.written_end, last, newest)
        first = append.checked[0].header
        self.write(
            batches,
            append.length,
            first.base_offset,
            append.count,
            first.base_id,
            append.checked[-1].last_id,
            first.timestamp_ns,
            (),
            first.leader_epoch,
        )
        begun = self._active.data_bytes - append.length
        for position, header in append.checked[1:]:
            at = begun + position
            self._index_one(header.base_offset, at, header.timestamp_ns, header.base_id)
            if header.leader_epoch != self._epochs.newest:
                self._epochs.begin(header.leader_epoch, header.base_offset)
        end = append.checked[-1]
        self._last_position = begun + end.position
        in_buffer = end.position - append.length + memoryview(batches[-1]).nbytes
        self._keep_name(BatchName._make(name_at(batches[-1], in_buffer)))
        self.last_timestamp_ns = end.header.timestamp_ns
        headers = [one.header for one in append.checked]
        claimed = max(header.synced_end for header in headers)
        self.agreed_end = max(self.agreed_end, min(claimed, self.written_end))
        return headers

    def _index_one(self, offset: int, position: int, timestamp_ns: int, id: int) -> None:
        if position >= self._index_next:
            self._segments.active_index.add(offset, position, timestamp_ns, id)
            self._index_next = position + self._settings.index_every_bytes

    def _before_write(self, base_offset: int) -> None:
        self.check_writable()
        if base_offset != self.written_end:
            raise ValueError(f"a batch at offset {base_offset}, the log ends at {self.written_end}")
        if self._marked is not None and self._marked.clean:
            # From here on bytes behind the tail are an unfinished write and nothing to wonder at.
            self._write_mark(self._marked._replace(clean=False))
        if self._torn:
            self._remove_torn()
        self._guarded = False

    def _write_mark(self, mark: Mark) -> None:
        try:
            self._mark_file.write(mark)
        except OSError as error:
            raise WriteRefused(self._mark_file.path, f"the write failed: {error}") from error
        self._marked = mark

    def _remove_torn(self) -> None:
        """The rest of a failed write is removed durably before other bytes take its position. Else
        a power loss could undo the removal, lose the later write, and keep the write after that: a
        batch that no other replica has, before batches that all of them have."""
        active = self._active
        try:
            active.file.truncate(active.data_bytes)
        except OSError as error:
            raise WriteRefused(active.path, f"a torn write stays: {error}") from error
        try:
            active.file.fdatasync()
        except OSError as error:
            self._stop(f"a sync failed: {error}")
            self.check_writable()
        self._preallocation.prepared = active.data_bytes
        self._torn = False

    def would_take(self, length: int) -> bool:
        """After a refused write: would a write of `length` bytes succeed now? It leaves prepared
        space."""
        active = self._active
        try:
            self._before_write(self.written_end)
            if active.data_bytes and self._roll_after_ns < 0:
                self._roll_or_refuse()
                active = self._active
            self._preallocation.try_extend(active, active.data_bytes, length)
        except (OSError, StorageError):
            return False
        return True

    def check_writable(self) -> None:
        """Raise the error that `write` would raise in the present state of the log."""
        if self.stopped is not None:
            raise PartitionStopped(self.stopped.where, self.stopped.reason)
        if self.refusal is not None:
            from_offset, to_offset, reason = self.refusal
            raise LogDamaged(self.path, reason, from_offset, to_offset)

    def last(self) -> BatchName:
        """The name of the last batch: the next one must follow this very one."""
        name = self._recent_name(self.written_end)
        if name is None:
            if self._last_position < 0:
                return self._last_known()
            name = self.name_at(self._active, self._last_position)
            self._keep_name(name)
        return name

    def _keep_name(self, name: BatchName | bytes) -> None:
        self._names[self.written_end] = name
        if len(self._names) > _NAMES_MAX:
            del self._names[next(iter(self._names))]

    def name_before(self, offset: int) -> BatchName | None:
        """The name of the batch that ends there; None where none does."""
        if offset == self.written_end:
            return self.last()
        if not self.start_offset <= offset < self.written_end:
            return None
        if offset == self.start_offset:
            return BatchName(0, offset, 0)  # also where retention removed the batch before
        name = self._recent_name(offset)
        if name is not None:
            return name
        name, end = self.batch_at(offset - 1)
        return name if end == offset else None

    def _recent_name(self, offset: int) -> BatchName | None:
        """The name of the batch that ends there, if it was the last one not long ago."""
        name = self._names.get(offset)
        if type(name) is not bytes:
            return cast("BatchName | None", name)
        if len(name) < HEADER_BYTES and not is_short(name, 0):  # it was written in parts
            del self._names[offset]
            return None
        found = self._names[offset] = BatchName._make(name_at(name, 0))
        return found

    def _roll_or_refuse(self) -> None:
        try:
            self._roll()
        except OSError as error:
            raise WriteRefused(self.path, f"no new segment could be made: {error}") from error

    def _roll(self) -> None:
        """Seal the active segment and begin the next. The old one is synced by the next job, before
        anything in the new one: this thread does not wait for it."""
        new = Segment(self._disk, self.path, self.written_end, self._owner)
        self._directory_dirty = True
        self._last_position = -1
        # A failure may leave the new file: then it must be the next one, so each write rolls first.
        self._roll_after_ns = -1
        file, prepared = self._spares.make_file(new.path)
        new.adopt(file)
        old = self._active
        old.unsynced = True
        if self._preallocation.prepared > old.data_bytes:
            try:
                old.file.truncate(old.data_bytes)
            except OSError:
                self._untrimmed.append(old)
        self._segments.save_index(self._segments.active_index)
        self._segments.append(new, SparseIndex(new.index_path))
        self._active = new
        self._preallocation = Preallocation(self._settings, prepared)
        self._settle_active()

    def _settle_active(self) -> None:
        index = self._segments.active_index
        self._index_next = (
            index.positions[-1] + self._settings.index_every_bytes if len(index) else 0
        )
        self._roll_after_ns = _NEVER_NS
        if self._active.data_bytes and len(index):
            self._roll_after_ns = index.timestamps[0] + self._settings.segment_age_max_ns

    # --- syncing ---

    @property
    def busy(self) -> bool:
        """A sync job uses the log's files: there is one at a time."""
        return self._job is not None

    def sync_begin(self) -> SyncJob | None:
        """The next sync; None when everything is safe, a job is running, or the log has stopped."""
        if self._job is not None or self.stopped is not None:
            return None
        sealed = self._segments.unsynced()
        if self.written_end == self.synced_end and not sealed:
            return None
        self._job = SyncJob(
            self._disk,
            sealed,
            self._active.file,
            self.path if self._directory_dirty else None,
            self.written_end,
            self.unsynced_bytes,
        )
        self._directory_dirty = False
        return self._job

    def sync_end(self, job: SyncJob, error: OSError | None) -> None:
        """The job has run. A failed sync of data stops the partition for good: `stopped` has the
        reason. After any other failure `sync_trouble` has it, and the next job syncs the same
        again."""
        if job is not self._job:
            raise ValueError("this sync job is not the one under way")
        self._job = None
        self.sync_trouble = f"a sync is tried again: {error}" if error is not None else ""
        if error is not None:
            self._directory_dirty = True
            if not job.retryable:
                self._stop(f"a sync failed: {error}")
            return
        for segment in job.sealed:
            segment.unsynced = False
            segment.unpin()
        self.synced_end = job.end_offset
        self.unsynced_bytes -= job.unsynced_bytes
        if self.synced_end == self.written_end:
            self._active.unpin()

    def sync(self) -> None:
        """A whole sync in this thread. Raises StorageError."""
        while (job := self.sync_begin()) is not None:
            if run_here(self, job) is not None:
                break
        if self.stopped is not None:
            self.check_writable()
        if self.sync_trouble:
            raise StorageError(self.path, self.sync_trouble)

    def _stop(self, reason: str) -> None:
        self.stopped = PartitionStopped(self.path, reason)
        self._guarded = True


class Spares:
    """Recycled segment files of one partition.

    Only files whose offsets were all below everything the log will write become spares, so their
    old batches can never be taken for new ones. A spare found at a start is dropped: after a power
    loss the name may stand for a file that had already been put to use again.

    A file that was lent to a reader is never recycled: pages of it may still wait in a socket, and
    what is written over them would go to the client as if it were its answer. Neither is a segment
    found at a start, for the process before this one may have sent from it: the system goes on
    sending when a process is gone.
    """

    __slots__ = ("_directory", "_disk", "_numbers", "_spares_max", "_unsettled")

    def __init__(self, disk: Disk, directory: str, spares_max: int) -> None:
        self._disk = disk
        self._directory = directory
        self._numbers: list[int] = []
        self._spares_max = spares_max
        # A removal that is not durable yet: the segment's index, and the spare's number.
        self._unsettled: tuple[str, int | None] | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def remove(self, segment: Segment) -> None:
        """Take a segment's file out of the log: it becomes a spare, or is unlinked, as one is that
        was lent. On failure nothing has changed. `settle` must follow, and succeed before the next
        removal."""
        if self._unsettled is not None:
            raise ValueError(f"{self._directory}: a removal before this one is not durable")
        segment.close()
        number = None
        if segment.was_lent or len(self._numbers) >= self._spares_max:
            self._disk.unlink(segment.path)
        else:
            number = max(self._numbers, default=-1) + 1
            self._disk.rename(segment.path, self._path(number))
        self._unsettled = segment.index_path, number

    def settle(self) -> None:
        """Make a removal durable, if one is not. A failure is retried. Only then may the spare be
        used: its file must never come back under its old name with new content."""
        if self._unsettled is None:
            return
        index_path, number = self._unsettled
        if self._disk.exists(index_path):
            self._disk.unlink(index_path)
        self._disk.sync_directory(self._directory)
        self._unsettled = None
        if number is not None:
            self._numbers.append(number)

    def drop_all(self) -> None:
        """Durable on return: their offsets may come again. Raises OSError."""
        self.settle()
        while self._numbers:
            self._disk.unlink(self._path(self._numbers[-1]))
            self._numbers.pop()
        self._disk.sync_directory(self._directory)

    def make_file(self, path: str) -> tuple[File, int]:
        """A file for a new segment, and the number of prepared bytes in it."""
        if not self._numbers:
            return self._disk.create(path), 0
        self._disk.rename(self._path(self._numbers[-1]), path)
        self._numbers.pop()
        try:
            file = self._disk.open(path, write=True)
        except OSError:
            self._disk.unlink(path)
            raise
        return file, file.size()

    def _path(self, number: int) -> str:
        return os.path.join(self._directory, spare_name(number))
