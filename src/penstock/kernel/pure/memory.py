"""The newest committed batches of one tail, oldest first, for consumers at its end.

Three bounds keep it small: one for each tail, one for all tails of the engine together, and a lower
one for what nobody waits for. The newest batch stays whatever its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import limits
from penstock.kernel.layout import HEADER_BYTES
from penstock.kernel.pure.block import Batch, find_batch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.kernel.pure.window import Window


class SharedMemory:
    """What the tails of one engine have in memory together."""

    def __init__(self) -> None:
        self.bytes = 0
        self.bytes_max = limits.SHARED_MEMORY_BYTES_MAX
        self.recent_bytes_max = limits.RECENT_MEMORY_BYTES_MAX


def kept_bytes(batch: Batch) -> int:
    """Lengths, bodies and trailer, and what a batch costs beside."""
    return batch.length - HEADER_BYTES + limits.KEPT_BATCH_BYTES


class Memory:
    def __init__(self, shared: SharedMemory, bytes_max: int) -> None:
        self.trailer_end = 0  # of the newest batch with a trailer
        self._shared = shared
        self._bytes_max = bytes_max
        self._bytes = 0
        self._batches: list[Batch] = []

    def __del__(self) -> None:
        """With its tail; so do the buffers of the compiled form."""
        self._shared.bytes -= self._bytes

    def start(self, end: int) -> int:
        """The first offset in memory; `end`, the tail's committed end, when there is none."""
        return self._batches[0].base_offset if self._batches else end

    def find(self, offset: int) -> Batch | None:
        return find_batch(self._batches, offset)

    def keep(self, batch: Batch, handing: bool) -> None:
        """`handing`: do channels read at this end?"""
        size = kept_bytes(batch)
        self._batches.append(batch)
        self._bytes += size
        self._shared.bytes += size
        if not batch.plain:
            self.trailer_end = batch.end
        while len(self._batches) > 1 and self._is_full(handing):
            self._drop_oldest()

    def _is_full(self, handing: bool) -> bool:
        shared = self._shared
        return (
            self._bytes > self._bytes_max
            or (not handing and self._bytes > shared.recent_bytes_max)
            or shared.bytes > shared.bytes_max
        )

    def trim(self, windows: Iterable[Window], end: int) -> None:
        """Drop what the windows that read at this end have read; the most recent batches stay for
        those who want them again."""
        start = self.start(end)
        wanted = min((one.next for one in windows if start <= one.next < end), default=end)
        while (
            len(self._batches) > 1
            and self._bytes > self._shared.recent_bytes_max
            and self._batches[0].end <= wanted
        ):
            self._drop_oldest()

    def clear(self) -> None:
        while self._batches:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        size = kept_bytes(self._batches.pop(0))
        self._bytes -= size
        self._shared.bytes -= size

    def validate(self, end: int) -> None:
        expected = self.start(end)
        for batch in self._batches:
            if batch.base_offset != expected:
                raise RuntimeError(f"batch at {batch.base_offset} is out of place")
            expected = batch.end
        if expected != end:
            raise RuntimeError(f"memory does not reach the committed end {end}")
        if self._bytes != sum(map(kept_bytes, self._batches)):
            raise RuntimeError("bytes in memory do not add up")
