"""Disjoint ranges of offsets, sorted."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import itemgetter

_start, _end = itemgetter(0), itemgetter(1)


class Ranges:
    """Ranges [start, end) that lie ahead of a cursor. There are seldom any, and mostly few."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._ranges)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._ranges, offset, key=_end)
        return at < len(self._ranges) and self._ranges[at][0] <= offset

    @property
    def first(self) -> int:
        return self._ranges[0][0]

    def add(self, start: int, end: int) -> None:
        """Take in one more range; what touches or overlaps becomes one."""
        if end <= start:
            return
        first = bisect_left(self._ranges, start, key=_end)
        last = bisect_right(self._ranges, end, key=_start)
        if first < last:
            start = min(start, self._ranges[first][0])
            end = max(end, self._ranges[last - 1][1])
        self._ranges[first:last] = [(start, end)]

    def step_over(self, offset: int) -> int:
        """The first offset from `offset` on that lies in no range; what is passed is forgotten."""
        while self._ranges and self._ranges[0][0] <= offset:
            offset = max(offset, self._ranges.pop(0)[1])
        return offset

    def count_below(self, end: int) -> int:
        """How many offsets below `end` are covered."""
        return sum(min(stop, end) - start for start, stop in self._ranges if start < end)

    def clear(self) -> None:
        self._ranges.clear()

    def validate(self) -> None:
        last = -1
        for start, end in self._ranges:
            if not last < start < end:
                raise RuntimeError(f"ranges out of order: {self._ranges}")
            last = end
