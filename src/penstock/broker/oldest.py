"""How old the oldest message is that a channel has not finished.

Its age counts from the time of its batch. A look into the log finds that time, and costs a read;
so what was found holds for the whole batch, and a channel that moves on from batch to batch is
looked up every few seconds only. Then the answer may be too high by as much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import limits
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.broker.leader import Leader
    from penstock.kernel import Window


class Oldest:
    def __init__(self) -> None:
        self._windows: dict[int, OldestOf] = {}

    def watch(self, partition: int, window: Window) -> None:
        self._windows[partition] = OldestOf(window)

    def forget(self, partition: int) -> None:
        del self._windows[partition]

    def of(self, partition: int) -> OldestOf:
        return self._windows[partition]

    def age_s(self, wall_ns: int) -> float | None:
        """Seconds; None when all is finished, or the logs can't tell."""
        ages = [one.age_s(wall_ns) for one in self._windows.values()]
        return max((age for age in ages if age is not None), default=None)


class OldestOf:
    """Of one window."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._start = self._end = 0  # offsets of the batch that was found
        self._timestamp_ns: int | None = None  # None: it could not be read
        self._look_ns = 0  # the next look is not before

    def age_s(self, wall_ns: int) -> float | None:
        if not unfinished_of(self._window):
            return None
        offset = self._window.floor
        moved_on = offset >= self._end
        if offset < self._start or (moved_on and wall_ns >= self._look_ns):
            self._look(offset)
            self._look_ns = wall_ns + limits.OLDEST_LOOK_NS
        if self._timestamp_ns is None:
            return None
        return max(wall_ns - self._timestamp_ns, 0) / limits.SECOND

    def _look(self, offset: int) -> None:
        leader: Leader = self._window.tail.owner
        self._start, self._end, self._timestamp_ns = offset, offset + 1, None
        if not leader.log.start_offset <= offset < leader.tail.committed_end:
            return
        leader.topic.was_read()
        try:
            header = leader.log.header_of(offset)
        except PenstockError:
            return  # damage and failing disks are told of elsewhere
        self._start = header.base_offset
        self._end = header.base_offset + header.count
        self._timestamp_ns = header.timestamp_ns


def unfinished_of(window: Window) -> int:
    """All that was handed to it and is not done."""
    return window.depth + window.in_flight + window.delayed + window.exhausted
