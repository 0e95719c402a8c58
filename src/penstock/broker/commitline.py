"""The commit rule of one partition: who may write rows, and when a row is committed.

Values in, values out: no clock, disk, thread or kernel. `groupcommit.GroupCommit` is its only
caller; it reports what has happened and does what the answer says.

A row is any number of batches that are written by one gathered write, made safe by one sync and
answered at once. At most one row is in flight:

    written --(waits for the disk: synced up to its end)--> committed
            --(does not wait)--> committed
            --a failed write or sync--> failed, and the log ends where it began

| state | rows of publishers | parts of a commit | publishes are |
|---|---|---|---|
| LEADING | are written | none is there | taken |
| HELD: a commit of stages has the log's end | gather | are written | taken |
| BLOCKED: that commit cannot be finished now | are refused | are tried again | refused |
| STOPPED: a sync failed, the file is in doubt | are refused | wait | refused |
| RETIRED: the topic is being deleted | were the last ones | are dropped | refused |

STOPPED and RETIRED are final: what comes after them changes nothing but STOPPED into RETIRED.
"""

from __future__ import annotations

from enum import IntEnum

NONE = -1  # no row is in flight


class State(IntEnum):
    LEADING = 1
    HELD = 2
    BLOCKED = 3
    STOPPED = 4
    RETIRED = 5


class Move(IntEnum):
    """What makes a state another one."""

    HOLD = 1  # a commit of stages takes the log's end
    BLOCK = 2  # it cannot go on
    UNBLOCK = 3
    RELEASE = 4  # it is through, or was given up
    STOP = 5
    RETIRE = 6


_FINAL = {
    **{(State.STOPPED, move): State.STOPPED for move in Move},
    **{(State.RETIRED, move): State.RETIRED for move in Move},
    **{(state, Move.STOP): State.STOPPED for state in State if state != State.RETIRED},
    **{(state, Move.RETIRE): State.RETIRED for state in State},
}
MOVES: dict[tuple[State, Move], State] = {
    (State.LEADING, Move.HOLD): State.HELD,
    (State.HELD, Move.BLOCK): State.BLOCKED,
    (State.BLOCKED, Move.BLOCK): State.BLOCKED,  # for another reason
    (State.HELD, Move.UNBLOCK): State.HELD,
    (State.BLOCKED, Move.UNBLOCK): State.HELD,
    (State.HELD, Move.RELEASE): State.LEADING,
    (State.BLOCKED, Move.RELEASE): State.LEADING,
    **_FINAL,
}


class CommitLine:
    """`ready`: a row of publishers may be written now."""

    __slots__ = ("committed_end", "in_flight_end", "ready", "state", "synced_end", "waits")

    def __init__(self, written_end: int, synced_end: int, waits: bool) -> None:
        self.committed_end = written_end
        self.synced_end = synced_end
        self.waits = waits  # for the disk, before a row is committed
        self.state = State.LEADING
        self.in_flight_end = NONE
        self.ready = True

    def move(self, move: Move) -> None:
        state = MOVES.get((self.state, move))
        if state is None:
            raise RuntimeError(f"{move.name} is no move of a partition that is {self.state.name}")
        self.state = state
        self._refresh()

    def _refresh(self) -> None:
        self.ready = self.state is State.LEADING and self.in_flight_end == NONE

    def wrote(self, end: int) -> bool:
        """A row up to `end` stands in the log. True: it is committed; else a sync is awaited."""
        if self.waits and self.synced_end < end:
            self.in_flight_end = end
            self.ready = False
            return False
        self.committed_end = end
        return True

    def synced(self, end: int) -> bool:
        """All below `end` is on the disk. True: the row in flight is committed by that."""
        self.synced_end = end
        if self.in_flight_end == NONE or end < self.in_flight_end:
            return False
        self.committed_end = self.in_flight_end
        self.in_flight_end = NONE
        self._refresh()
        return True

    def failed(self) -> None:
        """The row in flight, if there is one, was not stored."""
        self.in_flight_end = NONE
        self._refresh()

    def adopted(self, end: int) -> None:
        """Parts of a commit, synced, are committed up to `end`."""
        self.committed_end = end

    def validate(self) -> None:
        if self.in_flight_end != NONE and self.in_flight_end <= self.committed_end:
            raise RuntimeError(f"a row in flight ends at {self.in_flight_end}, which is committed")
        if self.ready != (self.state is State.LEADING and self.in_flight_end == NONE):
            raise RuntimeError("whether a row may be written is not what the state says")
