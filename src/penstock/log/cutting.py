"""Taking away the end of a log, or all of it: the steps on disk, and why they stand in this order.

A cut removes what a new leader does not have. When it returns, what it removed can never come back:
a follower acknowledges from then on that other batches stand there. And a power loss in the midst
of a cut must leave a log that recovery takes for whole, cut or not or in part, and never for one
that has lost acknowledged data. So

1. The mark is lowered, in both copies, where it speaks of what will be gone. It is a lower bound,
   so a lower one is as true. For a log that is emptied it says 0.
2. Ranges that were given up (`lost`) and will be gone are forgotten: other batches will have
   these offsets.
3. What is to be kept aside is copied (`aside.py`).
4. Whole segments go from the end of the log on, each gone for good before the next: what is left
   is always a beginning of the log, and the headers in a beginning speak of that beginning alone.
5. The segment in which the log now ends is truncated.
6. Everything is synced, and only then does the log say that it ends there.

A segment that was cut never becomes a spare: its offsets will come again. Spares hold offsets below
the log's start, which a cut does not reach; a log that begins again elsewhere drops them first.

An error in steps 4 to 6 stops the partition. The next start finds a beginning of the log.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.log.aside import Aside
from penstock.log.disk import Disk
from penstock.log.index import SparseIndex
from penstock.log.segment import Segment
from penstock.log.segments import Segments


class Removed(NamedTuple):
    """What a cut took, for people and counters."""

    from_offset: int
    to_offset: int
    bytes_removed: int
    kept: tuple[str, ...]  # the files in which it is, or as much of it as there was room for


class Cutting:
    """Steps 3 to 5, on files alone."""

    def __init__(self, disk: Disk, directory: str, segments: Segments, aside: Aside) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._aside = aside

    def cut(self, number: int, position: int, offset: int) -> int:
        """Let the log end at `position` in this segment, with `offset`. Returns how many bytes were
        removed. Raises OSError."""
        segments = self._segments
        last = segments[number]
        above = [segments[n] for n in range(number + 1, len(segments))]
        sizes = [last.data_bytes - position, *(segment.data_bytes for segment in above)]
        kept_count = self._aside.plan(sizes)
        if kept_count and sizes[0]:
            self._aside.copy(last, position, offset)
        for n in range(len(above) - 1, -1, -1):
            self._remove(above[n], keep=n + 1 < kept_count)
        index = self._index_up_to(number, position, offset)
        segments.end_with(number, index)
        last.file.truncate(position)
        last.ends_at(position)
        return sum(sizes)

    def _index_up_to(self, number: int, position: int, offset: int) -> SparseIndex:
        """Its file goes, and is made again: no entry of what was cut may outlive it."""
        index = SparseIndex(self._segments[number].index_path)
        if position:
            index = self._segments.index_of(number)
            index.cut(index.at_offset(offset - 1) + 1)
        if self._disk.exists(index.path):
            self._disk.unlink(index.path)
        index.saved, index.trim = 0, False
        return index

    def _remove(self, segment: Segment, keep: bool) -> None:
        if keep:
            self._aside.take(segment)
        else:
            segment.close()
            self._disk.unlink(segment.path)
        if self._disk.exists(segment.index_path):
            self._disk.unlink(segment.index_path)
        self._disk.sync_directory(self._directory)

    def begin_at(self, segment: Segment) -> None:
        """Let this new segment stand in place of the one that is left and holds nothing."""
        old = self._segments[0]
        segment.adopt(self._disk.create(segment.path))
        segment.file.fdatasync()
        self._disk.sync_directory(self._directory)
        old.close()
        self._disk.unlink(old.path)
        if self._disk.exists(old.index_path):
            self._disk.unlink(old.index_path)
        self._disk.sync_directory(self._directory)
        self._segments.begin_with(segment)
