"""Recycled segment files of one partition.

Only files whose offsets were all below everything the log will write become spares, so their old
batches can never be taken for new ones. A spare found at a start is dropped: after a power loss
the name may stand for a file that had already been put to use again.
"""

from __future__ import annotations

import os

from penstock.log.disk import Disk, File
from penstock.log.names import spare_name
from penstock.log.segment import Segment


class Spares:
    __slots__ = ("_directory", "_disk", "_numbers", "_spares_max")

    def __init__(self, disk: Disk, directory: str, spares_max: int) -> None:
        self._disk = disk
        self._directory = directory
        self._numbers: list[int] = []
        self._spares_max = spares_max

    def __len__(self) -> int:
        return len(self._numbers)

    def remove(self, segment: Segment) -> int | None:
        """Take a segment's file out of the log: the number of the spare it became, None when it was
        unlinked, as one is that is still being read. On failure nothing has changed. `settle` must
        follow."""
        segment.close()
        if segment.readers or len(self._numbers) >= self._spares_max:
            self._disk.unlink(segment.path)
            return None
        number = max(self._numbers, default=-1) + 1
        self._disk.rename(segment.path, self._path(number))
        return number

    def settle(self, segment: Segment, number: int | None) -> None:
        """Make the removal durable. Only then may the spare be used: its file must never come back
        under its old name with new content."""
        if self._disk.exists(segment.index_path):
            self._disk.unlink(segment.index_path)
        self._disk.sync_directory(self._directory)
        if number is not None:
            self._numbers.append(number)

    def make_file(self, path: str) -> tuple[File, int]:
        """A file for a new segment, and how many bytes of it are there to be overwritten."""
        if not self._numbers:
            return self._disk.create(path), 0
        self._disk.rename(self._path(self._numbers.pop()), path)
        try:
            file = self._disk.open(path, write=True)
        except OSError:
            self._disk.unlink(path)
            raise
        return file, file.size()

    def _path(self, number: int) -> str:
        return os.path.join(self._directory, spare_name(number))
