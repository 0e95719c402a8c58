"""Batches with a trailer, found by the headers alone: special facts of a message (a delay, an id of
its own) are in a trailer, and most batches have none.

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
    head_at,
)
from penstock.log.disk import File
from penstock.log.scan import Blocks


class Trailers(NamedTuple):
    """The result of a part of the walk."""

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
    """The headers of one segment, seen through a small window that moves forward."""

    __slots__ = ("blocks",)

    def __init__(self, file: File, end: int) -> None:
        self.blocks = Blocks(file, end, limits.SEARCH_WINDOW_BYTES)

    def at(self, position: int) -> BatchHead | None:
        """None where no batch of this segment can begin."""
        view = self.blocks.view(position, HEADER_BYTES)
        header_bytes = SHORT_HEADER_BYTES if view[:4] == SHORT_MAGIC else HEADER_BYTES
        if len(view) < header_bytes or view[:4] not in (BATCH_MAGIC, SHORT_MAGIC):
            return None
        head = BatchHead(*head_at(view, 0))
        if head.length < header_bytes or head.length % ALIGNMENT_BYTES or head.count < 1:
            return None
        return head if head.length <= self.blocks.end - position else None

    def intact(self, position: int, length: int) -> memoryview | None:
        """The batch of a header that was just seen; None when it is corrupt."""
        view = self.blocks.view(position, length)
        return view[:length] if check_batch(view, 0)[0] == BatchCheck.INTACT else None
