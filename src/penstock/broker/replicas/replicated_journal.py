"""The shells of a partition's channel journal: `replication/journal.py` over what is written.

`JournalSender`, in a leadership: the leader's `Cursors` decides when it writes records, and in
which generations; each goes to the followers as it was written. A caller whose answer has to wait
until the set has the latest records calls `when_held`. A leadership that ends gives no answers:
pending ones have an unknown outcome.

An elected replica that cannot serve yet has one, too. A leadership serves when all that its log had
before is committed. If the set has shrunk to its minimum and one of its members is
lost for good, only a learner can help with that, and a learner becomes a member only with the
journal. An elected replica that waits for a member without a link, or has waited for a while,
therefore begins a generation with its inherited state, and feeds it to learners as a leader does.
It contains what it would contain first if the replica served: nothing newer than what the set has.
The generation that it begins when it serves is the next one of the same epoch.

`JournalReceiver`, of a follower: the leader sends its hello for the journal when this replica's log
is level, so the log's machine has durably promised the epoch in it: a frame of any other epoch is
dropped. Records are written as they arrive, and synced when the leader or housekeeping requests it.
If the disk refuses a record, or its bytes are not a valid record of the position that the frame
names, a snapshot is requested at housekeeping. A failed sync ends the replica.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.broker.health import Trouble
from penstock.broker.ports import PeerLane
from penstock.log.errors import JournalRefused
from penstock.replication.chunks import Payload, cut
from penstock.replication.effects import Leave, Stop
from penstock.replication.frames import Encoded, encode
from penstock.replication.journal import (
    AcknowledgePosition,
    DropBelow,
    HelloJournal,
    JournalFollower,
    JournalLeader,
    ReportHeld,
    ReportPosition,
    RequestSnapshot,
    RequestSync,
    SendHeld,
    SendRecord,
    SyncJournal,
    SyncOwn,
    TakeRecord,
    TakeSnapshot,
)
from penstock.replication.side_frames import JournalFrame

if TYPE_CHECKING:
    from penstock.broker.channels.cursors import Cursors
    from penstock.broker.replicas.replicated_partition import ReplicatedPartition
    from penstock.log.follower_journal import FollowedJournal

Held = Callable[[], None]
NO_NODE = -1


def _nothing() -> None:
    """The caller does not wait."""


class JournalSender:
    """For one leadership."""

    def __init__(self, owner: ReplicatedPartition, epoch: int, cursors: Cursors) -> None:
        self.epoch = epoch
        self.machine = JournalLeader(
            owner.replication.node, epoch, cursors.files.written, cursors.start_offset
        )
        self._owner = owner
        self._target = owner.target
        self._cursors = cursors
        self._unwritten: list[tuple[Held, Held]] = []  # wait for what the disk has refused
        self._is_over = False
        self._record: bytes = b""
        self._payload: Payload | None = None  # the last one that was sent, cut once for all
        cursors.on_record = self._wrote
        cursors.on_synced = self._synced

    # --- records of this leadership ---

    def _wrote(self, record: bytes) -> None:
        self.machine.wrote(self._cursors.files.written, record, self._cursors.start_offset)
        for waits in self._unwritten:
            self.machine.when_held(self._cursors.files.written, waits)
        self._unwritten.clear()
        self.work()

    def _synced(self, error: OSError | None) -> None:
        if error is None:
            self.machine.synced(self._cursors.files.synced)
        else:
            self.machine.sync_failed()
        self.work()

    def when_held(self, then: Held, lost: Held = _nothing) -> None:
        """Called once every needed member has the present contents of the journal on disk. `lost`:
        the leadership ends earlier, or has ended."""
        if self._is_over:
            lost()
        elif self._cursors.is_behind:
            self._unwritten.append((then, lost))  # the next record says all of it
        else:
            self.machine.when_held(self._cursors.files.written, (then, lost))
            self.work()

    def settle(self) -> None:
        """Begin a generation that is due: at the beginning, for a member that needs it, and again
        after a failed write."""
        if self.machine.must_begin:
            self._cursors.begin_generation()
            self._cursors.sync()  # nothing may come after it for long, and then nothing is held

    # --- the others ---

    def receive(self, node: int, frame: JournalFrame) -> None:
        match frame:
            case ReportPosition(session, epoch, replica, position) if epoch == self.epoch:
                self.machine.position_reported(node, session, replica, position)
            case RequestSnapshot(session, epoch) if epoch == self.epoch:
                self.machine.snapshot_requested(node, session)
            case AcknowledgePosition(session, epoch, replica, written, synced) if (
                epoch == self.epoch
            ):
                self.machine.acknowledged(node, session, replica, written, synced)
            case _:
                return  # of another leadership, or for a follower
        self.work()

    # --- effects ---

    def work(self) -> None:
        while self.machine.out:
            self._do(self.machine.out.pop(0))
        self._record, self._payload = b"", None

    def _do(self, effect: Any) -> None:
        match effect:
            case HelloJournal() | SendHeld() | RequestSync():
                self._send(effect.node, encode(self._target, effect))
            case SendRecord(node, _, _, _, record, _):
                if record is not self._record:
                    self._record, self._payload = record, cut(record)
                self._send(node, encode(self._target, effect, self._payload))
            case SyncOwn():
                self._cursors.sync()
            case ReportHeld((then, _)):
                then()
            case DropBelow(start):
                self._owner.drop_below(start)
            case Leave(reason):
                self._owner.assignment.stop(reason)
            case _:
                raise RuntimeError(f"unknown effect: {effect}")

    def _send(self, node: int, frames: Sequence[Encoded]) -> None:
        self._owner.replication.peers.send(node, PeerLane.LIVE, frames)

    def leave(self) -> int:
        """The leadership is over. Returns for how much the outcome is unknown."""
        self._cursors.on_record = self._cursors.on_synced = self._cursors.on_written = None
        self._is_over = True
        waiting = [*self.machine.leave(), *self._unwritten]
        self._unwritten.clear()
        for _, lost in waiting:
            lost()
        return len(waiting)


class JournalReceiver:
    """For one replica."""

    def __init__(self, owner: ReplicatedPartition, journal: FollowedJournal) -> None:
        self._owner = owner
        self.journal = journal
        self.leader = NO_NODE  # whose session this is
        self._replication, self._label = owner.replication, owner.replica.label
        self._syncs, self._health = owner.context.syncs, owner.context.health
        self.machine = JournalFollower(
            owner.own.replica, self._epoch, journal.position, journal.start_offset
        )
        self._acknowledged: AcknowledgePosition | None = None  # an equal one is no news
        if journal.files.corrupt:
            self._health.report(self._label, Trouble.JOURNAL_CORRUPT, journal.files.corrupt)

    @property
    def _epoch(self) -> int:
        """As promised."""
        return self._replication.epoch_ledger.epoch(self._owner.key)

    @property
    def busy(self) -> bool:
        return self.journal.files.busy

    # --- input ---

    def receive(self, node: int, frame: JournalFrame) -> None:
        match frame:
            case HelloJournal(_, session, epoch):
                if epoch == self._epoch:
                    self.leader = node
                    self._acknowledged = None
                    self.machine.hello(session, epoch)
            case SendRecord(_, session, epoch, position, record, held) if node == self.leader:
                self.machine.record(session, epoch, position, record, held)
            case SendHeld(_, session, epoch, held) if node == self.leader:
                self.machine.held(session, epoch, held)
            case RequestSync(_, session, epoch, position) if node == self.leader:
                self.machine.sync_requested(session, epoch, position)
            case _:
                return  # for a leader, or of another one
        self._work()

    def settle(self, sync: bool) -> None:
        """Housekeeping: request a record that failed to write again, but not while the disk is
        full: each second a snapshot would fit, and the next record not. `sync`: it is time to."""
        if not self._health.reason("", Trouble.DISK_LOW):
            self.machine.try_again()
        if sync:
            self.machine.sync_all()
        self._work()

    # --- effects ---

    def _work(self) -> None:
        while self.machine.out:
            self._carry_out(self.machine.out.pop(0))

    def _carry_out(self, effect: Any) -> None:
        match effect:
            case TakeRecord(record):
                self._take(self.journal.append, record)
            case TakeSnapshot(record):
                self._take(self.journal.replace, record)
            case SyncJournal():
                self._sync()
            case DropBelow(start):
                self._owner.drop_below(start)
            case AcknowledgePosition():
                if effect != self._acknowledged:
                    self._acknowledged = effect
                    self._send(effect)
            case ReportPosition() | RequestSnapshot():
                self._send(effect)
            case Stop(reason):
                self._health.report(self._label, Trouble.STOPPED, reason)
                self._owner.assignment.stop(reason)
            case _:
                raise RuntimeError(f"{self._label}: unknown effect: {effect}")

    def _send(self, frame: JournalFrame) -> None:
        frames = encode(self._owner.target, frame)
        self._replication.peers.send(self.leader, PeerLane.LIVE, frames)

    def _take(self, write: Callable[[bytes], None], record: bytes) -> None:
        try:
            write(record)
        except (OSError, JournalRefused) as error:
            reason = f"the leader's channel journal cannot be stored: {error}"
            self._health.report(self._label, Trouble.JOURNAL, reason)
            self.machine.write_failed()
        else:
            self.machine.wrote(self.journal.position, self.journal.start_offset)

    def _sync(self) -> None:
        """One at a time: the machine requests later records again, if someone waits for them."""
        try:
            self._syncs.sync(self.journal.files, self._synced, awaited=True)
        except OSError as error:  # it cannot be opened: nothing was tried that may have been lost
            self._health.report(self._label, Trouble.JOURNAL, str(error))
            self.machine.write_failed()

    def _synced(self, error: OSError | None) -> None:
        files = self.journal.files
        if error is not None:
            self.machine.sync_failed()
        else:
            self.machine.synced(files.synced)
            if not files.broken:
                self._health.clear(self._label, Trouble.JOURNAL)
            if not files.corrupt:
                self._health.clear(self._label, Trouble.JOURNAL_CORRUPT)
        self._work()

    def validate(self) -> None:
        self.journal.validate()
