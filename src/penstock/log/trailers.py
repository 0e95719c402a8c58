"""Batches with a trailer, found by the headers alone: what is special about a message (a delay, an
id of its own) stands in a trailer, and most batches have none.

A walk looks at the header of each batch and goes on by its length, so the bodies of large batches
are not even read. What a header says is believed only to pass over a batch: one that has a trailer
is checked before it is handed out, and where a header is not what must come next, the walk ends and
a checked read finds out why.
"""

from typing import NamedTuple

from penstock import limits
from penstock.kernel import BatchCheck, check_batch
from penstock.kernel.layout import (
    ALIGNMENT_BYTES,
    BATCH_MAGIC,
    FLAG_TRAILER,
    HEADER_BYTES,
    SHORT_HEADER_BYTES,
    SHORT_MAGIC,
    place_at,
)
from penstock.log.disk import File


class Trailers(NamedTuple):
    """What a part of the walk found."""

    blocks: list[memoryview]  # batches with a trailer, whole and checked
    next_offset: int  # all batches below it were looked at


class BatchHead(NamedTuple):
    length: int
    flags: int
    base_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count

    @property
    def has_trailer(self) -> bool:
        return bool(self.flags & FLAG_TRAILER)


class Heads:
    """The headers of one segment, seen through a window that moves forward."""

    __slots__ = ("_end", "_file", "_start", "_view", "bytes_read")

    def __init__(self, file: File, end: int) -> None:
        self._file = file
        self._end = end
        self._start = 0
        self._view = memoryview(b"")
        self.bytes_read = 0

    def at(self, position: int) -> BatchHead | None:
        """None where no batch of this segment can begin."""
        view = self._held(position, HEADER_BYTES) or self._load(
            position, limits.SEARCH_WINDOW_BYTES
        )
        header_bytes = SHORT_HEADER_BYTES if view[:4] == SHORT_MAGIC else HEADER_BYTES
        if len(view) < header_bytes or view[:4] not in (BATCH_MAGIC, SHORT_MAGIC):
            return None
        length, flags, base_offset, count = place_at(view, 0)
        if length < header_bytes or length % ALIGNMENT_BYTES:
            return None
        if count < 1:
            return None
        return (
            BatchHead(length, flags, base_offset, count) if length <= self._end - position else None
        )

    def sound(self, position: int, length: int) -> memoryview | None:
        """The batch of a header that was just seen; None when it is corrupt."""
        view = self._held(position, length)
        if view is None:
            view = self._load(position, max(length, limits.SEARCH_WINDOW_BYTES))
        return view[:length] if check_batch(view, 0)[0] == BatchCheck.SOUND else None

    def _held(self, position: int, length: int) -> memoryview | None:
        at = position - self._start
        return self._view[at:] if 0 <= at <= len(self._view) - length else None

    def _load(self, position: int, length: int) -> memoryview:
        buffer = bytearray(max(min(length, self._end - position), 0))
        self._view = memoryview(buffer)[: self._file.pread_into(buffer, position)]
        self._start = position
        self.bytes_read += len(self._view)
        return self._view
