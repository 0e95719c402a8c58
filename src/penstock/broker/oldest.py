"""How old the oldest message is that a channel has not finished.

Its age counts from the time of its batch, or from when it was due, if it was published for later:
what is not due yet has no age, and makes no channel late. A look into the log finds that time, and
costs a read; so what was found holds for the whole batch, and a channel that moves on from batch to
batch is looked up every few seconds only. Then the answer may be too high by as much.

While some messages are delayed, the lowest unfinished one may be one of them. Then the first of
each kind that is not are looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import limits
from penstock.errors import PenstockError
from penstock.kernel import Section, Stray
from penstock.kernel.layout import FLAG_TRAILER

if TYPE_CHECKING:
    from penstock.broker.leader import Leader
    from penstock.kernel import Window

_DUE = (Stray.WAITING, Stray.IN_FLIGHT, Stray.EXHAUSTED, Stray.BEHIND)


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
        window = self._window
        if not unfinished_of(window) - window.delayed:
            return None
        if window.delayed:
            if wall_ns >= self._look_ns or self._start < self._end:
                self._find(wall_ns)
                self._look_ns = wall_ns + limits.OLDEST_LOOK_NS
        else:
            offset = window.floor
            moved_on = offset >= self._end
            if offset < self._start or (moved_on and wall_ns >= self._look_ns):
                self._look(offset)
                self._look_ns = wall_ns + limits.OLDEST_LOOK_NS
        if self._timestamp_ns is None:
            return None
        return max(wall_ns - self._timestamp_ns, 0) / limits.SECOND

    def _find(self, wall_ns: int) -> None:
        """Beside delayed ones."""
        window = self._window
        offsets = [one.offset for state in _DUE for one in window.stray_records(state, 1)]
        if window.low < window.next:
            offsets.append(window.low)
        found = [self._timestamp_ns for at in offsets if self._look(at)]
        at, end = window.next, min(window.tail.handed_end, window.next + limits.OLDEST_WALK)
        while at < end and self._look(at):  # what was not sent yet, without what is not due
            if self._timestamp_ns is not None and self._timestamp_ns <= wall_ns:
                found.append(self._timestamp_ns)
                break
            at = self._end
        self._start = self._end = 0  # it holds for no other offset
        self._timestamp_ns = min((one for one in found if one is not None), default=None)

    def _look(self, offset: int) -> bool:
        """Since when the message there is due; False when that cannot be read."""
        leader: Leader = self._window.tail.owner
        self._start, self._end, self._timestamp_ns = offset, offset + 1, None
        if not leader.log.start_offset <= offset < leader.tail.committed_end:
            return False
        leader.topic.was_read()
        try:
            header = leader.log.header_of(offset)
            self._timestamp_ns = header.timestamp_ns
            if header.flags & FLAG_TRAILER:  # each of its messages may have its own time
                due_ns = leader.log.message(offset).sections.get(Section.DUE)
                if isinstance(due_ns, int):
                    self._timestamp_ns = max(due_ns, header.timestamp_ns)
                    return True
        except PenstockError:
            self._timestamp_ns = None
            return False  # damage and failing disks are told of elsewhere
        self._start = header.base_offset
        self._end = header.base_offset + header.count
        return True


def unfinished_of(window: Window) -> int:
    """All that was handed to it and is not done."""
    return window.depth + window.in_flight + window.delayed + window.exhausted
