"""Reading a log, whoever writes it: whole, checked batches by offset, time or id, and its extent.

No byte is handed out that was not checked. Where a batch is corrupt, the hole is remembered
(`damage.py`) and named (`LogDamaged`); everything on both sides of it can still be read.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, NamedTuple, NoReturn, ParamSpec, TypeVar

from penstock import limits
from penstock.errors import LogDamaged, StorageError
from penstock.kernel import (
    BatchCheck,
    Section,
    blank,
    check_batch,
    check_batches,
    decode_sections,
    id_index,
)
from penstock.kernel.layout import FLAG_TRAILER, HEADER_BYTES, SHORT_HEADER_BYTES, name_at
from penstock.log.epochs import BatchName, Epochs, EpochStart, Extent
from penstock.log.messages import Message, MessageReader
from penstock.log.scan import Batch, Blocks, find_beyond, headers_of, walk
from penstock.log.segment import Segment, SegmentInfo

if TYPE_CHECKING:
    from penstock.kernel import BatchHeader
    from penstock.log.damage import Damage, DamageList
    from penstock.log.segments import Segments

    _HeaderTest = Callable[[BatchHeader], bool]

P = ParamSpec("P")
R = TypeVar("R")


class FileRange(NamedTuple):
    """A segment file for a reader beside the log. Retention may remove the file meanwhile; it is
    never overwritten, not even after `release`: `sendfile` is done when a socket holds the file's
    own pages, and nothing tells when the client has received them."""

    segment: Segment
    descriptor: int
    position: int  # of a batch at or before the one that is wanted
    expected: int  # the offset of that batch
    end: int  # the position after what is written
    limit: int | None  # the offset at which the segment ends, once it is sealed


class Trailers(NamedTuple):
    blocks: list[memoryview]  # batches with a trailer, whole and checked
    next_offset: int  # all batches below it were looked at


class _BatchPosition(NamedTuple):
    segment: Segment
    position: int
    claimed: int = 0  # how long the batch there says it is; 0: not known yet


def reads(
    read: Callable[Concatenate[ReadableLog, P], R],
) -> Callable[Concatenate[ReadableLog, P], R]:
    """What fails is a StorageError of the log."""

    @wraps(read)
    def guarded(log: ReadableLog, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return read(log, *args, **kwargs)
        except OSError as error:
            raise StorageError(log.path, f"the log cannot be read: {error}") from error

    return guarded


class ReadableLog:
    __slots__ = ("_epochs", "_positions", "_segments", "damage", "path", "written_end")

    def __init__(
        self, path: str, segments: Segments, damage: DamageList, epochs: Epochs, written_end: int
    ) -> None:
        self.path = path
        self.damage = damage
        self.written_end = written_end
        self._segments = segments
        self._epochs = epochs
        self._positions: dict[int, _BatchPosition] = {}  # where a reader will go on, by offset

    def _check_offset(self, offset: int) -> None:
        if not self.start_offset <= offset < self.written_end:
            raise IndexError(
                f"offset {offset} is not in the log ({self.start_offset} to {self.written_end - 1})"
            )

    # --- extent ---

    @property
    def damaged(self) -> list[Damage]:
        return self.damage.ranges

    @property
    def start_offset(self) -> int:
        return self._segments.start_offset

    @property
    def bytes_stored(self) -> int:
        return sum(self._segments[n].data_bytes for n in range(len(self._segments)))

    @property
    def index_failures(self) -> int:
        """Writes of indexes that were not done, since the log was opened."""
        return self._segments.index_failures

    @property
    def index_trouble(self) -> str:
        """Why the latest of them was not; empty: it was."""
        return self._segments.index_trouble

    @property
    def segments(self) -> list[SegmentInfo]:
        return self._segments.infos(self.written_end)

    # --- compared with another replica's ---

    @reads
    def epochs(self) -> tuple[EpochStart, ...]:
        """Each epoch and its first offset. Empty when no batch is there."""
        return self._epochs.table(self.written_end)

    def extent(self) -> Extent:
        epochs = [(one.epoch, one.first_offset) for one in self.epochs()]
        if epochs:  # a corrupt first batch is counted to the first epoch that can be read
            epochs[0] = epochs[0][0], self.start_offset
        return Extent(self.start_offset, self.written_end, tuple(epochs))

    def _last_known(self) -> BatchName:
        if self.written_end == self.start_offset:
            return BatchName(0, self.written_end, 0)
        return self.batch_at(self.written_end - 1)[0]

    # --- file ranges ---

    @reads
    def file_range(self, offset: int) -> FileRange | None:
        """For a thread that reads the segment beside the log, to find the batch that holds
        `offset`; None where it cannot. Nothing is checked. Call `release` after use."""
        self._check_offset(offset)
        number = self._segments.holding(offset)
        segment = self._segments[number]
        if segment.foreign:
            self._damaged(segment, 0, segment.base_offset, self._segments.limit(number))
        position, expected = segment.start, segment.base_offset
        known = self._positions.get(offset)
        if known is not None and known.segment is segment:
            position, expected = known.position, offset
        elif offset != segment.base_offset:
            index = self._segments.index_of(number)
            entry_number = index.at_offset(offset)
            if entry_number >= 0:
                position, expected = index.positions[entry_number], index.offsets[entry_number]
        descriptor = segment.file.duplicate()
        if descriptor is None:
            return None
        segment.readers += 1
        segment.was_lent = True
        limit = self._segments.limit(number)
        return FileRange(segment, descriptor, position, expected, segment.data_bytes, limit)

    def release(self, file_range: FileRange) -> None:
        os.close(file_range.descriptor)
        file_range.segment.readers -= 1

    def remember(self, file_range: FileRange, offset: int, position: int) -> None:
        """The batch with this offset, which a reader has found there, is intact: the next reading
        may begin with it."""
        if file_range.segment in self._segments:
            self._remember(offset, file_range.segment, position)

    # --- blocks ---

    @reads
    def read(self, offset: int, bytes_max: int) -> memoryview:
        """Whole intact batches from the one that holds `offset`: at least one, and no more than
        `bytes_max` unless that one is larger."""
        self._check_offset(offset)
        (segment, position, claimed), base = self._position_of(offset)
        room = max(segment.data_bytes - position, 0)  # none behind the head: all of it is corrupt
        wanted = max(bytes_max, HEADER_BYTES)
        if wanted < claimed <= room:
            wanted = claimed + SHORT_HEADER_BYTES  # with what tells how long the next one is
        view = self._load(segment, position, min(wanted, room))
        limit = self._segments.limit(self._segments.holding(base))
        end, next_offset, claimed = check_batches(view, base, limit)
        if end == 0 and len(view) < claimed <= room:
            view = self._load(segment, position, min(claimed + SHORT_HEADER_BYTES, room))
            end, next_offset, claimed = check_batches(view, base, limit)
        if end == 0:
            self._damaged(segment, position, base, limit)
        self._remember(next_offset, segment, position + end, claimed)
        return view[:end]

    def batches(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Header and bytes of each batch from the one that holds `offset` to the written end."""
        end_offset = self.written_end
        while offset < end_offset:
            block, position = self.read(offset, limits.READ_BLOCK_BYTES), 0
            for header in headers_of(block):
                if offset >= end_offset:
                    return
                yield header, block[position : position + header.length]
                position += header.length
                offset = header.base_offset + header.count

    def intact_batches(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The same, without corrupt batches."""
        while offset < self.written_end:
            try:
                for header, data in self.batches(offset):
                    yield header, data
                    offset = header.base_offset + header.count
            except LogDamaged as error:
                offset = max(error.to_offset, offset + 1)

    def message(self, offset: int) -> Message:
        return MessageReader(self, HEADER_BYTES).read(offset)

    @reads
    def trailers(self, offset: int, end_offset: int) -> Trailers:
        """Batches with a trailer from the one that holds `offset` on, below `end_offset`, within a
        slice. At least one batch is read.

        Special facts of a message (a delay, an id of its own) are in a trailer, and most batches
        have none. So a walk looks at the headers, and the bodies of large batches are not even
        read. Where a header is not what must come next, it ends, and a checked read finds out why.
        """
        self._check_offset(offset)
        (segment, position, _), base = self._position_of(offset)
        limit = self._segments.limit(self._segments.holding(base))
        end = end_offset if limit is None else min(limit, end_offset)
        blocks = Blocks(segment.file, segment.data_bytes, limits.SEARCH_WINDOW_BYTES)
        found: list[memoryview] = []
        at = base
        for _ in range(limits.SEARCH_SLICE_HEADERS):
            head = blocks.head(position) if at < end else None
            if head is None or head[2] != at:
                break
            length, flags, _, count = head
            if flags & FLAG_TRAILER:
                batch = blocks.view(position, length)[:length]
                if check_batch(batch, 0)[0] != BatchCheck.INTACT:
                    break
                found.append(batch)
            position, at = position + length, at + count
            if blocks.bytes_read >= limits.SEARCH_SLICE_BYTES:
                break
        if at == base < end:
            self._damaged(segment, position, base, limit)
        self._remember(at, segment, position)
        return Trailers(found, at)

    def _load(self, segment: Segment, position: int, length: int) -> memoryview:
        buffer = blank(length)
        return memoryview(buffer)[: segment.file.pread_into(buffer, position)]

    def _position_of(self, offset: int) -> tuple[_BatchPosition, int]:
        """The position of the batch that holds `offset`, and its base offset."""
        number = self._segments.holding(offset)
        segment = self._segments[number]
        if segment.foreign:
            self._damaged(segment, 0, segment.base_offset, self._segments.limit(number))
        known = self._positions.get(offset)
        if known is not None and known.segment is segment:
            return known, offset
        if offset == segment.base_offset:
            return _BatchPosition(segment, segment.start), offset
        header, position = (batch := self.locate(offset)).header, batch.position
        return _BatchPosition(segment, position, header.length), header.base_offset

    def _remember(self, offset: int, segment: Segment, position: int, claimed: int = 0) -> None:
        positions = self._positions
        positions.pop(offset, None)
        positions[offset] = _BatchPosition(segment, position, claimed)
        if len(positions) > limits.READ_POSITIONS_MAX:
            del positions[next(iter(positions))]

    # --- one batch ---

    @reads
    def locate(self, offset: int) -> Batch:
        number = self._segments.holding(offset)
        segment = self._segments[number]
        limit = self._segments.limit(number)
        position, expected = self._start(number, offset)
        blocks = segment.blocks()
        for batch in walk(blocks, position, expected, limit):
            if batch.header.base_offset > expected:
                self._note(expected, batch.header.base_offset, segment)
            if batch.header.base_offset > offset:
                self._raise(segment, expected, batch.header.base_offset)
            if batch.end_offset > offset:
                return batch
            position, expected = batch.end_position, batch.end_offset
        self._damaged(segment, position, expected, limit)

    def header_of(self, offset: int) -> BatchHeader:
        self._check_offset(offset)
        return self.locate(offset).header

    def written_ns(self, offset: int) -> int:
        """The time at which the batch of `offset` was written."""
        return self.header_of(offset).timestamp_ns

    @reads
    def batch_at(self, offset: int) -> tuple[BatchName, int]:
        """The name of the batch that holds `offset`, and the offset behind it."""
        self._check_offset(offset)
        batch = self.locate(offset)
        segment = self._segments[self._segments.holding(offset)]
        return self.name_at(segment, batch.position), batch.end_offset

    @reads
    def name_at(self, segment: Segment, position: int) -> BatchName:
        """The caller knows that an intact batch begins there."""
        return BatchName._make(name_at(self._load(segment, position, HEADER_BYTES), 0))

    def _start(self, number: int, offset: int) -> tuple[int, int]:
        """An intact position at or before `offset` in its segment: position and offset."""
        entry_number = self._segments.index_of(number).at_offset(offset)
        if entry_number < 0:
            return self._segments[number].start, self._segments[number].base_offset
        batch = self._segments.intact_entry(number, entry_number)
        if batch is not None:
            return batch.position, batch.header.base_offset
        index = self._segments.rebuild(number)  # the index or the segment is wrong: this tells
        entry_number = index.at_offset(offset)
        if entry_number < 0:
            return self._segments[number].start, self._segments[number].base_offset
        return index.positions[entry_number], index.offsets[entry_number]

    # --- searches ---

    @reads
    def find_time(self, timestamp_ns: int) -> int:
        """The first offset whose batch is not older than `timestamp_ns`; the end if there is
        none."""
        numbers = self._around_first(lambda header: header.timestamp_ns >= timestamp_ns)
        if not numbers:
            return self._segments.start_offset
        for number in numbers:
            entry_number = self._segments.index_of(number).before_time(timestamp_ns)
            for batch in self._walk_entry(number, entry_number):
                if batch.header.timestamp_ns >= timestamp_ns:
                    return batch.header.base_offset
        limit = self._segments.limit(numbers[-1])
        return self.written_end if limit is None else limit

    @reads
    def after_bytes(self, offset: int, length: int) -> int:
        """Roughly the offset that lies `length` bytes of log behind `offset`, and at least one
        message behind it; the end if there is none. Between entries of the index all messages count
        alike."""
        number = self._segments.holding(offset)
        left = self._position_near(number, offset) + length
        while number < len(self._segments) - 1 and left >= self._segments[number].data_bytes:
            left -= self._segments[number].data_bytes
            number += 1
        index = self._segments.index_of(number)
        low, high = self._around(number, bisect_right(index.positions, left) - 1)
        ahead = (left - low[1]) * (high[0] - low[0]) // max(high[1] - low[1], 1)
        return min(max(low[0] + ahead, offset + 1), self.written_end)

    @reads
    def bytes_from(self, offset: int) -> int:
        """About how many bytes of log there are from `offset` to the end."""
        number = self._segments.holding(offset)
        sizes = (self._segments[n].data_bytes for n in range(number, len(self._segments)))
        return max(sum(sizes) - self._position_near(number, offset), 0)

    def _position_near(self, number: int, offset: int) -> int:
        """The approximate position of an offset in a segment."""
        low, high = self._around(number, self._segments.index_of(number).at_offset(offset))
        return low[1] + (offset - low[0]) * (high[1] - low[1]) // max(high[0] - low[0], 1)

    def _around(self, number: int, entry: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """(offset, position) of an entry of the index and of the one behind it; the segment's own
        begin and end where there is none."""
        index, segment = self._segments.index_of(number), self._segments[number]
        low, high = (segment.base_offset, 0), (self.written_end, segment.data_bytes)
        limit = self._segments.limit(number)
        if limit is not None:
            high = (limit, segment.data_bytes)
        if entry >= 0:
            low = (index.offsets[entry], index.positions[entry])
        if entry + 1 < len(index):
            high = (index.offsets[entry + 1], index.positions[entry + 1])
        return low, high

    @reads
    def find_id(self, id: int) -> int | None:
        """The offset of the message with this id, by the formula that ids follow."""
        for number in self._around_first(lambda header: header.base_id > id):
            for batch in self._walk_entry(number, self._segments.index_of(number).at_id(id)):
                header = batch.header
                if header.base_id > id:
                    return None
                index = id_index(header.base_id, header.count, id)
                if index >= 0:
                    return None if self._has_own_id(batch, index) else header.base_offset + index
        return None

    def _has_own_id(self, batch: Batch, index: int) -> bool:
        if not batch.header.flags & FLAG_TRAILER:
            return False
        data = self._batch_bytes(batch, batch.header.base_offset)
        return index in decode_sections(data, 0).get(Section.ID, {})

    def _batch_bytes(self, batch: Batch, offset: int) -> memoryview:
        segment = self._segments[self._segments.holding(offset)]
        return self._load(segment, batch.position, batch.length)

    def _around_first(self, is_after: _HeaderTest) -> range:
        """The numbers of the segments that may hold the first batch that is "after": the last one
        that is known to begin before it, and later ones whose first batch is corrupt."""
        low, high = 0, len(self._segments)
        while low < high:
            middle = (low + high) // 2
            known, header = self._known_at(middle, low)
            if header is not None and is_after(header):
                high = known
            else:
                low = middle + 1
        first = self._known_at(low - 1, 0)[0] if low else 0
        return range(first, low)

    def _known_at(self, number: int, lowest: int) -> tuple[int, BatchHeader | None]:
        """The nearest segment at or below `number` whose first batch is intact, and its header;
        `lowest` and None if there is none."""
        for at in range(number, lowest - 1, -1):
            header = self._segments[at].first_header()
            if header is not None:
                return at, header
        return lowest, None

    def _walk_entry(self, number: int, entry_number: int) -> Iterator[Batch]:
        """Sound batches of a segment from an index entry on (-1: from its beginning). What is
        corrupt is noted and stepped over."""
        segment = self._segments[number]
        position, expected = segment.start, segment.base_offset
        if entry_number >= 0:
            batch = self._segments.intact_entry(number, entry_number)
            if batch is not None:
                position, expected = batch.position, batch.header.base_offset
            else:
                self._segments.rebuild(number)  # this time from the beginning, the next time not
        limit = self._segments.limit(number)
        end_offset = self.written_end if limit is None else limit
        for batch in walk(segment.blocks(), position, expected, limit):
            if batch.header.base_offset > expected:
                self._note(expected, batch.header.base_offset, segment)
            expected = batch.end_offset
            yield batch
        if expected < end_offset:
            self._note(expected, end_offset, segment)

    # --- damage ---

    def _damaged(self, segment: Segment, position: int, base: int, limit: int | None) -> NoReturn:
        """The batch at `position` with offset `base` is corrupt: find its end, and raise."""
        blocks = segment.blocks()
        batch = find_beyond(blocks, position, base, limit)
        to_offset = batch.header.base_offset if batch is not None else limit
        to_offset = max(self.written_end if to_offset is None else to_offset, base + 1)
        self._note(base, to_offset, segment)
        self._raise(segment, base, to_offset)

    def _note(self, from_offset: int, to_offset: int, segment: Segment) -> None:
        self.damage.add(from_offset, to_offset, f"{segment.path}: {_reason(segment)}")

    def _raise(self, segment: Segment, from_offset: int, to_offset: int) -> NoReturn:
        raise LogDamaged(segment.path, _reason(segment), from_offset, to_offset)


def _reason(segment: Segment) -> str:
    return segment.foreign or "a batch is not intact"
