"""The log of one partition: a directory of segments, written at one end.

One thread (the loop's) makes all calls but `SyncJob.run`. A write goes to the kernel at once and
is safe after the next sync; the log keeps both ends, and whoever acknowledges looks at the one
that the topic's durability asks for.

Refusals are of three kinds. `WriteRefused`: this write was not done and the log is as before.
`LogDamaged`: the end of the log is corrupt, it only serves what is intact.
`PartitionStopped`: a sync failed, so the contents of the disk are unknown; it is final.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import takewhile

from penstock.errors import PartitionStopped, StorageError, WriteRefused
from penstock.log import names
from penstock.log.copies import check_restored, hole_at
from penstock.log.damage import forget_lost
from penstock.log.disk import Disk, replace_file
from penstock.log.epochs import NO_EPOCH, BatchName
from penstock.log.errors import CutRefused, RestoreRefused
from penstock.log.head import LogOwner
from penstock.log.mark import Mark, MarkFile
from penstock.log.opening import Opening
from penstock.log.scan import Batch
from penstock.log.segment import LogSettings, Preallocation, Segment
from penstock.log.segments import Segments
from penstock.log.sync import SyncJob, run_here
from penstock.log.truncation import Aside, Cutting, Removed
from penstock.log.writer import WrittenLog

__all__ = ["PartitionLog", "SyncJob"]
NO_FILES: Mapping[str, bytes] = {}


class PartitionLog(WrittenLog):
    """Made by `create` or `open`."""

    __slots__ = ()

    # --- making one ---

    @classmethod
    def create(
        cls,
        disk: Disk,
        path: str | os.PathLike[str],
        settings: LogSettings | None = None,
        owner: LogOwner | None = None,
        files: Mapping[str, bytes] = NO_FILES,
    ) -> PartitionLog:
        """A new, empty log, durable on return. Leftovers of an interrupted creation are taken over.
        `owner` goes into the head of each segment, `files` are kept beside it."""
        directory = os.fspath(path)
        try:
            make_directory(disk, directory, files)
        except OSError as error:
            raise WriteRefused(directory, f"the partition cannot be made: {error}") from error
        return cls.open(disk, directory, settings, owner=owner)

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str | os.PathLike[str],
        settings: LogSettings | None = None,
        wall_ns: int = 0,
        owner: LogOwner | None = None,
    ) -> PartitionLog:
        """Open the log of a known partition, recovered after any kind of stop: see `report`.
        Segments of another log than `owner` are not served."""
        directory = os.fspath(path)
        settings = settings or LogSettings()
        try:
            opened = Opening(disk, directory, settings, owner).run()
        except OSError as error:
            raise StorageError(directory, f"the log cannot be opened: {error}") from error
        return cls(disk, directory, settings, opened, wall_ns, owner)

    # --- retention ---

    def retain(
        self, floor_offset: int, wall_ns: int, age_max_ns: int, bytes_max: int, old_end: int = 0
    ) -> int:
        """Remove whole sealed segments, oldest first, that are free (all below `floor_offset`)
        and that are older than `age_max_ns` or beyond `bytes_max` of such data. Messages below
        `old_end` are older, whatever their timestamps. Returns how many were removed."""
        if self.stopped is not None or self.refusal is not None:
            return 0
        start = self.start_to_keep(floor_offset, wall_ns, age_max_ns, bytes_max, old_end)
        removed = self._remove_below(start)
        try:
            for segment in self._untrimmed:
                if segment in self._segments:
                    segment.file.truncate(segment.data_bytes)
            self._untrimmed.clear()
        except OSError as error:
            reason = f"room of sealed segments could not be given back: {error}"
            raise StorageError(self.path, reason) from error
        return removed

    def _roll_by_age(self, floor_offset: int, wall_ns: int, age_max_ns: int, old_end: int) -> None:
        """A segment without further writes would never be sealed by a write."""
        idle = self._job is None and self.synced_end == self.written_end <= floor_offset
        age_ns = min(age_max_ns, self._settings.segment_age_max_ns)
        first = self._active.first_header() if idle and self._active.data_bytes else None
        if first is not None and (
            first.timestamp_ns + age_ns <= wall_ns or self.written_end <= old_end
        ):
            self._roll()
            self.sync()

    def _remove_first(self) -> None:
        segment = self._segments[0]
        if self._segments.limit(0) == self.synced_end:
            # No synced batch will be left to tell the last id: then the mark must.
            self._write_mark_both(clean=False)
        self._spares.remove(segment)
        self._segments.drop_first()
        self._positions.clear()
        self._epochs.drop_below(self.start_offset)
        self.damage.forget(0, self.start_offset)
        self._spares.settle()
        self._aside().drop_below(self.start_offset)

    def _aside(self) -> Aside:
        return Aside(self._disk, self.path, self._settings.cut_kept_bytes_max, self._owner)

    # --- decisions of a leader ---

    def start_to_keep(
        self, floor_offset: int, wall_ns: int, age_max_ns: int, bytes_max: int, old_end: int = 0
    ) -> int:
        """The start of the log after a call of `retain`: nothing is removed."""
        if self.stopped is not None or self.refusal is not None:
            return self.start_offset
        try:
            self._roll_by_age(floor_offset, wall_ns, age_max_ns, old_end)
            end = min(floor_offset, self.synced_end)
            return first_kept(
                self._segments, end, self.last_timestamp_ns, wall_ns, age_max_ns, bytes_max, old_end
            )
        except OSError as error:
            raise StorageError(self.path, f"old segments could not be read: {error}") from error

    def drop_below(self, start_offset: int) -> int:
        """Remove whole sealed segments below a start that was decided elsewhere, as far as they are
        synced. The last batch always stays: the next one is compared with it. Returns how many were
        removed."""
        if self.stopped is not None or self.refusal is not None:
            return 0
        return self._remove_below(min(start_offset, self.written_end - 1))

    def _remove_below(self, offset: int) -> int:
        removed, end = 0, min(offset, self.synced_end)
        try:
            self._spares.settle()  # else a power loss might bring back this one, and not the next
            while _is_free(self._segments, 0, end) and not self._segments[0].unsynced:
                self._remove_first()
                removed += 1
        except OSError as error:
            raise StorageError(self.path, f"old segments could not be removed: {error}") from error
        return removed

    def cut(self, offset: int, unclean: bool = False) -> Removed:
        """Let the log end at `offset`, between two batches. Durable on return (`truncation.py`).
        What every member is known to have synced is cut only if `unclean`: after an election by
        force. Raises CutRefused, LogDamaged where the batch before `offset` is corrupt and
        WriteRefused, and then the log is as before; PartitionStopped when it was not finished."""
        if offset == self.written_end and self.refusal is None:
            return Removed(offset, offset, ())
        self._check_cut(offset, unclean)
        batch = self._batch_before(offset)
        number = self._segments.holding(offset)
        segment = self._segments[number]
        is_inside = batch is not None and offset != segment.base_offset
        position = batch.end_position if batch is not None and is_inside else 0
        to_offset = self.written_end
        mark = Mark(min(self.synced_end, offset), offset, self.last_id)
        self._lower_mark(mark, offset, is_emptied=batch is None)
        aside = self._aside()
        cutting = Cutting(self._disk, self.path, self._segments, aside)
        try:
            cutting.cut(number, position, offset)
        except OSError as error:
            raise self._stop_cut(error) from error
        newest = batch.header.leader_epoch if batch is not None else NO_EPOCH
        timestamp_ns = batch.header.timestamp_ns if batch is not None else 0
        self._end_at(offset, newest, timestamp_ns)
        return Removed(offset, to_offset, tuple(aside.kept))

    def restore(self, offset: int, batches: bytes, previous: BatchName, committed_end: int) -> int:
        """Replace corrupt batches by intact ones, from the start of a corrupt range; `copies.py`
        has the rules. Durable on return. Returns the offset behind them. Raises StorageError: then
        the range is as corrupt as before, unless a sync failed, which stops the partition."""
        if self.stopped is not None:
            self.check_writable()
        hole = hole_at(self, self._segments, offset)
        append = check_restored(self.path, hole, batches, previous)
        end_offset = offset + append.count
        if end_offset > committed_end:
            rule = f"batches up to {end_offset}, all below {committed_end} is committed"
            raise RestoreRefused(self.path, offset, rule)
        file = hole.segment.file
        try:
            file.pwritev((batches,), hole.position, append.length)
        except OSError as error:
            raise WriteRefused(file.path, f"the write failed: {error}") from error
        try:
            file.fdatasync()
        except OSError as error:
            self._stop(f"a sync failed: {error}")
            raise PartitionStopped(self.path, f"a sync failed: {error}") from error
        self.damage.forget(offset, end_offset)
        self._epochs.look_again()
        self._positions.clear()
        return end_offset

    def reset(self, start_offset: int, unclean: bool = False) -> Removed:
        """An empty log that begins at `start_offset`. Durable on return. Raises as `cut` does. What
        lies below, the leader's retention has removed: it is kept only if `unclean`."""
        if start_offset < 0:
            raise CutRefused(self.path, start_offset, "offsets begin at 0")
        self._check_not_busy()
        from_offset, to_offset = self.start_offset, self.written_end
        self._lower_mark(Mark(0, 0, self.last_id), 0, is_emptied=True)
        aside = self._aside()
        if start_offset >= to_offset and not unclean:
            aside.bytes_max = 0
        cutting = Cutting(self._disk, self.path, self._segments, aside)
        try:
            cutting.cut(0, 0, from_offset)
            self._active = self._segments.active
            self._active.file.fdatasync()
            self._spares.drop_all()
            if start_offset != from_offset:
                cutting.begin_at(Segment(self._disk, self.path, start_offset, self._owner))
        except OSError as error:
            raise self._stop_cut(error) from error
        self._end_at(start_offset, NO_EPOCH, 0)
        return Removed(from_offset, to_offset, tuple(aside.kept))

    def _check_cut(self, offset: int, unclean: bool) -> None:
        if not self.start_offset <= offset <= self.written_end:
            rule = f"the log goes from {self.start_offset} to {self.written_end}"
            raise CutRefused(self.path, offset, rule)
        if offset < self.agreed_end and not unclean:
            rule = f"every member has synced all below {self.agreed_end}"
            raise CutRefused(self.path, offset, rule)
        self._check_not_busy()

    def _check_not_busy(self) -> None:
        if self.stopped is not None:
            self.check_writable()
        if self._job is not None:
            raise StorageError(self.path, "cut while a sync is under way")

    def _batch_before(self, offset: int) -> Batch | None:
        """The last batch that stays; None when none does."""
        if offset == self.start_offset:
            return None
        batch = self.locate(offset - 1)
        if batch.end_offset != offset:
            rule = f"one batch holds {batch.header.base_offset} to {batch.end_offset - 1}"
            raise CutRefused(self.path, offset, rule)
        return batch

    def _lower_mark(self, mark: Mark, end_offset: int, is_emptied: bool) -> None:
        """Steps 1 and 2 of a cut. An error is harmless: a lower mark is as true. Where no batch is
        left that has the last id, the mark must have it."""
        try:
            marked = self._marked
            is_ahead = marked is None or marked.clean or marked.synced_end > mark.synced_end
            if is_ahead or is_emptied:
                self._mark_file.write_both(mark)
                self._marked = mark
            forget_lost(self._disk, self.path, end_offset)
        except OSError as error:
            raise WriteRefused(self.path, f"the cut was not begun: {error}") from error

    def _stop_cut(self, error: OSError) -> PartitionStopped:
        self._stop(f"a cut was not finished: {error}")
        return PartitionStopped(self.path, f"a cut was not finished: {error}")

    def _end_at(self, offset: int, newest_epoch: int, last_timestamp_ns: int) -> None:
        """Step 6; the state in memory follows."""
        active = self._active = self._segments.active
        self._preallocation = Preallocation(self._settings, active.data_bytes)
        self.written_end = offset
        self.agreed_end = min(self.agreed_end, offset)
        self.last_timestamp_ns = last_timestamp_ns
        self._last_position = -1
        self._names.clear()
        self._positions.clear()
        self._epochs.cut(offset, newest_epoch)
        self.damage.forget_from(offset)
        self.refusal = None
        self._settle_active()
        self._guarded = True
        sealed, self._directory_dirty = self._segments.unsynced(), False
        job = SyncJob(self._disk, sealed, active.file, self.path, offset, self.unsynced_bytes)
        self._job = job
        error = run_here(self, job)
        if error is not None:
            if self.stopped is None:  # a cut can't be left half done
                self._stop(f"a sync failed: {error}")
            self.check_writable()
        active.unsynced = False

    # --- the mark, and the end ---

    def mark(self, wall_ns: int) -> None:
        """Repeat the synced end in the mark file, if it moved and a while has passed."""
        mark = Mark(self.synced_end, self.written_end, self.last_id)
        waited = not 0 <= wall_ns - self._marked_ns < self._settings.mark_every_ns
        is_closed = self.refusal is not None or self.stopped is not None
        if not waited or self._is_marked(mark) or is_closed:
            return
        self._write_mark(mark)
        self._marked_ns = wall_ns
        self._segments.save_index(self._segments.active_index)

    @property
    def is_marked(self) -> bool:
        """The mark has the present synced end."""
        return self._is_marked(Mark(self.synced_end, self.written_end, self.last_id))

    def _is_marked(self, mark: Mark) -> bool:
        return self._marked is not None and self._marked._replace(clean=False) == mark

    def _write_mark_both(self, clean: bool) -> None:
        mark = Mark(self.synced_end, self.written_end, self.last_id, clean)
        self._mark_file.write_both(mark)
        self._marked = mark
        self._guarded = True

    def close(self) -> None:
        """A clean stop: everything synced, nothing behind the tail, and the mark says so."""
        if self._job is not None:
            raise StorageError(self.path, "closed while a sync is under way")
        try:
            if self.stopped is None and self.refusal is None:
                self._finish()
        except OSError as error:
            raise StorageError(self.path, f"the stop is not clean: {error}") from error
        finally:
            self._segments.close()
            if self.stopped is None:
                self._stop("the log is closed")

    def _finish(self) -> None:
        self.sync()
        if self._torn:
            self._remove_torn()
        active = self._active
        if self._preallocation.prepared > active.data_bytes:
            active.file.truncate(active.data_bytes)
            active.file.fdatasync()
            self._preallocation.prepared = active.data_bytes
        self._segments.active_index.save(self._disk)
        if self._marked != Mark(self.synced_end, self.written_end, self.last_id, clean=True):
            self._write_mark_both(clean=True)

    def rest(self) -> None:
        """Hold no descriptor while nothing is written or synced; the next use opens it again."""
        if self._job is None and self.synced_end == self.written_end:
            self._segments.close()

    def destroy(self) -> None:
        if self._job is not None:
            raise StorageError(self.path, "destroyed while a sync is under way")
        self._segments.close()
        self._stop("the partition was removed")
        try:
            for name in self._disk.listdir(self.path):
                self._disk.unlink(os.path.join(self.path, name))
            self._disk.rmdir(self.path)
        except OSError as error:
            raise StorageError(self.path, f"cannot be removed: {error}") from error

    def validate(self) -> None:
        bases = [segment.from_offset for segment in self.segments]
        rules = {
            "segments rise": bases == sorted(set(bases)),
            "the active segment begins at or below the written end": bases[-1] <= self.written_end,
            "the synced end is at or below the written end": self.synced_end <= self.written_end,
            "nothing stands behind the written end": (
                self._active.data_bytes > 0
                or bases[-1] == self.written_end
                or self.refusal is not None
            ),
            "unsynced bytes are counted": (
                self.unsynced_bytes == 0 or self.synced_end < self.written_end
            ),
            "the index ends in the data": (
                len(self._segments.active_index) == 0
                or self._segments.active_index.positions[-1] < self._active.data_bytes
            ),
        }
        for rule, holds in rules.items():
            if not holds:
                raise StorageError(self.path, f"this does not hold: {rule}")


