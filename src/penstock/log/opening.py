"""Opening a partition's directory: find the tail, walk it, and carry out the decision of
`recovery.decide`.

Only the tail is read. Where it begins is told by the highest synced end that can be found quickly:
the mark, and the headers at the last index entry and at the front of the newest segments. From the
last index entry below that, every batch is checked.
"""

import os
from collections import deque
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from penstock.errors import PartitionMissing, PartitionStopped
from penstock.kernel import BatchCheck, id_at
from penstock.log import names
from penstock.log.damage import Damage, LostRange, is_lost, read_lost
from penstock.log.disk import Disk, read_file
from penstock.log.epochs import NO_EPOCH
from penstock.log.head import LogOwner
from penstock.log.index import SparseIndex, load_index
from penstock.log.mark import FILE_BYTES, Mark, MarkState, decode_file
from penstock.log.recovery import BatchRun, Decision, Hole, RemovedTail, decide
from penstock.log.replica_file import ReplicaFile, read_replica
from penstock.log.scan import Batch, Blocks, walk
from penstock.log.segment import LogSettings, Segment
from penstock.log.segments import Segments, add_if_due

NEWEST_LOOKED_AT = 3  # an empty segment and an unfinished one can stand before one with batches


@dataclass(slots=True)
class Opened:
    segments: Segments
    prepared: int  # the active file's size: the space that writing starts in
    written_end: int
    synced_end: int
    agreed_end: int  # the highest synced end that any header tells of
    newest_epoch: int | None  # of the last batch; None when it is corrupt
    last_id: int
    last_timestamp_ns: int
    damaged: list[Damage]
    lost: list[LostRange]  # what was given up
    refusal: Damage | None  # the end is corrupt: nothing is written
    stopped: PartitionStopped | None
    mark_state: MarkState
    removed_tail: RemovedTail | None
    leftovers: list[str]  # files that should be gone, and why they are not


