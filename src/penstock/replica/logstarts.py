"""What a channel journal says of the log's start, and how much of it may be acted on."""

from __future__ import annotations

from collections import deque

from penstock.log.fold import Position
from penstock.replica.lacking import NOTHING


class LogStarts:
    __slots__ = ("_newest", "_waiting", "dropped")

    def __init__(self, start: int, place: Position) -> None:
        self._newest = start
        self._waiting: deque[tuple[Position, int]] = deque([(place, start)] if start else ())
        self.dropped = 0

    def wrote(self, place: Position, start: int) -> None:
        if place.sequence == 0:  # what was said before and was not held goes with its generation
            self._waiting.clear()
            self._newest = 0
        if start > self._newest:
            self._newest = start
            self._waiting.append((place, start))

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def newest_place(self) -> Position:
        return self._waiting[-1][0] if self._waiting else NOTHING

    def droppable(self, held: Position) -> int:
        """The start that is now below `held`; 0: none that was not named before."""
        found = 0
        while self._waiting and self._waiting[0][0] <= held:
            found = self._waiting.popleft()[1]
        if found <= self.dropped:
            return 0
        self.dropped = found
        return found