def make_directory(disk: Disk, directory: str, files: Mapping[str, bytes] = NO_FILES) -> None:
    """The directory of a new log: a mark that says it is empty, a first segment without a byte.

    Durable on return. Leftovers of an interrupted creation are taken over. Raises OSError, and
    WriteRefused where messages are stored already.
    """
    disk.mkdir(directory)
    for name in disk.listdir(directory):
        path = os.path.join(directory, name)
        if names.segment_base(name) is not None and disk.size(path) > 0:
            raise WriteRefused(directory, f"there is a log already: {name}")
    MarkFile(disk, os.path.join(directory, names.MARK)).create(Mark(clean=True))
    disk.create(os.path.join(directory, names.segment_name(0))).close()  # empty: nothing to sync
    for name, data in files.items():
        replace_file(disk, os.path.join(directory, name), data)
    disk.sync_directory(directory)
    disk.sync_directory(os.path.dirname(directory) or ".")


def _is_free(segments: Segments, number: int, end: int) -> bool:
    """Is it sealed, with all of its batches below `end`?"""
    limit = segments.limit(number)
    return limit is not None and limit <= end


def _sealed_ns(segments: Segments, number: int, last_timestamp_ns: int) -> int:
    """The time of the segment's last message, or later: the first readable timestamp of a later
    segment."""
    for later in range(number + 1, len(segments)):
        header = segments[later].first_header()
        if header is not None:
            return header.timestamp_ns
    return last_timestamp_ns


def first_kept(
    segments: Segments,
    end: int,
    last_timestamp_ns: int,
    wall_ns: int,
    age_max_ns: int,
    bytes_max: int,
    old_end: int,
) -> int:
    """The start of a log without the segments that may go: the oldest, whole ones only, all below
    `end`, synced, and beyond a bound.

    A segment may go when no reader needs it and all of it is synced. It goes when it is old enough,
    or when more such data is kept than wanted. Corrupt batches keep it no longer than intact ones:
    it would keep all that is newer, until the disk is full.
    """
    free = list(takewhile(lambda n: _is_free(segments, n, end), range(len(segments) - 1)))
    left = sum(segments[number].data_bytes for number in free)
    start = segments.start_offset
    for number in free:
        limit = segments.limit(number) or end
        if segments[number].unsynced:
            break
        if left <= bytes_max and limit > old_end:
            try:
                sealed_ns = _sealed_ns(segments, number, last_timestamp_ns)
            except OSError:
                if number == 0:
                    raise
                break  # what is before it may go all the same
            if sealed_ns + age_max_ns > wall_ns:
                break
        left -= segments[number].data_bytes
        start = limit
    return start
