"""What cuts have removed from a log, kept beside it for people.

A follower's log may hold batches that its new leader does not have. No promise hangs on them, yet
after an election by force they may be all that is left of them. So a cut keeps what it removes, in
files `cut-<number>-<first offset>.log` of the partition's directory. Each is a segment under
another name: a head, and batches.

The files are bounded in bytes and kept only while the disk has room; the oldest go first. When one
cut removes more than that, its lowest offsets stay, for they continue the log. A failure to keep
something never holds up the cut.
"""

from __future__ import annotations

import os

from penstock import limits
from penstock.log import names
from penstock.log.disk import Disk, File
from penstock.log.head import Head, Owner, encode_head
from penstock.log.segment import Segment


class Aside:
    """Of one cut."""

    def __init__(self, disk: Disk, directory: str, bytes_max: int, owner: Owner | None) -> None:
        self._disk = disk
        self._directory = directory
        self._owner = owner
        self._bytes_max = bytes_max
        self.kept: list[str] = []  # the files made, in the order in which they were

    def plan(self, sizes: list[int]) -> int:
        """How many of these pieces, from the lowest offsets on, may be kept. Older files make room
        for them."""
        try:
            spare_bytes = self._disk.free_bytes(self._directory) - limits.DISK_FREE_BYTES_MIN
            room = min(self._bytes_max, spare_bytes)
            count, total = 0, 0
            while count < len(sizes) and total + sizes[count] <= room:
                total += sizes[count]
                count += 1
            self._drop_oldest(self._bytes_max - total)
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

    def _files(self) -> dict[int, str]:
        """By number."""
        return {
            number: os.path.join(self._directory, name)
            for name in self._disk.listdir(self._directory)
            if (number := names.cut_number(name)) is not None
        }

    def _next_path(self, first_offset: int) -> str:
        number = max(self._files(), default=-1) + 1
        return os.path.join(self._directory, names.cut_name(number, first_offset))

    def copy(self, segment: Segment, position: int, first_offset: int) -> None:
        """What stands in a segment from `position` on, which stays where it is."""
        path = self._next_path(first_offset)
        try:
            file = self._disk.create(path)
            try:
                self._fill(file, segment, position, first_offset)
                file.fdatasync()
            finally:
                file.close()
        except OSError:
            self._forget(path)
            return
        self.kept.append(path)

    def _fill(self, file: File, segment: Segment, position: int, first_offset: int) -> None:
        target = 0
        if self._owner is not None:
            head = encode_head(Head(self._owner, first_offset))
            file.pwritev((head,), 0, len(head))
            target = len(head)
        position = max(position, segment.start)
        while position < segment.data_bytes:
            length = min(limits.REPAIR_COPY_BYTES, segment.data_bytes - position)
            buffer = bytearray(length)
            length = segment.file.pread_into(buffer, position)
            if not length:
                return
            file.pwritev((memoryview(buffer)[:length],), target, length)
            position, target = position + length, target + length

    def _forget(self, path: str) -> None:
        try:
            if self._disk.exists(path):
                self._disk.unlink(path)
        except OSError:
            return  # the next cut has it among the old files

    def take(self, segment: Segment) -> None:
        """A whole segment: its file leaves the log. Raises OSError, and then it is there still."""
        path = self._next_path(segment.base_offset)
        segment.file.truncate(segment.data_bytes)
        segment.close()
        self._disk.rename(segment.path, path)
        self.kept.append(path)
