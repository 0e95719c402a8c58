"""Delayed messages that are counted and are not among the strays.

A stray costs memory, so a channel has a bounded number of them before its cursor comes by. The
delayed messages beyond that bound stay in the log. They are found by passes over it, and a pass
counts those that are due after its own time. So whether one is in the count follows from its
offset and due time alone, and nothing is kept for it: `met` takes out the one at the cursor, and a
later pass, which finds some of them due and parks others, leaves the count right at every step.
"""

from __future__ import annotations

NEVER_NS = (1 << 63) - 1


class Beyond:
    def __init__(self) -> None:
        self.clear(0, 0)

    def clear(self, offset: int, wall_ns: int) -> None:
        """Nothing is counted; the next pass begins at `offset`."""
        self.start = self.end = self.at = offset  # passes went over [start, end), the last up to at
        self.count = 0
        self.pass_ns = self._before_ns = wall_ns  # the time of the last pass, of the one before
        self.due_ns = NEVER_NS  # when the first one that the last pass counted is due

    def begin(self, offset: int, wall_ns: int) -> None:
        """A pass over what is counted; the last one is over."""
        self.at = offset
        self._before_ns, self.pass_ns = self.pass_ns, wall_ns
        self.due_ns = NEVER_NS

    def counts(self, offset: int, due_ns: int) -> bool:
        since_ns = self.pass_ns if offset < self.at else self._before_ns
        return self.start <= offset < self.end and due_ns > since_ns

    def add(self, offset: int, due_ns: int) -> None:
        if not self.count:
            self.start = offset
        self.count += 1
        self.expect(due_ns)

    def expect(self, due_ns: int) -> None:
        self.due_ns = min(self.due_ns, due_ns)

    def met(self, offset: int, due_ns: int) -> None:
        """It is counted no more: the cursor passes it, or it is parked, or it is due."""
        if self.count and self.counts(offset, due_ns):
            self.count -= 1

    def passed(self, offset: int) -> None:
        """The pass has come up to here."""
        self.at = max(self.at, offset)
        self.end = max(self.end, self.at)

    def overlaps(self, start: int, end: int) -> bool:
        return self.count > 0 and start < self.end and end > self.start

    def validate(self, next: int) -> None:
        room = self.end - max(self.start, next)
        if not 0 <= self.count <= max(room, 0):
            raise RuntimeError(f"{self.count} delayed messages are counted, of {room} at most")
