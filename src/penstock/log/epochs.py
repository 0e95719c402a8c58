"""The epochs of a log: which there are, and the first offset of each.

An epoch is the term of one leader; every batch carries that of the leader who made it.
Epochs never fall along a log. So where each one begins follows from the headers alone, by
bisection: first over the segments (the first batch of each), then over the entries of one sparse
index, and only the range between two entries is walked. No second file could contradict the log.

Replicas that compare their logs compare these tables, and then the last batch that both should
have, by its crc. Where a corrupt batch hides a beginning, the first intact batch of the epoch
counts as its beginning: the crc of a common batch decides, not the table.
"""

from typing import NamedTuple

from penstock.log.scan import walk
from penstock.log.segments import Segments

NO_EPOCH = -1  # of a log without a batch
_ANY_EPOCH = 1 << 32  # above all: the newest one is not known


class EpochStart(NamedTuple):
    epoch: int
    first_offset: int


class BatchName(NamedTuple):
    """Tells a batch from any other at its offset. The name (0, end, 0) stands for no batch before
    `end`: no batch begins at the end of its own log."""

    epoch: int
    offset: int
    crc: int


NO_BATCH = BatchName(0, 0, 0)  # before the first batch of a partition


class Extent(NamedTuple):
    """The extent of a log: `epochs` are pairs of an epoch and its first offset, both rising."""

    start: int
    end: int
    epochs: tuple[tuple[int, int], ...]

    @property
    def is_unknown(self) -> bool:
        """There are batches, and none of them is intact: it matches nothing."""
        return self.start < self.end and not self.epochs

    def end_of(self, index: int) -> int:
        return self.epochs[index + 1][1] if index + 1 < len(self.epochs) else self.end


class Epochs:
    """The epochs of an open log, searched on first use, and remembered."""

    __slots__ = ("_segments", "_starts", "newest")

    def __init__(self, segments: Segments, newest: int | None) -> None:
        """`newest`: of the last batch; None when that one is corrupt."""
        self._segments = segments
        self._starts: list[EpochStart] | None = None
        self.newest = _ANY_EPOCH if newest is None else newest

    def table(self, written_end: int) -> tuple[EpochStart, ...]:
        start = self._segments.start_offset
        if start == written_end:
            return ()
        if self._starts is None:
            search = _Search(self._segments)
            search.segments(0, len(self._segments), self.newest)
            self._starts, self.newest = search.starts, search.reached
        return tuple(self._starts)

    def check(self, epoch: int) -> None:
        if epoch < self.newest < _ANY_EPOCH:
            raise ValueError(f"a batch of epoch {epoch} behind one of epoch {self.newest}")

    def begin(self, epoch: int, first_offset: int) -> None:
        """A batch of a higher epoch than all before it was written."""
        if self._starts is not None:
            self._starts.append(EpochStart(epoch, first_offset))
        self.newest = epoch

    def cut(self, end_offset: int, newest: int) -> None:
        """The log ends at `end_offset`, with a batch of epoch `newest`; NO_EPOCH: it is empty."""
        if newest == NO_EPOCH:
            self._starts = []
        elif self._starts is not None:
            self._starts = [one for one in self._starts if one.first_offset < end_offset]
        self.newest = newest

    def look_again(self) -> None:
        """A corrupt batch is intact again: it may begin an epoch."""
        self._starts = None

    def drop_below(self, start_offset: int) -> None:
        starts = self._starts
        if not starts:
            return
        while len(starts) > 1 and starts[1].first_offset <= start_offset:
            del starts[0]
        if starts[0].first_offset < start_offset:
            starts[0] = EpochStart(starts[0].epoch, start_offset)


class _Search:
    """By the headers. Parts are looked at in the order of offsets, so each find is above those
    before it."""

    def __init__(self, segments: Segments) -> None:
        self.starts: list[EpochStart] = []
        self._segments = segments
        self._walked = -1  # the segment that was read as a whole, its index being wrong

    @property
    def reached(self) -> int:
        return self.starts[-1].epoch if self.starts else NO_EPOCH

    def _note(self, epoch: int, base_offset: int) -> None:
        if epoch > self.reached:
            self.starts.append(EpochStart(epoch, base_offset))

    def segments(self, low: int, high: int, newest: int) -> None:
        """Beginnings in segments `low` to `high` - 1, where no epoch is above `newest`: there the
        search ends. One above all never occurs."""
        if low == high or self.reached == newest:
            return
        if high - low == 1:
            self._inside(low, newest)
            return
        middle = (low + high) // 2
        header = self._segments[middle].first_header()
        self.segments(low, middle, newest if header is None else header.leader_epoch)
        self.segments(middle, high, newest)

    def _inside(self, number: int, newest: int) -> None:
        header = self._segments[number].first_header()
        if header is not None:
            self._note(header.leader_epoch, header.base_offset)
        self._entries(number, 0, len(self._segments.index_of(number)), newest)

    def _entries(self, number: int, low: int, high: int, newest: int) -> None:
        if low == high or self.reached == newest or self._walked == number:
            return
        if high - low == 1:
            self._between(number, low)
            return
        middle = (low + high) // 2
        batch = self._segments.intact_entry(number, middle)
        self._entries(number, low, middle, newest if batch is None else batch.header.leader_epoch)
        self._entries(number, middle, high, newest)

    def _between(self, number: int, entry: int) -> None:
        """From one entry to the next."""
        segment = self._segments[number]
        index = self._segments.index_of(number)
        batch = self._segments.intact_entry(number, entry)
        if batch is None:  # the index is wrong, or the batch is corrupt: read all there is
            self._segments.rebuild(number)
            self._walked = number
            self._walk(number, segment.start, segment.base_offset, self._segments.limit(number))
            return
        is_last = entry + 1 == len(index)
        end = self._segments.limit(number) if is_last else index.offsets[entry + 1]
        self._walk(number, batch.position, batch.header.base_offset, end)

    def _walk(self, number: int, position: int, offset: int, end: int | None) -> None:
        blocks = self._segments[number].blocks()
        for batch in walk(blocks, position, offset, end):
            self._note(batch.header.leader_epoch, batch.header.base_offset)
