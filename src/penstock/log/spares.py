"""Recycled segment files of one partition.

Only files whose offsets were all below everything the log will write become spares, so their old
batches can never be taken for new ones. A spare found at a start is dropped: after a power loss
the name may stand for a file that had already been put to use again.

A file that was lent to a reader is never recycled: pages of it may still wait in a socket, and what
is written over them would go to the client as if it were its answer. Neither is a segment found
at a start, for the process before this one may have sent from it: the system goes on sending when
a process is gone.
"""

from __future__ import annotations

import os

from penstock.log.disk import Disk, File
from penstock.log.names import spare_name
from penstock.log.segment import Segment


class Spares:
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
        """Make the removal durable, if there is one that is not. A failure leaves it to be tried
        again. Only then may the spare be used: its file must never come back under its old name
        with new content."""
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
        """A file for a new segment, and how many bytes of it are there to be overwritten."""
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
