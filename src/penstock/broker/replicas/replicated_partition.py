"""One replica that a cluster has placed here: the state that moves from role to role with its log.

| role | channel journal | table of producers | kernel, channels |
|---|---|---|---|
| unassigned, learner, follower | receives its leader's records | folds committed batches | – |
| elected | receives nothing more; may send what it inherited | the same | – |
| leading | is written from (epoch, 0) on, and sent | notes its own publishes | a `Leader` |
| stopped | receives nothing | as it was | – |

`assignment` decides which role it is. This module applies the role to a topic in use: a leadership
begins with the windows of all channels as in the followed journal, and their consumers get them at
once. When it ends the windows go, and with them all messages in flight: FIN of such a message fails
as after a timeout, because the next leader delivers it again.

Everything is called between two turns of the kernel, never from within one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.channels.channel import NOT_KEPT
from penstock.broker.channels.cursors import Cursors
from penstock.broker.health import Trouble
from penstock.broker.partition.journal import Journal
from penstock.broker.partition.leader import Leader
from penstock.broker.replicas.assignment import Assignment
from penstock.broker.replicas.clustered_topic import begin_leadership, end_leadership
from penstock.broker.replicas.context import ReplicationContext, target_of
from penstock.broker.replicas.outbox import renew_outboxes, retire_outbox
from penstock.broker.replicas.producer_tables import ProducerTables
from penstock.broker.replicas.repair import Repairing
from penstock.broker.replicas.replicated_journal import JournalReceiver, JournalSender
from penstock.errors import PenstockError, StorageError
from penstock.limits import REPLICA_TIMEOUT_NS
from penstock.log.follower_journal import FollowedJournal
from penstock.log.ledger import ReplicaKey
from penstock.replication.effects import Acknowledge
from penstock.replication.leader import UNMATCHED, PartitionLeader, Peer
from penstock.replication.side_frames import (
    HasTable,
    JournalFrame,
    RequestRange,
    SendRange,
    SendTable,
)

if TYPE_CHECKING:
    from penstock.broker.context import Context
    from penstock.broker.partition.replica import Replica
    from penstock.broker.replicas.leadership import Leadership
    from penstock.broker.replicas.replica_file import ReplicaFileStore
    from penstock.broker.replicas.replica_host import ReplicaHost
    from penstock.log.truncation import Removed
    from penstock.replication.frames import AppendFrame, Frame
    from penstock.replication.record import PartitionRecord


class ReplicatedPartition:
    def __init__(
        self, context: Context, replica_host: ReplicaHost, replica: Replica, own: ReplicaFileStore
    ) -> None:
        self.replica = replica
        self.topic = replica.topic
        self.number = replica.number
        self.own = own
        self.key = ReplicaKey(self.topic.identity, self.number)
        self.target = target_of(self.key)
        self.led: JournalSender | None = None
        self.context = context
        self.replica_host = replica_host
        self.replication: ReplicationContext = replica_host.replication
        self._sessions: dict[int, int] = {}  # of journals, by node, in this leadership
        self._needed: frozenset[tuple[int, int]] = frozenset()
        # Channels whose starts were asked about in this leadership, and those whose its set has.
        self._confirmed: set[int] = set()
        self.held_starts: set[int] = set()
        self._start = 0  # all below it may be removed
        # Of a leadership in which all followers have all.
        self._settled: PartitionRecord | None = None
        self.channels = self._follow()
        self._tables = ProducerTables(self)
        self._elected: tuple[Leadership, int] | None = None  # not serving yet, and since when
        self._inherited: tuple[Leadership, Cursors, JournalSender] | None = None
        self._repairing = Repairing(self)
        self.assignment = Assignment(self)
        replica.producers.learn(self.assignment.committed)

    @property
    def leadership(self) -> Leadership | None:
        return self.assignment.leadership

    def mark_due(self) -> None:
        self.replica_host.mark_due(self)

    # --- a follower's files beside the log ---

    def _follow(self) -> JournalReceiver:
        journal = FollowedJournal.open(self.context.disk, self.replica.path)
        return JournalReceiver(self, journal)

    @property
    def is_free(self) -> bool:
        """A leadership may begin to serve."""
        return not self.channels.busy

    def cut(self, removed: Removed) -> None:
        try:
            self.replica.producers.cut(removed.from_offset)
        except StorageError as error:
            self.context.health.report(self.replica.label, Trouble.PRODUCERS, error.reason)

    def drop_below(self, start: int) -> None:
        """Every needed member knows that the log begins there."""
        self._start = max(self._start, start)
        self._drop()

    def _drop(self) -> None:
        """Remove segments that the table of producers does not need."""
        replica, floor = self.replica, self.replica.producers.floor
        if floor is not None and floor < self._start:
            replica.producers.renew()
        end = self._start if floor is None else min(self._start, floor)
        if end > replica.log.start_offset:
            replica.remove(partial(replica.log.drop_below, end))

    # --- a leadership begins ---

    def serve(self, leadership: Leadership) -> Leader:
        self._leave_inherited()
        replica, context = self.replica, self.context
        context.ids.last_id = max(context.ids.last_id, replica.log.last_id)
        # All of the log is committed, so no publish of an earlier leader is pending any more.
        replica.producers.learn(leadership.machine.committed)
        epoch = leadership.machine.record.epoch
        replica.journal, replica.folded = self._lead_journal(epoch), self.channels.journal.folded()
        retire_outbox(self.topic, replica.number)
        leader = replica.lead(leadership)
        if leader.cursors is None:
            raise RuntimeError(f"{replica.label}: a replica of several without a journal")
        self.led = leader.led = JournalSender(self, epoch, leader.cursors)
        self._tables.lead(epoch)
        leader.keep_order()
        leader.steps_over_damage = False
        try:
            begin_leadership(self.topic, leader)
        except StorageError as error:
            context.health.report(replica.label, Trouble.JOURNAL, error.reason)
            leadership.leave(error.reason)
        leader.lacks(self.replica_host.lack(self.topic.name, self.number))
        self.led.settle()
        self._confirmed.clear()
        self.held_starts.clear()
        self.replica_host.confirm_starts(self)
        return leader

    def confirm_starts(self, started: Callable[[int, int], None]) -> None:
        """Confirm each durable channel once the in-sync set has its start; once in a leadership."""
        leader = self.replica.led
        if leader is None:
            return
        for channel in self.topic.channels.values():
            number = channel.number
            if number == NOT_KEPT or number in self._confirmed:
                continue
            self._confirmed.add(number)
            leader.when_held(partial(self._note_start, started, number))

    def _note_start(
        self, started: Callable[[int, int], None], number: int, error: PenstockError | None
    ) -> None:
        if error is None:
            self.held_starts.add(number)
            started(self.number, number)

    # --- a leadership that cannot begin ---

    def _look_at_elected(self, leadership: Leadership) -> None:
        """See `replicated_journal`: a learner has all of the log, and a member has no link, or has
        not acknowledged for a while."""
        mono_ns = self.context.clock.mono_ns()
        if self._elected is None or self._elected[0] is not leadership:
            self._elected = leadership, mono_ns
        waited_ns, machine = mono_ns - self._elected[1], leadership.machine
        is_cut_off = any(node not in machine.peers for node in machine.late_members())
        if self._inherited is not None or self.channels.busy:
            return
        if not is_cut_off and waited_ns < REPLICA_TIMEOUT_NS:
            return
        lacking = any(_is_lacking(machine, node, peer) for node, peer in machine.peers.items())
        if lacking and machine.end > machine.committed:
            self._inherit(leadership)

    def _inherit(self, leadership: Leadership) -> None:
        epoch = leadership.machine.record.epoch
        self.replica.producers.learn(leadership.machine.committed)
        folded = self.channels.journal.folded()
        cursors = Cursors(self.context, self.replica.label, self._lead_journal(epoch), folded)
        led = JournalSender(self, epoch, cursors)
        self._inherited = leadership, cursors, led
        self._tables.lead(epoch)
        led.settle()

    def _lead_journal(self, epoch: int) -> Journal:
        journal, bytes_max = self.channels.journal, self.context.options.journal_bytes_max
        return Journal(journal.files, bytes_max, epoch, journal.folding.handed_end)

    def _leave_inherited(self) -> None:
        """It serves now, or its leadership is over."""
        if self._inherited is None:
            return
        _, cursors, led = self._inherited
        self._inherited = None
        led.leave()
        cursors.discard()
        self._needed = frozenset()
        self._sessions.clear()

    def _end_inherited(self) -> None:
        """Later records go behind the generation that was begun here."""
        if self._inherited is not None and self._inherited[0] is not self.leadership:
            self._leave_inherited()
            self.channels.journal.close()
            self.channels = self._follow()

    # --- and ends ---

    def cease(self) -> None:
        replica = self.replica
        leader = replica.leader
        self.held_starts.clear()
        leader.group.leave(leader.leadership.reason)
        committed, noted = leader.leadership.machine.committed, leader.tail.committed_end
        replica.producers.leave_leadership(committed, noted)
        if self.led is not None:
            self.led.leave()
        self.led, self._needed = None, frozenset()
        self._sessions.clear()
        end_leadership(self.topic, leader)
        replica.step_down()
        self.channels = self._follow()
        renew_outboxes(self.topic, self.replica_host.forwarding)
        self.topic.reshaped()

    # --- input ---

    def receive(self, node: int, frame: Frame) -> None:
        self._end_inherited()
        if isinstance(frame, RequestRange | SendRange):
            self._repairing.receive(node, frame)
        elif isinstance(frame, SendTable | HasTable):
            self._tables.receive(node, frame)
        elif not isinstance(frame, JournalFrame):
            self.assignment.receive(node, frame)
        elif self.leadership is None and not self.assignment.is_stopped:
            self.channels.receive(node, frame)
        elif (led := self._journals) is not None:
            led.receive(node, frame)
            led.settle()

    def receive_steady(self, node: int, frame: AppendFrame | Acknowledge) -> bool:
        """True: this changes nothing that `refresh` depends on but the leader's permits, which are
        renewed."""
        assignment = self.assignment
        follower, leadership = assignment.follower, assignment.leadership
        if self._inherited is not None:
            self.receive(node, frame)
        elif follower is not None and follower.listed:
            follower.receive(node, frame)
            return not (self._tables.waits or follower.stopped)
        elif leadership is not None and assignment.served and isinstance(frame, Acknowledge):
            leadership.acknowledged(node, frame)
            return self._stays_settled()
        else:
            assignment.receive(node, frame)
        return False

    @property
    def _journals(self) -> JournalSender | None:
        """The receivers of this leadership's journal."""
        return self._inherited[2] if self._inherited is not None else self.led

    def refresh(self) -> None:
        """After news: carry out the consequences of the state of the leadership's machine."""
        self._settled = None
        self._end_inherited()
        self._tables.take()
        leadership, led = self.leadership, self._journals
        if leadership is None or led is None or leadership.machine.over:
            return
        machine = leadership.machine
        needed = frozenset(
            (m.node, m.replica) for members in machine.possible_sets for m in members
        )
        if needed != self._needed:
            self._needed = needed
            led.machine.needs(needed)
        self._link_journals(machine, led)
        self._complete(leadership, led)
        if self.led is not None:
            self.replica.leader.permit(machine.permits)
            has_all = all(peer.complete for peer in machine.peers.values())
            if has_all and len(machine.peers) == len(needed) - 1 == len(machine.record.members) - 1:
                self._settled = machine.record

    def _stays_settled(self) -> bool:
        leadership = self.leadership
        if leadership is None or self.assignment.served is None:
            return False  # the acknowledgement has ended the leadership
        machine = leadership.machine
        if machine.over or machine.record is not self._settled or len(machine.possible_sets) > 1:
            return False
        self.replica.leader.permit(machine.permits)
        return True

    def _link_journals(self, machine: PartitionLeader, led: JournalSender) -> None:
        """A replica whose log has caught up in this session is greeted for the journal."""
        for node in [node for node in self._sessions if node not in machine.peers]:
            del self._sessions[node]
            led.machine.unlinked(node)
        for node, peer in machine.peers.items():
            is_level = peer.counted != UNMATCHED and peer.counted >= machine.start_end
            if is_level and self._sessions.get(node) != peer.session:
                self._sessions[node] = peer.session
                led.machine.linked(node, peer.session)
        led.work()

    def _complete(self, leadership: Leadership, led: JournalSender) -> None:
        """A replica with the journal and the producers, too, may become a member. One that commits
        do not wait for yet can fall behind the set's journal; then it may not."""
        for node, peer in list(leadership.machine.peers.items()):
            is_linked = self._sessions.get(node) == peer.session
            is_level = is_linked and led.machine.is_level(node, peer.replica)
            is_needed = (node, peer.replica) in self._needed
            has_all = peer.complete
            if has_all:
                has_all = is_level or is_needed
            elif is_level:
                has_all = is_needed or self._has_table(leadership, node, peer.session)
            if has_all != peer.complete:
                leadership.machine.note_beside(node, peer.session, has_all)
                leadership.moved()

    def _has_table(self, leadership: Leadership, node: int, session: int) -> bool:
        leader = self.replica.led  # its publishes are noted when its own writer has committed them
        noted = leadership.machine.committed if leader is None else leader.tail.committed_end
        return self._tables.has(node, session, noted)

    # --- time ---

    def tick(self, mono_ns: int) -> None:
        leadership = self.leadership
        if leadership is not None:
            leadership.machine.tick(mono_ns)
            is_moved = bool(leadership.machine.out)
            if is_moved:
                leadership.moved()
            if self.replica.led is not None:
                self.replica.led.lacks(self.replica_host.lack(self.topic.name, self.number))
            if self.led is None and not leadership.machine.over:
                self._look_at_elected(leadership)
            elif not is_moved:
                return  # it serves, and all is as it was
            self.refresh()

    def settle(self, wall_ns: int, sync_log: bool, sync_journal: bool) -> None:
        """The housekeeping that a `Leader` does not do."""
        self.assignment.set_waits(self.topic.durability == "disk")
        self.assignment.settle()
        if self.leadership is not None:
            self.refresh()
        if (led := self._journals) is not None:
            led.settle()
        elif self.leadership is None:
            self.channels.settle(sync_journal)
            self._settle_followed(wall_ns, sync_log)
        self._drop()
        self._repairing.settle()
        self.mark_due()

    @property
    def is_settled(self) -> bool:
        """No work is running: housekeeping may rest until there is news."""
        log, is_led = self.replica.log, self.leadership is not None
        is_synced = log.synced_end == log.written_end
        has_journal = is_led or not self.channels.journal.files.unsynced
        waits = self.busy or self._tables.waits or self.assignment.restless
        return is_synced and has_journal and not waits and not len(log.damage)

    def _settle_followed(self, wall_ns: int, sync_log: bool) -> None:
        replica, follower = self.replica, self.assignment.follower
        if follower is None or follower.stopped:
            return
        committed = self.assignment.committed
        replica.producers.learn(committed)
        replica.producers.settle(committed, committed, 0)
        if sync_log or self._tables.waits:
            follower.sync()
        self._tables.take()
        replica.mark(wall_ns)

    # --- the end ---

    @property
    def busy(self) -> bool:
        return self.replica.log.busy or self.channels.busy or self.own.busy

    def let_go(self, reason: str) -> None:
        """No role any more, and no thread using its files. Raises nothing."""
        self.assignment.resign(reason)
        self._end_inherited()
        self.context.syncs.wait_for(lambda: self.busy)
        self.refresh()
        self.channels.journal.close()

    def close(self) -> None:
        """The process stops. A leader's files are closed with the topic's others."""
        if self.replica.led is None:
            self.let_go("the process stops")

    def rest(self) -> None:
        if not self.channels.busy and not self.channels.journal.files.unsynced:
            self.channels.journal.close()

    def validate(self) -> None:
        self.assignment.validate()
        is_led = self.replica.led is not None
        if is_led != (self.led is not None):
            raise RuntimeError(f"{self.replica.label}: led, and its journal is not, or the reverse")
        if not is_led:
            self.channels.validate()
            windows = [channel.windows for channel in self.topic.channels.values()]
            if any(self.number in one for one in windows):
                raise RuntimeError(f"{self.replica.label}: it is not led, and has windows")


def _is_lacking(machine: PartitionLeader, node: int, peer: Peer) -> bool:
    """A learner with the whole log that lacks only the files beside it."""
    has_log = bool(peer.replica) and peer.counted >= machine.start_end
    return has_log and not peer.complete and not machine.record.has(node, peer.replica)