class Opening:
    """The steps of one opening, in the order of `run`."""

    def __init__(
        self, disk: Disk, directory: str, settings: LogSettings, owner: LogOwner | None = None
    ) -> None:
        self._owner = owner
        self._disk = disk
        self._directory = directory
        self._settings = settings
        self._items: list[Segment] = []
        self._indexes: dict[int, SparseIndex] = {}  # by base offset
        self._mark_state = MarkState(None, 0)
        self._replica: ReplicaFile | None = None  # None: the only one
        self._epoch = 0  # of the batch that was walked last
        self._last: Batch | None = None
        self._leftovers: list[str] = []
        self._tail_position = 0  # where in the first segment the walk began
        self._synced_by_headers = 0  # the highest synced end that any header tells of

    def run(self) -> Opened:
        self._list_files()
        mark = self._mark_state.mark or Mark()
        synced_known = mark.synced_end
        if self._believes_headers:
            synced_known = max(synced_known, self._synced_in_headers())
        first, from_offset, runs = self._walk_tail(synced_known)
        lost = read_lost(self._disk, self._directory)
        decision = decide(from_offset, runs, synced_known, partial(is_lost, lost))
        if decision.end_missing and not decision.end_corrupt:
            self._begin_behind(decision.end_offset)
        decision = self._judge_foreign(decision, lost)
        self._locate_tails(first, decision)
        removed_tail = self._cut(decision) if not decision.end_corrupt else None
        # A log whose end is corrupt is left as it is; the newest segment's name tells how far it
        # once went.
        written_end = max(decision.end_offset, self._items[-1].base_offset)
        damaged = self._damage(decision, written_end)
        stopped = self._stopped_before()
        # Without a clean end, the removal of a failed write may be in the kernel's memory only.
        is_clean = mark.clean and removed_tail is None and written_end <= decision.synced_seen
        if stopped is None and not is_clean:
            stopped = self._sync(first)
        active = self._items[-1]
        index = self._index(active)
        segments = Segments(self._disk, self._items, index, self._settings.index_every_bytes)
        for segment in self._items[first:-1] if not decision.end_corrupt else ():
            segments.save_index(self._index(segment))
        last = self._last.header if self._last is not None else None
        newest_epoch = NO_EPOCH if written_end == self._items[0].base_offset else None
        opened = Opened(
            segments=segments,
            prepared=self._disk.size(active.path),
            written_end=written_end,
            synced_end=written_end if stopped is None else decision.synced_seen,
            agreed_end=min(self._synced_by_headers, written_end),
            newest_epoch=last.leader_epoch if last is not None else newest_epoch,
            last_id=max(mark.last_id, id_at(last.base_id, last.count - 1) if last else 0),
            last_timestamp_ns=last.timestamp_ns if last else 0,
            damaged=damaged,
            lost=lost,
            refusal=damaged[-1] if decision.end_corrupt else None,
            stopped=stopped,
            mark_state=self._mark_state,
            removed_tail=removed_tail,
            leftovers=self._leftovers,
        )
        active.close()  # an idle partition holds no descriptor
        return opened

    # --- the files ---

    def _list_files(self) -> None:
        disk, directory = self._disk, self._directory
        if not disk.is_directory(directory):
            raise PartitionMissing(directory, "the directory of a known partition is not there")
        found = disk.listdir(directory)
        bases = names.segment_bases(found)
        if not bases:
            raise PartitionMissing(directory, "a known partition has no segment")
        for base in bases:
            segment = Segment(disk, directory, base, self._owner)
            segment.data_bytes = disk.size(segment.path)
            segment.was_lent = True  # perhaps, by the process before this one
            self._items.append(segment)
        if names.MARK in found:
            path = os.path.join(directory, names.MARK)
            self._mark_state = decode_file(read_file(disk, path, FILE_BYTES))
        if names.REPLICA in found:
            self._replica = read_replica(disk, directory)
        self._drop_leftovers(found, set(bases))

    @property
    def _believes_headers(self) -> bool:
        return self._replica is None or self._replica.believes_headers

    def _stopped_before(self) -> PartitionStopped | None:
        """A stopped replica stays stopped. Its files do not prove the contents of its disk."""
        replica = self._replica
        if replica is None or replica.state != "stopped":
            return None
        return PartitionStopped(self._directory, f"the replica was given up: {replica.reason}")

    def _drop_leftovers(self, found: list[str], bases: set[int]) -> None:
        """Spares (see writer.py) and indexes whose segment was removed. They take room and nothing
        reads them: a failed removal is reported, and the next start tries again."""
        for name in found:
            base = names.index_base(name)
            if names.kind_of(name) == "spare" or (base is not None and base not in bases):
                path = os.path.join(self._directory, name)
                try:
                    self._disk.unlink(path)
                except OSError as error:
                    self._leftovers.append(f"{path} cannot be removed: {error.strerror or error}")

    def _index(self, segment: Segment) -> SparseIndex:
        index = self._indexes.get(segment.base_offset)
        if index is None:
            index = load_index(
                self._disk, segment.index_path, segment.base_offset, segment.data_bytes
            )
            self._indexes[segment.base_offset] = index
        return index

    # --- the start of the tail ---

    def _synced_in_headers(self) -> int:
        for segment in reversed(self._items[-NEWEST_LOOKED_AT:]):
            index = self._index(segment)
            blocks = segment.blocks()
            positions = [*index.positions[-1:], segment.start]
            batches = [blocks.intact(position) for position in positions]
            # An old batch of a recycled file stands for an older log: its word is no higher.
            notes = [batch.header.synced_end for batch in batches if batch is not None]
            if notes:
                self._synced_by_headers = max(notes)
                return self._synced_by_headers
        return 0

    def _holding(self, offset: int) -> int:
        return max(
            (n for n, segment in enumerate(self._items) if segment.base_offset <= offset), default=0
        )

    def _walk_tail(self, synced_known: int) -> tuple[int, int, list[BatchRun]]:
        """(number of the first segment looked at, first offset, runs)."""
        # One below, so that the last batch is met even when all is synced: it has the last id.
        first = self._holding(synced_known - 1)
        position, from_offset = self._tail_start(self._items[first], synced_known - 1)
        self._tail_position = position
        runs: list[BatchRun] = []
        self._walk_segment(first, position, from_offset, runs)
        for number in range(first + 1, len(self._items)):
            segment = self._items[number]
            self._index(segment).cut(0)
            self._walk_segment(number, segment.start, segment.base_offset, runs)
        return first, from_offset, runs

    def _tail_start(self, segment: Segment, offset: int) -> tuple[int, int]:
        """The last index entry at or below `offset` if the segment agrees with it, or the front.
        The entries after it are made anew by the walk."""
        index = self._index(segment)
        number = index.at_offset(offset)
        if number >= 0:
            entry = index.entry(number)
            batch = segment.blocks().intact(entry.position)
            if batch is not None and batch.header.base_offset == entry.offset:
                index.cut(number + 1)
                return entry.position, entry.offset
        index.cut(0)
        return segment.start, segment.base_offset

    def _walk_segment(
        self, number: int, position: int, expected: int, runs: list[BatchRun]
    ) -> None:
        segment = self._items[number]
        index = self._index(segment)
        blocks = segment.blocks()
        for batch in walk(blocks, position, expected, self._limit(number), self._epoch):
            add_if_due(index, batch, self._settings.index_every_bytes)
            self._epoch = batch.header.leader_epoch
            self._synced_by_headers = max(self._synced_by_headers, batch.header.synced_end)
            synced_end = batch.header.synced_end if self._believes_headers else 0
            run = runs[-1] if runs and runs[-1].segment == number else None
            if run is not None and run.to_offset == batch.header.base_offset:
                runs[-1] = _longer(run, batch, synced_end)
            else:
                runs.append(_run(number, batch, synced_end))

    # --- repairs ---

    def _begin_behind(self, offset: int) -> None:
        """The end of the log was given up: it continues in a segment of its own, named by its
        offset."""
        if self._items[-1].base_offset >= offset:
            return
        segment = Segment(self._disk, self._directory, offset, self._owner)
        with closing(self._disk.create(segment.path)) as file:
            file.fdatasync()
        self._disk.sync_directory(self._directory)
        self._items.append(segment)

    def _judge_foreign(self, decision: Decision, lost: list[LostRange]) -> Decision:
        """A newest segment of another log does not tell where this one ends. It is neither written
        to nor cut."""
        last = self._items[-1]
        if not last.foreign:
            return decision
        end = max(decision.end_offset, last.base_offset + 1)
        if is_lost(lost, last.base_offset, end):
            self._begin_behind(end)
            return decision._replace(end_offset=end)
        holes = [hole for hole in decision.holes if hole.to_offset <= last.base_offset]
        hole = Hole(last.base_offset, end)
        return decision._replace(end_offset=end, holes=(*holes, hole), end_corrupt=True)

    def _locate_tails(self, first: int, decision: Decision) -> None:
        """The end of the data in each walked segment, and the log's last batch. A sealed one that
        is corrupt at its end keeps all its bytes in reach."""
        last_runs = {run.segment: run for run in decision.kept}
        for number in range(first, len(self._items)):
            run = last_runs.get(number)
            limit = self._limit(number)
            is_sealed = limit is not None and limit <= decision.end_offset
            if is_sealed and (run is None or run.to_offset != limit):
                continue
            unread = self._tail_position if number == first else 0
            if unread == self._items[number].start:
                unread = 0  # no batch: the head is written again, with the first one
            self._items[number].data_bytes = run.end_position if run is not None else unread
        if decision.kept:
            run = decision.kept[-1]
            self._last = self._last_batch(self._items[run.segment], run)

    def _limit(self, number: int) -> int | None:
        return self._items[number + 1].base_offset if number + 1 < len(self._items) else None

    def _last_batch(self, segment: Segment, run: BatchRun) -> Batch | None:
        index = self._index(segment)
        number = index.at_offset(run.to_offset - 1)
        position, offset = index.positions[number], index.offsets[number]
        batches = deque(walk(segment.blocks(), position, offset, run.to_offset), maxlen=1)
        return batches[0] if batches else None

    def _damage(self, decision: Decision, written_end: int) -> list[Damage]:
        holes = list(decision.holes)
        if decision.end_corrupt:
            holes[-1] = Hole(holes[-1].from_offset, written_end)
        last = self._items[-1]
        reason = f"{self._directory}: acknowledged data is corrupt"
        found = [(*hole, reason) for hole in holes]
        if last.foreign:
            found[-1] = (*holes[-1], f"{last.path}: {last.foreign}")
        return found

    def _cut(self, decision: Decision) -> RemovedTail | None:
        """Remove everything behind the log's end. Newest files first, so that a crash in the middle
        leaves files that are judged the same way."""
        bytes_cut = 0
        removed_segments = 0
        while self._items[-1].base_offset > decision.end_offset:
            segment = self._items.pop()
            bytes_cut += self._used_bytes(segment)
            removed_segments += 1
            segment.close()
            self._disk.unlink(segment.path)
            self._indexes.pop(segment.base_offset, None)
            if self._disk.exists(segment.index_path):
                self._disk.unlink(segment.index_path)
        active = self._items[-1]
        trimmed = self._used_bytes(active)
        begun = self._batch_begins(active, decision.end_offset)
        if trimmed:
            active.file.truncate(active.data_bytes)
        index = self._index(active)
        index.cut(index.at_offset(decision.end_offset - 1) + 1)
        if not trimmed and not removed_segments:
            return None
        messages = sum(run.to_offset - run.from_offset for run in decision.dropped)
        return RemovedTail(
            offset=decision.end_offset,
            bytes_cut=bytes_cut + trimmed,
            reason=(
                "intact batches behind an unfinished one" if messages else "an unfinished write"
            ),
            unfinished=bool(messages or removed_segments or begun),
        )

    def _batch_begins(self, segment: Segment, offset: int) -> bool:
        """Does the header of the log's next batch stand behind its data, intact or not?"""
        blocks = Blocks(segment.file, segment.file.size())
        position = segment.data_bytes or segment.start
        found, _ = blocks.check(position)
        if found == BatchCheck.NO_MAGIC:
            return False
        if found == BatchCheck.SHORT:
            return True
        return blocks.header(position).base_offset == offset

    def _used_bytes(self, segment: Segment) -> int:
        """Bytes behind the data that are not zero (or precede one that is not)."""
        blocks = Blocks(segment.file, segment.file.size())
        return blocks.used_end(segment.data_bytes) - segment.data_bytes

    def _sync(self, first: int) -> PartitionStopped | None:
        """The data may be in the kernel's memory only: make it durable before anybody reads it."""
        try:
            for segment in self._items[first:]:
                segment.file.fdatasync()
            self._disk.sync_directory(self._directory)
        except OSError as error:
            return PartitionStopped(self._directory, f"the sync at the start failed: {error}")
        return None


def _run(number: int, batch: Batch, synced_end: int) -> BatchRun:
    return BatchRun(
        number, batch.header.base_offset, batch.end_offset, batch.end_position, synced_end
    )


def _longer(run: BatchRun, batch: Batch, synced_end: int) -> BatchRun:
    return run._replace(
        to_offset=batch.end_offset,
        end_position=batch.end_position,
        synced_end=max(run.synced_end, synced_end),
    )
