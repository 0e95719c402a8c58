"""Which connections make the link to a node: the rules, without I/O.

Two connections, one for each lane, of one session. A session is (life, number) of the node that
dials. What is seen of a newer one ends an older one, before anything that comes over the newer one
is looked at: frames of the older that still wait in buffers are never read.

| a lane opens | the link was | then |
|---|---|---|
| of the session in hand | waiting for this lane | it is whole: `linked` |
| of a newer session | anything | that ends (`unlinked`, if it was whole), and this one begins |
| of an older session, or twice | anything | the connection is closed |

| a lane ends | then |
|---|---|
| of the session in hand | so does the other: `unlinked`, if the link was whole |
| of any other | nothing |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.broker.ports import Lane

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Session(NamedTuple):
    incarnation: int  # of the node that dialled
    number: int


class Connection(Protocol):
    @property
    def waiting_bytes(self) -> int:
        """Written, and not sent yet."""

    def write(self, frames: Sequence[Buffer]) -> None: ...

    def close(self) -> None:
        """At once. Nothing that came over it is read any more."""

    def go_on(self) -> None:
        """What comes may be read: the link is whole."""


class Link:
    """To one other node. `incarnation`: of the process at the other end."""

    def __init__(
        self, node: int, on_linked: Callable[[int, int], None], on_unlinked: Callable[[int], None]
    ) -> None:
        self.node = node
        self.incarnation = 0
        self.session: Session | None = None
        self.lanes: dict[Lane, Connection] = {}
        self._on_linked = on_linked
        self._on_unlinked = on_unlinked

    @property
    def is_whole(self) -> bool:
        return len(self.lanes) == len(Lane)

    def may_open(self, session: Session, lane: Lane) -> bool:
        known = self.session
        if known is None or known.incarnation != session.incarnation:
            return True
        return session.number > known.number or (session == known and lane not in self.lanes)

    def opened(
        self, session: Session, lane: Lane, incarnation: int, connection: Connection
    ) -> bool:
        """False: the connection is of no use, and was closed."""
        if not self.may_open(session, lane):
            connection.close()
            return False
        if session != self.session:
            self.end()
            self.session, self.incarnation = session, incarnation
        elif (
            incarnation != self.incarnation
        ):  # the process at the other end was started again in between
            connection.close()
            self.end()
            return False
        self.lanes[lane] = connection
        if self.is_whole:
            self._on_linked(self.node, incarnation)
            for one in tuple(self.lanes.values()):
                one.go_on()
        return True

    def closed(self, connection: Connection) -> None:
        if connection in self.lanes.values():
            self.end()

    def end(self) -> None:
        """The session stays known: its number is not taken again."""
        lanes, self.lanes = self.lanes, {}
        for connection in lanes.values():
            connection.close()
        if len(lanes) == len(Lane):
            self._on_unlinked(self.node)
