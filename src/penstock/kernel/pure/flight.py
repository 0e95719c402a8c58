"""A message that was delivered, or that waits outside the cursor's path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kernel.interface import Stray

if TYPE_CHECKING:
    from penstock.kernel.pure.conn import Conn

# States beside those of `Stray`. Plain ints: an enum member costs a look-up on each FIN.
GONE = 0
WAITING = int(Stray.WAITING)
DELAYED = int(Stray.DELAYED)
FLYING = int(Stray.IN_FLIGHT)
EXHAUSTED = int(Stray.EXHAUSTED)
BEHIND = int(Stray.BEHIND)
RINGED = 4  # in flight for the first time, in the window's ring


class Flight:
    """One message of one channel, from its first delivery until it is finished."""

    __slots__ = (
        "attempts",
        "cause",
        "conn",
        "deadline_ns",
        "delivered_ns",
        "due_ns",
        "holds",
        "id",
        "key",
        "offset",
        "state",
        "timestamp_ns",
        "turn",
        "unknown",
    )

    def __init__(self, offset: int, id: int, attempts: int, state: int) -> None:
        self.offset = offset
        self.id = id
        self.attempts = attempts
        self.state = state
        self.cause = 0  # of the end of its last attempt; 0: unknown
        self.conn: Conn | None = None
        self.deadline_ns = 0  # mono, while in flight
        self.delivered_ns = 0  # mono
        self.due_ns = 0  # wall, while delayed
        self.timestamp_ns = 0  # of the message; known once it was sent
        self.key: bytes | None = None  # of its order; None: it has none, or it is not known
        self.unknown = False  # its key stands in the log, and was not looked up
        self.holds = False  # its key: no other message of it is sent
        self.turn = 0  # tells the latest place in a queue of strays from outlived ones

    def take_off(self, conn: Conn, mono_ns: int, timestamp_ns: int) -> None:
        """It is being sent to `conn` now."""
        self.conn = conn
        self.timestamp_ns = timestamp_ns
        self.delivered_ns = mono_ns
        self.deadline_ns = mono_ns + conn.timeout_ns
