"""How the windows of one connection share its room: no window waits for more than its share.

Deliveries go in rounds. At the beginning of each the free room of a connection is divided among
those of its windows that have something to send, and what does not divide goes to one window after
the other, so that with RDY 1 they take turns. A window sends no more than its share. What is left,
because some had less to send, is divided again, as long as anything is sent; then it is for any
window, as where the others wait to be read or prefer a nearer consumer.

A large room is kept whole, for each window that is touched costs a turn: a record in its journal, a
send, and as much again when the FINs come. First those windows get all they have that have less
than an even share; the rest is for one of the others, each in its turn, and what that one leaves is
for the next. When a round sends nothing, as where that one waits for its order, the room is divided
as a small one is.

Bytes are shared, too: when the output of a connection was full, whoever came first had it all. In
the round after that one window gets all of the room, each in its turn.

A connection with one window has no shares, and costs nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING

from penstock.kernel.pure.parking import park_delayed
from penstock.limits import WHOLE_ROOM_MIN

if TYPE_CHECKING:
    from penstock.kernel.pure.conn import Conn
    from penstock.kernel.pure.engine import Engine
    from penstock.kernel.pure.window import Window

PUT_OFF = -1  # it is better sent later, in one piece
PASSED_BY = -2  # the room is for other windows of the consumer


class Phase(Enum):
    """Of the rounds."""

    FIRST = 1  # is the room large?
    NEXT = 2  # what was large before is still kept whole
    SPLIT = 3  # nothing more is sent in that way


class Shares:
    """Of one connection."""

    def __init__(self) -> None:
        self.small = False  # its room was too little for a refill when it was divided
        self.crowded = False  # its output was full since the last round
        self._whole = False  # its room is not split
        self._grants: dict[Window, int] = {}
        self._turn = 0  # place of the window that comes first
        self._turn_next = 0  # when anything of this round is sent

    def left(self, place: int) -> None:
        """The window at this place is gone, and those behind it move up."""
        self._turn -= place < self._turn
        self._grants.clear()

    def divide(self, conn: Conn, phase: Phase) -> None:
        room = conn.room()
        self.small = conn.is_small_refill()
        if phase is not Phase.NEXT:
            self._whole = phase is Phase.FIRST and room >= WHOLE_ROOM_MIN
        self._turn_next = self._turn
        self._grants = {}
        ready = [window for window in self._in_turn(conn.windows) if has_to_send(window)]
        if not (room and ready):
            return
        each, extra = divmod(room, len(ready))
        if self.crowded:
            self._grants = {ready[0]: room}
            self._pass_turn(conn, ready[0])
        elif self._whole:
            self._grant_whole(conn, room, each, ready)
        else:
            self._grants = {window: each + (n < extra) for n, window in enumerate(ready)}
            if extra:
                self._pass_turn(conn, ready[extra - 1])

    def _grant_whole(self, conn: Conn, room: int, each: int, ready: list[Window]) -> None:
        self._grants = {window: count for window in ready if (count := window.deliverable) <= each}
        first = next((window for window in ready if window not in self._grants), None)
        if first is not None:
            self._grants[first] = room - sum(self._grants.values())
            self._pass_turn(conn, first)

    def _pass_turn(self, conn: Conn, window: Window) -> None:
        """The one behind it comes first in the next round."""
        self._turn_next = (conn.windows.index(window) + 1) % len(conn.windows)

    def _in_turn(self, windows: tuple[Window, ...]) -> tuple[Window, ...]:
        return windows[self._turn :] + windows[: self._turn]

    def granted(self, window: Window) -> int:
        return self._grants.get(window, 0)

    def spend(self, window: Window, count: int) -> None:
        self._grants[window] -= count
        self._turn, self.crowded = self._turn_next, False


def has_to_send(window: Window) -> bool:
    return not window.paused and not window.is_reading and window.deliverable > 0


def offer(conn: Conn, window: Window, patient: bool, free: bool) -> int:
    """How many messages the consumer may have now, or PUT_OFF or PASSED_BY."""
    room = conn.room()
    shared = len(conn.windows) > 1
    if room and patient and (conn.shares.small if shared else conn.is_small_refill()):
        return PUT_OFF
    if free or not (room and shared):
        return room
    return min(conn.shares.granted(window), room) or PASSED_BY


def gather_siblings(engine: Engine) -> None:
    """Who has room for one window has it for the others. What they have to send is settled first,
    so that it does not depend on the order in which they send it."""
    waiting = list(engine.pumps)
    seen = set()
    for window in waiting:  # it grows
        if window.forgotten:
            continue
        park_delayed(window, engine)
        for conn in window.conns:
            if len(conn.windows) > 1 and conn not in seen and conn.room() > 0:
                seen.add(conn)
                fresh = [one for one in conn.windows if one not in engine.pumps]
                fresh = [one for one in fresh if one.deliverable > 0 and not one.forgotten]
                engine.pumps.update(dict.fromkeys(fresh))
                waiting += fresh


def share_out(windows: Iterable[Window], phase: Phase) -> None:
    """At the beginning of a round, before anything of it is sent."""
    conns = {conn: None for window in windows for conn in window.conns if len(conn.windows) > 1}
    for conn in conns:
        conn.shares.divide(conn, phase)
