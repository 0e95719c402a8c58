"""A follower's shell for the channel journal: `replication/journal.py` over the real files.

The leader sends its hello for the journal when this replica's log is level, so the log's machine
has durably promised the epoch in it: a frame of any other epoch is dropped.

Records are written as they arrive, and synced when the leader or housekeeping requests it.

If the disk refuses a record, or its bytes are not a valid record of the place that the frame names,
a snapshot is requested at housekeeping. A failed sync ends the replica.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.broker.health import Trouble
from penstock.broker.ports import Lane
from penstock.broker.replicas.context import ReplicationContext, target_of
from penstock.log.errors import JournalRefused
from penstock.replication.effects import Stop
from penstock.replication.frames import encode
from penstock.replication.journal import (
    AcknowledgePlace,
    AskSnapshot,
    AskSync,
    DropBelow,
    HelloJournal,
    JournalFollower,
    SendHeld,
    SendRecord,
    SyncJournal,
    TakeRecord,
    TakeSnapshot,
    TellPlace,
)
from penstock.replication.side_frames import JournalFrame

if TYPE_CHECKING:
    from penstock.broker.health import Health
    from penstock.broker.ports import Syncs
    from penstock.log.follower_journal import FollowedJournal
    from penstock.log.journal_file import JournalSync
    from penstock.log.ledger import ReplicaKey

NO_NODE = -1


class JournalReceiver:
    """Of one replica. `label` names its partition, for people. `drop_below`: whole segments below
    an offset may be removed, once or later. `on_stop`: the replica has to end, and why."""

    def __init__(
        self,
        replication: ReplicationContext,
        key: ReplicaKey,
        label: str,
        replica: int,
        journal: FollowedJournal,
        syncs: Syncs,
        health: Health,
        drop_below: Callable[[int], None],
        on_stop: Callable[[str], None],
    ) -> None:
        self.journal = journal
        self.leader = NO_NODE  # whose session this is
        self.machine = JournalFollower(
            replica, replication.epoch_ledger.epoch(key), journal.position, journal.start_offset
        )
        self._replication = replication
        self._key = key
        self._target = target_of(key)
        self._label = label
        self._syncs = syncs
        self._health = health
        self._drop_below = drop_below
        self._on_stop = on_stop
        self._job: JournalSync | None = None
        self._acknowledged: AcknowledgePlace | None = None  # the last one: an equal one is no news
        if journal.files.corrupt:
            health.report(label, Trouble.JOURNAL_CORRUPT, journal.files.corrupt)

    @property
    def busy(self) -> bool:
        """A sync thread holds the file."""
        return self._job is not None

    # --- what comes ---

    def receive(self, node: int, frame: JournalFrame) -> None:
        match frame:
            case HelloJournal(_, session, epoch):
                if epoch == self._replication.epoch_ledger.epoch(self._key):
                    self.leader = node
                    self._acknowledged = None
                    self.machine.hello(session, epoch)
            case SendRecord(_, session, epoch, place, record, held) if node == self.leader:
                self.machine.record(session, epoch, place, record, held)
            case SendHeld(_, session, epoch, held) if node == self.leader:
                self.machine.held(session, epoch, held)
            case AskSync(_, session, epoch, place) if node == self.leader:
                self.machine.ask_sync(session, epoch, place)
            case _:
                return  # for a leader, or of another one
        self._work()

    def settle(self, sync: bool) -> None:
        """Housekeeping: what the disk refused is asked for again. `sync`: it is time to."""
        self.machine.try_again()
        if sync:
            self.machine.sync_all()
        self._work()

    # --- what is done ---

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
                self._drop_below(start)
            case AcknowledgePlace():
                if effect != self._acknowledged:
                    self._acknowledged = effect
                    self._send(effect)
            case TellPlace() | AskSnapshot():
                self._send(effect)
            case Stop(reason):
                self._stop(reason)
            case _:
                raise RuntimeError(f"{self._label}: nothing is known of {effect}")

    def _send(self, frame: JournalFrame) -> None:
        self._replication.peers.send(self.leader, Lane.LIVE, encode(self._target, frame))

    def _take(self, write: Callable[[bytes], None], record: bytes) -> None:
        try:
            write(record)
        except (OSError, JournalRefused) as error:
            reason = f"what its leader says of channels cannot be stored: {error}"
            self._health.report(self._label, Trouble.JOURNAL, reason)
            self.machine.write_failed()
        else:
            self.machine.wrote(self.journal.position, self.journal.start_offset)

    def _sync(self) -> None:
        """One at a time: what was written meanwhile, and is waited for, the machine wants again."""
        if self._job is not None:
            return
        try:
            job = self.journal.files.sync_begin()
        except OSError as error:  # it cannot be opened: nothing was tried that may have been lost
            self._health.report(self._label, Trouble.JOURNAL, str(error))
            self.machine.write_failed()
            return
        if job is not None:
            self._job = job
            self._syncs.submit(job, self._synced, awaited=True)

    def _synced(self, error: OSError | None) -> None:
        job, self._job = self._job, None
        if job is None:
            raise RuntimeError(f"{self._label}: a sync ended that was never begun")
        files = self.journal.files
        files.sync_end(job, error)
        if error is not None:
            self.machine.sync_failed()
        else:
            self.machine.synced(files.synced)
            self._note_sound()
        self._work()

    def _note_sound(self) -> None:
        if not self.journal.files.broken:
            self._health.clear(self._label, Trouble.JOURNAL)
        if not self.journal.files.corrupt:
            self._health.clear(self._label, Trouble.JOURNAL_CORRUPT)

    # --- the end ---

    def _stop(self, reason: str) -> None:
        self._health.report(self._label, Trouble.STOPPED, reason)
        self._on_stop(reason)

    def wait(self) -> None:
        """Until no thread has the file; before it is closed, or led from."""
        self._syncs.wait_for(lambda: self.busy)

    def validate(self) -> None:
        self.journal.validate()
