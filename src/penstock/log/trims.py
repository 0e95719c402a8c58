"""Prepared room that sealed segments give back. The bytes do no harm where they stay, so a failure
stops nothing; it takes room that retention counts as free, so it is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.log.segment import Segment
    from penstock.log.segments import Segments


class Trims:
    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left: list[Segment] = []  # whose truncation failed

    def trim(self, segment: Segment) -> None:
        """Cut it behind its data. A failure leaves it to `settle`."""
        try:
            segment.file.truncate(segment.data_bytes)
        except OSError:
            self._left.append(segment)

    def settle(self, segments: Segments) -> None:
        """Cut those that were left and are still there. Raises OSError."""
        while self._left:
            segment = self._left[-1]
            if segment in segments:
                segment.file.truncate(segment.data_bytes)
            self._left.pop()
