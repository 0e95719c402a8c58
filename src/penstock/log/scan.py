"""Reading batches out of a segment file: in windows, checked, and past corrupt ranges.

A walk goes from batch to batch by their lengths. Where it meets something else than the batch that
must come next, it looks for the next intact one further on: first where the corrupt batch says that
it ends (a flipped bit in a body leaves the header true), then at every multiple of 8 that holds the
magic. A candidate must be plausible: it is intact, its offset is above the one that is missing, and
the bytes stepped over are enough for the messages stepped over. That tells apart the old batches
of a recycled file, whose offsets are lower than any that can come here, and what an unfinished
write of an earlier leader has left behind the tail: its offset may be right, its epoch is lower.

`end_of_range` is for everyone who reads a log over the network. An answer to `/log/fetch` has whole
raw batches. Each is checked by its crc; the first holds the offset that was asked for, and each
other one follows the one before it. So bytes of another position of the log, of another log, or
changed on the way, are an error, and never rows that are too many or missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.errors import RangeCorrupt
from penstock.kernel import BatchCheck, BatchHeader, check_batch, decode_header
from penstock.kernel.layout import (
    ALIGNMENT_BYTES,
    BATCH_MAGIC,
    HEADER_BYTES,
    LENGTH_FIELD_BYTES,
    SHORT_HEADER_BYTES,
    SHORT_MAGIC,
    base_offset_at,
    head_at,
)
from penstock.log.disk import File

if TYPE_CHECKING:
    from typing_extensions import Buffer


_MAGICS = re.compile(re.escape(BATCH_MAGIC) + b"|" + re.escape(SHORT_MAGIC))
WINDOW_BYTES = limits.READ_BLOCK_BYTES


class Batch(NamedTuple):
    """An intact batch and its position."""

    position: int
    length: int
    header: BatchHeader

    @property
    def end_position(self) -> int:
        return self.position + self.length

    @property
    def end_offset(self) -> int:
        return self.header.base_offset + self.header.count


class Blocks:
    """One file seen through a window that moves forward."""

    __slots__ = ("_buffer", "_file", "_start", "_view", "_window_bytes", "bytes_read", "end")

    def __init__(self, file: File, end: int, window_bytes: int = WINDOW_BYTES) -> None:
        self._file = file
        self._window_bytes = window_bytes
        self._start = 0
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self.end = end  # nothing at or beyond this position is looked at
        self.bytes_read = 0

    def check(self, position: int) -> tuple[BatchCheck, int]:
        """Check the batch at `position`; SHORT only when it would end beyond `end`."""
        self._reach(position, HEADER_BYTES)
        status, length = check_batch(self._view, position - self._start)
        if status == BatchCheck.SHORT and SHORT_HEADER_BYTES <= length <= self.end - position:
            self._reach(position, length)
            status, length = check_batch(self._view, position - self._start)
        return BatchCheck(status), length

    def view(self, position: int, length: int) -> memoryview:
        """The bytes from there on: at least this many, if the file has them."""
        self._reach(position, length)
        return self._view[position - self._start :]

    def _reach(self, position: int, length: int) -> None:
        if not self._holds(position, length):
            self._load(position, max(length, self._window_bytes))

    def header(self, position: int) -> BatchHeader:
        """Call after a successful `check`."""
        return decode_header(self._view, position - self._start)

    def head(self, position: int) -> tuple[int, int, int, int] | None:
        """Length, flags, offset and count of the batch there, by its header alone, which is to be
        believed only to pass over it; None where no batch can begin."""
        view = self.view(position, HEADER_BYTES)
        header_bytes = SHORT_HEADER_BYTES if view[:4] == SHORT_MAGIC else HEADER_BYTES
        if len(view) < header_bytes or view[:4] not in (BATCH_MAGIC, SHORT_MAGIC):
            return None
        length, _, _, count = found = head_at(view, 0)
        if length < header_bytes or length % ALIGNMENT_BYTES or count < 1:
            return None
        return found if length <= self.end - position else None

    def intact(self, position: int) -> Batch | None:
        """The intact batch at `position`, if there is one."""
        if position >= self.end:
            return None
        status, length = self.check(position)
        if status != BatchCheck.INTACT:
            return None
        return Batch(position, length, self.header(position))

    def find_magic(self, position: int, hole_position: int, expected: int) -> int:
        """The next aligned magic from `position` on whose header is plausible beyond a hole at
        `hole_position`, or -1. Comparing the offset first saves the crc of every old batch."""
        while position + SHORT_HEADER_BYTES <= self.end:
            self._reach(position, HEADER_BYTES)
            found = self._find_in_window(position, hole_position, expected)
            if found >= 0:
                return found
            # The last header's bytes may hold the beginning of a magic: look at them again.
            window_end = self._start + len(self._view)
            position = max(_align(window_end - SHORT_HEADER_BYTES), position + ALIGNMENT_BYTES)
        return -1

    def used_end(self, position: int) -> int:
        """The end of the last byte from `position` on that is not zero; `position` if there is
        none."""
        used = position
        while position < self.end:
            self._load(position, WINDOW_BYTES)
            kept = len(bytes(self._view).rstrip(b"\0"))
            if kept:
                used = position + kept
            position += len(self._view)
        return used

    def _find_in_window(self, position: int, hole_position: int, expected: int) -> int:
        data = self._buffer
        at = position - self._start
        last = len(self._view) - SHORT_HEADER_BYTES
        while 0 <= at <= last:
            magic = _MAGICS.search(data, at, last + len(BATCH_MAGIC))
            if magic is None:
                break
            at = magic.start()
            found = self._start + at
            if found % ALIGNMENT_BYTES == 0:
                lost = base_offset_at(data, at) - expected
                if 0 < lost <= (found - hole_position) // LENGTH_FIELD_BYTES:
                    return found
            at += 1
        return -1

    def _holds(self, position: int, length: int) -> bool:
        end = min(position + length, self.end)
        return self._start <= position and end <= self._start + len(self._view)

    def _load(self, position: int, length: int) -> None:
        buffer = bytearray(max(min(length, self.end - position), 0))
        filled = self._file.pread_into(buffer, position)
        self._buffer = buffer
        self._view = memoryview(buffer)[:filled]
        self._start = position
        self.bytes_read += filled
        self.end = min(self.end, position + filled) if filled < len(buffer) else self.end


def headers_of(batches: Buffer, position: int = 0) -> Iterator[BatchHeader]:
    """Consecutive headers. Raises ValueError where no batch begins."""
    length = memoryview(batches).nbytes
    while position < length:
        header = decode_header(batches, position)
        yield header
        position += max(header.length, 1)


def walk(
    blocks: Blocks, position: int, expected: int, limit: int | None, epoch: int = 0
) -> Iterator[Batch]:
    """Intact batches from `position` on, the first with offset `expected`, skipping corrupt ones: a
    caller sees that by a base offset above the end of the batch before. It ends at `limit`, the
    offset of the next segment, or at the last batch. The batch before has epoch `epoch`; one of a
    lower epoch is old content, whatever its offset."""
    while limit is None or expected < limit:
        batch = blocks.intact(position)
        if (
            batch is None
            or batch.header.base_offset != expected
            or batch.header.leader_epoch < epoch
        ):
            batch = find_beyond(blocks, position, expected, limit, epoch)
            if batch is None:
                return
        yield batch
        position, expected = batch.end_position, batch.end_offset
        epoch = batch.header.leader_epoch


def find_beyond(
    blocks: Blocks, position: int, expected: int, limit: int | None, epoch: int = 0
) -> Batch | None:
    """The first intact batch beyond `position`, where the one with offset `expected` should
    stand."""

    def plausible(batch: Batch) -> bool:
        lost = batch.header.base_offset - expected
        return (
            0 < lost <= (batch.position - position) // LENGTH_FIELD_BYTES
            and (limit is None or batch.end_offset <= limit)
            and batch.header.synced_end <= batch.header.base_offset
            and batch.header.leader_epoch >= epoch
        )

    if position + SHORT_HEADER_BYTES > blocks.end:
        return None
    _, claimed = blocks.check(position)
    if claimed >= SHORT_HEADER_BYTES and claimed % ALIGNMENT_BYTES == 0:
        batch = blocks.intact(position + claimed)
        if batch is not None and plausible(batch):
            return batch
    at = position
    while (at := blocks.find_magic(_align(at) + ALIGNMENT_BYTES, position, expected)) >= 0:
        batch = blocks.intact(at)
        if batch is not None and plausible(batch):
            return batch
    return None


def _align(position: int) -> int:
    return position - position % ALIGNMENT_BYTES


def end_of_range(data: Buffer, position: int, following: str | None = None) -> int:
    """The offset after the batches of `data`, which begin with the one that holds `position`.
    `following` is X-Penstock-Next-Offset. Raises RangeCorrupt."""
    view = memoryview(data).cast("B")
    at, end_offset = 0, position
    while at < len(view):
        status, length = check_batch(view, at)
        if status != BatchCheck.INTACT:
            raise RangeCorrupt(f"the batch at byte {at} is corrupt ({BatchCheck(status).name})")
        _, _, base_offset, count = head_at(view, at)
        is_next = base_offset == end_offset if at else base_offset <= position < base_offset + count
        if not is_next:
            held = f"holds offsets {base_offset} to {base_offset + count - 1}"
            raise RangeCorrupt(f"the batch at byte {at} {held}, not offset {end_offset}")
        end_offset = base_offset + count
        at += length
    if following is not None and following != str(end_offset):
        raise RangeCorrupt(
            f"the batches end at offset {end_offset}, not at {following} as was said"
        )
    return end_offset
