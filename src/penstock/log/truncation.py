"""Taking away the end of a log, or all of it: the steps on disk, and why they stand in this order.

A cut removes what a new leader does not have. When it returns, what it removed can never come back:
a follower acknowledges from then on that other batches stand there. And a power loss in the midst
of a cut must leave a log that recovery takes for whole, cut or not or in part, and never for one
that has lost acknowledged data. So

1. The mark is lowered, in both copies, where it speaks of what will be gone. It is a lower bound,
   so a lower one is as true. For a log that is emptied it says 0.
2. Ranges that were given up (`lost`) and will be gone are forgotten: other batches will have
   these offsets.
3. What is to be kept aside is copied (`Aside`).
4. Whole segments go from the end of the log on, each gone for good before the next: what is left
   is always a beginning of the log, and the headers in a beginning speak of that beginning alone.
5. The segment in which the log now ends is truncated.
6. Everything is synced, and only then does the log say that it ends there.

A segment that was cut never becomes a spare: its offsets will come again. Spares hold offsets below
the log's start, which a cut does not reach; a log that begins again elsewhere drops them first.

An error in steps 4 to 6 stops the partition. The next start finds a beginning of the log.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from typing import NamedTuple

from penstock import limits
from penstock.log import names
from penstock.log.disk import Disk, copy_bytes
from penstock.log.head import LogHead, LogOwner, encode_head
from penstock.log.index import SparseIndex
from penstock.log.segment import Segment
from penstock.log.segments import Segments


class Removed(NamedTuple):
    from_offset: int
    to_offset: int
    kept: tuple[str, ...]  # the files in which it is, or as much of it as there was room for


class Cutting:
    """Steps 3 to 5, on files alone."""

    def __init__(self, disk: Disk, directory: str, segments: Segments, aside: Aside) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._aside = aside

    def cut(self, number: int, position: int, offset: int) -> None:
        """Let the log end at `position` in this segment, with `offset`. Raises OSError."""
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

    def _index_up_to(self, number: int, position: int, offset: int) -> SparseIndex:
        """The index file is removed, and made again: no entry of a removed batch may survive."""
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
        """Let this new segment replace the remaining one, which is empty."""
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


class Aside:
    """What cuts have removed from a log, kept beside it for people.

    A follower's log may hold batches that its new leader does not have. No promise hangs on them,
    yet after an election by force they may be all that is left of them. So a cut keeps what it
    removes, in files `cut-<number>-<first offset>.log` of the partition's directory. Each is a
    segment under another name: a head, and batches.

    The files are bounded in bytes and kept only while the disk has room; the oldest go first, and
    each when the log begins above it. When one cut removes more than that, its lowest offsets stay,
    for they continue the log. A failure to keep something never holds up the cut.
    """

    def __init__(self, disk: Disk, directory: str, bytes_max: int, owner: LogOwner | None) -> None:
        self._disk = disk
        self._directory = directory
        self._owner = owner
        self.bytes_max = bytes_max
        self.kept: list[str] = []  # the files made, in the order in which they were

    def plan(self, sizes: list[int]) -> int:
        """How many of these pieces, from the lowest offsets on, may be kept. Older files make room
        for them."""
        try:
            spare_bytes = self._disk.free_bytes(self._directory) - limits.DISK_FREE_BYTES_MIN
            room = min(self.bytes_max, spare_bytes)
            count, total = 0, 0
            while count < len(sizes) and total + sizes[count] <= room:
                total += sizes[count]
                count += 1
            self._drop_oldest(self.bytes_max - total)
        except OSError:
            return 0
        return count

    def _drop_oldest(self, bytes_max: int) -> None:
        there = sorted(self._files().items())
        sizes = {path: self._disk.size(path) for _, path in there}
        left = sum(sizes.values())
        for _, path in there:
            if left <= bytes_max:
                return
            self._disk.unlink(path)
            left -= sizes[path]

    def drop_below(self, start_offset: int) -> None:
        """Retention removes kept cuts, too. Raises OSError."""
        for name in self._disk.listdir(self._directory):
            first_offset = names.cut_base(name)
            if first_offset is not None and first_offset < start_offset:
                self._disk.unlink(os.path.join(self._directory, name))

    def _files(self) -> dict[int, str]:
        return {
            number: os.path.join(self._directory, name)
            for name in self._disk.listdir(self._directory)
            if (number := names.cut_number(name)) is not None
        }

    def _next_path(self, first_offset: int) -> str:
        number = max(self._files(), default=-1) + 1
        return os.path.join(self._directory, names.cut_name(number, first_offset))

    def copy(self, segment: Segment, position: int, first_offset: int) -> None:
        """Copy the rest of a segment from `position` on, which stays in place."""
        path = self._next_path(first_offset)
        try:
            with closing(self._disk.create(path)) as file:
                head = b""
                if self._owner is not None:
                    head = encode_head(LogHead(self._owner, first_offset))
                    file.pwritev((head,), 0, len(head))
                position = max(position, segment.start)
                copy_bytes(segment.file, position, segment.data_bytes, file, len(head))
                file.fdatasync()
        except OSError:
            with suppress(OSError):  # else the next cut has it among the old files
                if self._disk.exists(path):
                    self._disk.unlink(path)
            return
        self.kept.append(path)

    def take(self, segment: Segment) -> None:
        """Take a whole segment: its file leaves the log. Raises OSError, and then it is still
        there."""
        path = self._next_path(segment.base_offset)
        segment.file.truncate(segment.data_bytes)
        segment.close()
        self._disk.rename(segment.path, path)
        self.kept.append(path)
