"""One segment file: where it is, how far it is filled, and the ground prepared ahead of writing.

Writing into pages that the file never had costs five times what overwriting costs, and a sync
after the file grew must write the file system's journal too. So zeros go out ahead of the data, in
small writes, in steps that double with what the segment holds; and a segment that retention
removed is kept as a spare and overwritten (`spares.py`). What lies behind the tail is therefore
zeros or old batches with lower offsets.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.log.disk import Disk, File
from penstock.log.names import index_path_of, segment_name
from penstock.log.scan import HEADER_BYTES, Blocks
from penstock.log.settings import LogSettings

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.kernel import BatchHeader

PAGE_BYTES = 4096


class SegmentInfo(NamedTuple):
    """For stats."""

    path: str
    from_offset: int
    to_offset: int
    bytes_stored: int
    sealed: bool


class Segment:
    """A segment of this log. The file is opened when it is first needed and can be closed again."""

    __slots__ = (
        "_disk",
        "_file",
        "_first",
        "base_offset",
        "data_bytes",
        "index_path",
        "path",
        "readers",
        "unsynced",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, data_bytes: int) -> None:
        self._disk = disk
        self._file: File | None = None
        self._first: BatchHeader | None = None
        self.base_offset = base_offset
        self.path = os.path.join(directory, segment_name(base_offset))
        self.index_path = index_path_of(self.path)
        self.data_bytes = data_bytes  # the end of the last batch
        self.readers = 0  # who read the file beside the log: it must not be overwritten
        self.unsynced = False  # sealed, but not all of it is known to be on disk

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path, write=True)
        return self._file

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def adopt(self, file: File) -> None:
        """Use this handle, just made with the file."""
        self._file = file

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def blocks(self) -> Blocks:
        return Blocks(self.file, self.data_bytes)

    def first_header(self) -> BatchHeader | None:
        """The header of its first batch: where its times and ids begin. None when there is none."""
        if self._first is None and self.data_bytes >= HEADER_BYTES:
            batch = self.blocks().sound(0)
            self._first = batch.header if batch is not None else None
        return self._first


class Ground:
    """The active segment's prepared part: the file has bytes to overwrite up to `prepared`."""

    __slots__ = ("_bytes_max", "_bytes_min", "_segment_bytes_max", "prepared")

    def __init__(self, settings: LogSettings, prepared: int) -> None:
        self._bytes_min = settings.preallocate_bytes_min
        self._bytes_max = settings.preallocate_bytes_max
        self._segment_bytes_max = settings.segment_bytes_max
        self.prepared = prepared

    def extend(self, segment: Segment, end: int, length: int) -> None:
        """Prepare room behind a write of `length` bytes that is about to end at `end`.

        Only small writes gain by it: there the sync is what costs. A large write would pay for its
        pages twice, once for the zeros and once for itself.

        This is done for speed alone, so a failure decides nothing: the space is given back as far
        as
        possible, and the write itself will find out whether the disk is full.
        """
        self.prepared = end  # the write itself brings the bytes up to here
        if length >= limits.PREALLOCATE_FOR_BYTES_MAX:
            return
        step = min(max(end, self._bytes_min), self._bytes_max)
        target = min((end + step) // PAGE_BYTES * PAGE_BYTES, self._segment_bytes_max)
        if target <= end:
            return
        try:
            segment.file.allocate(end, target - end)
        except OSError:
            self._give_back(segment)
        else:
            self.prepared = target

    def _give_back(self, segment: Segment) -> None:
        try:
            segment.file.truncate(self.prepared)
        except OSError:
            # What stays behind the tail is zeros, and a later write overwrites them.
            return


def write_at(segment: Segment, buffers: Sequence[Buffer], position: int, length: int) -> None:
    """One gathered write. On failure the half-written bytes are removed if that can be done; if
    not, a later write overwrites them."""
    try:
        segment.file.pwritev(buffers, position, length)
    except OSError as error:
        try:
            segment.file.truncate(position)
        except OSError as second:
            raise error from second
        raise
