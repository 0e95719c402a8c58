"""A few disjoint ranges of offsets, sorted."""

from __future__ import annotations


class Ranges:
    """Ranges [start, end) that lie ahead of a cursor. There are seldom any, and mostly few."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._ranges)

    @property
    def first(self) -> int:
        return self._ranges[0][0]

    def add(self, start: int, end: int) -> None:
        """Take in one more range; what touches or overlaps becomes one."""
        if end <= start:
            return
        if not self._ranges or start > self._ranges[-1][1]:
            self._ranges.append((start, end))
            return
        merged: list[tuple[int, int]] = []
        for one_start, one_end in sorted([*self._ranges, (start, end)]):
            if merged and one_start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], one_end))
            else:
                merged.append((one_start, one_end))
        self._ranges = merged

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
