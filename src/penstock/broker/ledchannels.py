"""A leader's shell for the channel journal: `replica/journalline.py` over its cursors.

`Cursors` writes the records, in whose generations and when is its own business; each goes to the
followers as it was written. Who must not be answered before the set has what was just said calls
`when_held`. An office that ends gives no answers: what waits has an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from penstock.broker.ports import Lane
from penstock.broker.station import Station, target_of
from penstock.replica.effects import Leave
from penstock.replica.frames import Encoded, encode
from penstock.replica.journalframes import JournalFrame
from penstock.replica.journalline import (
    AcknowledgePlace,
    Answer,
    AskSnapshot,
    AskSync,
    DropBelow,
    HelloJournal,
    JournalLeader,
    SendHeld,
    SendRecord,
    SyncOwn,
    TellPlace,
)
from penstock.replica.pieces import Payload, cut

if TYPE_CHECKING:
    from penstock.broker.cursors import Cursors
    from penstock.broker.inherited import InheritedCursors
    from penstock.log.ledgerfile import ReplicaKey

Held = Callable[[], None]


def _nothing() -> None:
    """The caller does not ask."""


class LedChannels:
    """In one office. `drop_below`: whole segments below an offset may be removed, once or later.
    `on_leave`: the office has to end, and why."""

    def __init__(
        self,
        station: Station,
        key: ReplicaKey,
        epoch: int,
        cursors: Cursors | InheritedCursors,
        drop_below: Callable[[int], None],
        on_leave: Callable[[str], None],
    ) -> None:
        self.epoch = epoch
        self.line = JournalLeader(station.node, epoch, cursors.written, cursors.start_offset)
        self._station = station
        self._target = target_of(key)
        self._cursors = cursors
        self._drop_below = drop_below
        self._on_leave = on_leave
        self._unwritten: list[tuple[Held, Held]] = []  # wait for what the disk has refused
        self._is_over = False
        self._record: bytes = b""
        self._payload: Payload | None = None  # the last one that was sent, cut once for all
        cursors.on_record = self._wrote
        cursors.on_synced = self._synced

    # --- what is said here ---

    def _wrote(self, record: bytes) -> None:
        self.line.wrote(self._cursors.written, record, self._cursors.start_offset)
        for waits in self._unwritten:
            self.line.when_held(self._cursors.written, waits)
        self._unwritten.clear()
        self._carry_out()

    def _synced(self, error: OSError | None) -> None:
        if error is None:
            self.line.synced(self._cursors.synced)
        else:
            self.line.sync_failed()
        self._carry_out()

    def when_held(self, then: Held, lost: Held = _nothing) -> None:
        """When every needed member has, on its disk, all that the journal is to say by now. `lost`:
        the office ends before that, or has."""
        if self._is_over:
            lost()
        elif self._cursors.is_behind:
            self._unwritten.append((then, lost))  # the next record says all of it
        else:
            self.line.when_held(self._cursors.written, (then, lost))
            self._carry_out()

    def settle(self) -> None:
        """A generation that is due is begun: at the beginning, for who needs it, and again after
        the disk has refused one."""
        if self.line.must_begin:
            self._cursors.begin_generation()
            self._cursors.sync()  # nothing may come after it for long, and then nothing is held

    # --- the others ---

    def linked(self, node: int, session: int) -> None:
        """The log of the replica there is level."""
        self.line.linked(node, session)
        self._carry_out()

    def unlinked(self, node: int) -> None:
        self.line.unlinked(node)

    def needs(self, members: Collection[tuple[int, int]]) -> None:
        """Node and replica of all whose acknowledgements count."""
        self.line.needs(members)
        self._carry_out()

    def receive(self, node: int, frame: JournalFrame) -> None:
        match frame:
            case TellPlace(session, epoch, replica, place) if epoch == self.epoch:
                self.line.told(node, session, replica, place)
            case AskSnapshot(session, epoch) if epoch == self.epoch:
                self.line.asked(node, session)
            case AcknowledgePlace(session, epoch, replica, written, synced) if epoch == self.epoch:
                self.line.acknowledged(node, session, replica, written, synced)
            case _:
                return  # of another office, or for a follower
        self._carry_out()

    # --- what is done ---

    def _carry_out(self) -> None:
        while self.line.out:
            self._do(self.line.out.pop(0))
        self._record, self._payload = b"", None

    def _do(self, effect: Any) -> None:
        match effect:
            case HelloJournal() | SendHeld() | AskSync():
                self._send(effect.node, encode(self._target, effect))
            case SendRecord(node, _, _, _, record, _):
                if record is not self._record:
                    self._record, self._payload = record, cut(record)
                self._send(node, encode(self._target, effect, self._payload))
            case SyncOwn():
                self._cursors.sync()
            case Answer((then, _)):
                then()
            case DropBelow(start):
                self._drop_below(start)
            case Leave(reason):
                self._on_leave(reason)
            case _:
                raise RuntimeError(f"nothing is known of {effect}")

    def _send(self, node: int, frames: Sequence[Encoded]) -> None:
        self._station.peers.send(node, Lane.LIVE, frames)

    def leave(self) -> int:
        """The office is over. Returns for how much the outcome is unknown."""
        self._cursors.on_record = self._cursors.on_synced = self._cursors.on_said = None
        self._is_over = True
        waiting = [*self.line.leave(), *self._unwritten]
        self._unwritten.clear()
        for _, lost in waiting:
            lost()
        return len(waiting)
