"""One segment file: its path, its fill level, and the space prepared ahead of writes.

Writing into pages that the file never had costs five times what overwriting costs, and a sync
after the file grew must write the file system's journal too. So zeros go out ahead of the data, in
small writes, in steps that double with what the segment holds; and a segment that retention
removed is kept as a spare and overwritten (`writer.py`). What lies behind the tail is therefore
zeros or old batches with lower offsets.

What can be set about one partition's log.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.kernel.layout import SHORT_HEADER_BYTES
from penstock.log.disk import Disk, File
from penstock.log.head import HEAD_BYTES, LogHead, LogOwner, encode_head, read_beginning
from penstock.log.names import index_path_of, segment_name
from penstock.log.scan import Blocks

if TYPE_CHECKING:
    from penstock.kernel import BatchHeader


PAGE_BYTES = 4096


class SegmentInfo(NamedTuple):
    """For the stats."""

    path: str
    from_offset: int
    to_offset: int
    bytes_stored: int
    sealed: bool


@dataclass(slots=True, eq=False)
class Segment:
    """A segment of this log. The file is opened on first use and can be closed again."""

    _disk: Disk
    directory: InitVar[str]
    base_offset: int
    _owner: LogOwner | None  # the log that it must be part of; None: unknown
    path: str = field(init=False)
    index_path: str = field(init=False)
    data_bytes: int = 0  # the end of the last batch
    readers: int = 0  # ranges of it that are being read beside the log
    was_lent: bool = False  # one was: its pages may wait in sockets, so nothing overwrites them
    unsynced: bool = False  # sealed, but not all of it is known to be on disk
    _start: int = -1  # not looked at
    _foreign: str = ""
    _file: File | None = None
    _first: BatchHeader | None = None

    def __post_init__(self, directory: str) -> None:
        self.path = os.path.join(directory, segment_name(self.base_offset))
        self.index_path = index_path_of(self.path)

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._disk.open(self.path, write=True)
            self._keep(file)
        return file

    def adopt(self, file: File) -> None:
        """Use this handle, just made with the file. What a recycled one holds is not looked at."""
        self._start = 0
        self._keep(file)

    def _keep(self, file: File) -> None:
        self._file = file
        self._disk.keep(file)

    def unpin(self) -> None:
        """All of it is on disk."""
        if self._file is not None:
            self._file.pinned = False

    @property
    def start(self) -> int:
        """The position of its first batch."""
        if self._start < 0:
            self._look()
        return self._start

    @property
    def foreign(self) -> str:
        """Why nothing of it may be served: it is part of another log. Empty when it is not."""
        if self._start < 0:
            self._look()
        return self._foreign

    def _look(self) -> None:
        """Read on first use: a start opens few of its segments."""
        beginning = read_beginning(self.file, self.base_offset)
        self._start = beginning.start
        if self._owner is not None and beginning.owner not in (None, self._owner):
            self._foreign = f"the segment belongs to another log ({beginning.owner})"

    def begin(self) -> bytes:
        """The head, to be written in front of its first batch; empty where the log has no owner."""
        if self._owner is None:
            self._start = 0
            return b""
        self._start = HEAD_BYTES
        return encode_head(LogHead(self._owner, self.base_offset))

    def ends_at(self, position: int) -> None:
        """It was truncated."""
        self.data_bytes = position
        if not position:
            self._first = None

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def blocks(self) -> Blocks:
        """Nothing for a segment of another log."""
        return Blocks(self.file, 0 if self.foreign else self.data_bytes)

    def first_header(self) -> BatchHeader | None:
        """The header of its first batch: where its times and ids begin. None when there is none."""
        if self._first is None and self.data_bytes >= SHORT_HEADER_BYTES:
            batch = self.blocks().intact(self.start)
            self._first = batch.header if batch is not None else None
        return self._first


class Preallocation:
    """The active segment's prepared part: the file has bytes to overwrite up to `prepared`."""

    __slots__ = ("_bytes_max", "_bytes_min", "_segment_bytes_max", "prepared")

    def __init__(self, settings: LogSettings, prepared: int) -> None:
        self._bytes_min = settings.preallocate_bytes_min
        self._bytes_max = settings.preallocate_bytes_max
        self._segment_bytes_max = settings.segment_bytes_max
        self.prepared = prepared

    def extend(self, segment: Segment, end: int, length: int) -> None:
        """Prepare room behind a write of `length` bytes that will end at `end`.

        Only small writes gain by it: there the sync is what costs. A large write would pay for its
        pages twice, once for the zeros and once for itself.

        This is done for speed alone, so a failure decides nothing: the write itself will find out
        whether the disk is full.
        """
        self.prepared = end  # the write itself brings the bytes up to here
        if length >= limits.PREALLOCATE_FOR_BYTES_MAX:
            return
        step = min(max(end, self._bytes_min), self._bytes_max)
        target = min((end + step) // PAGE_BYTES * PAGE_BYTES, self._segment_bytes_max)
        if target > end:
            with suppress(OSError):
                self.try_extend(segment, end, target - end)

    def try_extend(self, segment: Segment, end: int, length: int) -> None:
        """Prepare `length` bytes behind `end`. Raises OSError, and gives the space back as far as
        possible: what stays behind the tail is zeros, and a later write overwrites them."""
        self.prepared = end
        try:
            segment.file.allocate(end, length)
        except OSError:
            with suppress(OSError):
                segment.file.truncate(end)
            raise
        self.prepared = end + length


@dataclass(frozen=True, slots=True)
class LogSettings:
    segment_bytes_max: int = limits.SEGMENT_BYTES_MAX
    segment_age_max_ns: int = limits.SEGMENT_AGE_MAX_NS
    index_every_bytes: int = limits.INDEX_EVERY_BYTES
    preallocate_bytes_min: int = limits.PREALLOCATE_BYTES_MIN
    preallocate_bytes_max: int = limits.PREALLOCATE_BYTES_MAX  # 0: never ahead of writing
    spare_segments_max: int = limits.SPARE_SEGMENTS_MAX
    cut_kept_bytes_max: int = limits.CUT_KEPT_BYTES_MAX
    mark_every_ns: int = limits.MARK_EVERY_NS
