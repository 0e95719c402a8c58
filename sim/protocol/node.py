"""A node with one replica: the shell of the machines, with model parts in the place of real ones.

What survives the process stands in `Kept`, and what survives a loss of power in the log's durable
part. The rest is forgotten at each start. A node that has started does nothing before the
coordinator knows of its generation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.replication.effects import (
    Acknowledge,
    Append,
    Begin,
    BeginAt,
    CommitTo,
    Feed,
    Hello,
    Leave,
    MatchAt,
    Matched,
    Propose,
    ReadRecord,
    Refuse,
    ReportExtent,
    SaveEpoch,
    Stop,
    Sync,
    Truncate,
)
from penstock.replication.election import Candidate, MemberReport, election, hindrance, last_resort
from penstock.replication.follower import Following, PartitionFollower
from penstock.replication.leader import UNMATCHED, Outcome, PartitionLeader
from penstock.replication.record import LeaderId, PartitionRecord
from sim.protocol.coordinator import Answer, Entry, Transaction
from sim.protocol.messages import LogAppend
from sim.protocol.modellog import Batch, ModelLog

if TYPE_CHECKING:
    from sim.protocol.world import World

ELECTION = 0  # the number of a transaction that is no PartitionLeader's


@dataclass
class Kept:
    """On the disk, each change of it synced at once."""

    replica: int
    generation: int = 0
    memory_lost_generation: int = 0
    epoch: int = 0  # promised
    in_sync: bool = False  # the log had everything when that was written
    ended: bool = False  # a sync has failed: its log is worth what is durable
    revision: int = 0  # of the newest record that was acted upon
    log: ModelLog = field(default_factory=ModelLog)

    def copy(self) -> Kept:
        """A snapshot. (`dataclasses.replace` takes three times as long.)"""
        return Kept(
            self.replica,
            self.generation,
            self.memory_lost_generation,
            self.epoch,
            self.in_sync,
            self.ended,
            self.revision,
            self.log.copy(),
        )


class Node:
    def __init__(self, world: World, number: int, kept: Kept) -> None:
        self.world = world
        self.number = number
        self.kept = kept
        self.backup: Kept | None = None
        self.is_up = False
        self.active = False  # it may do something: its start is written
        self.incarnation = 0
        self.seen = 0  # in the coordinator's changes
        self.record: PartitionRecord = world.coordinator.record
        self.revision = 0
        self.entry = Entry(0, 0, 0)
        self.incarnations: dict[int, int] = {}
        self.machine: PartitionLeader | None = None
        self.leadership_epoch = 0  # the last leadership of this incarnation
        self.electing: PartitionRecord | None = None
        self.stopped = False
        self.sync_wanted = False
        self.leader = -1  # node whose session the follower is in
        self.follower = self._new_follower(0)

    # --- starts and ends ---

    def _new_follower(self, committed: int) -> PartitionFollower:
        kept, world = self.kept, self.world
        return PartitionFollower(
            kept.log, kept.replica, kept.generation, kept.epoch, committed, world.waits
        )

    def end_process(self) -> None:
        self.is_up = self.active = False
        self.machine, self.electing = None, None
        self.world.unlink_all(self.number)

    def start(self, lost_memory: bool) -> None:
        """The process begins: what it has is what its disk has."""
        world, kept = self.world, self.kept
        written = world.coordinator.entries[self.number].generation
        if kept.ended or kept.generation < written:
            self.become_new(keep_log=kept.ended)
            kept = self.kept
        kept.generation = max(kept.generation, written) + 1
        if lost_memory:
            kept.memory_lost_generation = kept.generation
        else:
            kept.log.restarted()
        self.incarnation += 1
        self.is_up, self.stopped, self.sync_wanted = True, False, False
        self.seen, self.revision, self.incarnations = 0, 0, {}
        self.record = world.first_record
        self.leadership_epoch = 0
        self.leader = -1
        world.observer.started(self)
        self.follower = self._new_follower(self._claimed_end())
        self._refuse_damage()

    def _claimed_end(self) -> int:
        """What the headers say that every member has synced, this replica with them."""
        return self.kept.log.claimed_end() if self.kept.in_sync else 0

    def _refuse_damage(self) -> None:
        self.kept.log.beyond = 0
        if self.follower.committed > self.kept.log.written_end:
            self._stop("acknowledged data is corrupt")

    def register(self) -> None:
        kept = self.kept
        entry = Entry(kept.generation, kept.memory_lost_generation, self.incarnation)
        self.world.coordinator.register(self.number, entry)
        self.entry = entry
        self.active = True

    def become_new(self, keep_log: bool) -> None:
        """Another replica: what it had does not count any more."""
        kept = self.kept
        log = kept.log.copy() if keep_log else ModelLog()
        self.world.observer.forsake(self.number, kept.replica)
        self.world.observer.begun_again(self)
        self.kept = replace(
            kept, replica=self.world.new_replica(), in_sync=False, ended=False, log=log
        )
        self.stopped = False
        self.follower = self._new_follower(0)
        self.leader = -1

    def _stop(self, reason: str) -> None:
        self.stopped = True
        self.follower.state = Following.STOPPED
        self.world.observer.stopped(self, reason)

    # --- metadata ---

    def look(self, count: int) -> None:
        """Read the next changes of the coordinator."""
        changes = self.world.coordinator.changes
        if self.seen == len(changes):
            return
        for change in changes[self.seen : self.seen + count]:
            self.seen += 1
            if change.entry is not None:
                self.incarnations[change.node] = change.entry.incarnation
            if change.record is not None:
                self._see(change.revision, change.record)

    def _see(self, revision: int, record: PartitionRecord) -> None:
        if revision <= self.revision or revision < self.kept.revision:
            return
        self.revision, self.record = revision, record
        self.kept.revision = max(self.kept.revision, revision)
        if self.machine is not None:
            self.machine.seen(revision, record)
            self.work()
        self._sit_down(record, revision)
        self.note_in_sync()

    def _sit_down(self, record: PartitionRecord, revision: int) -> None:
        """Begin the leadership, if the record names this replica in this incarnation."""
        leader = record.leader
        if leader is None or self.machine is not None or self.stopped or not self.active:
            return
        if leader != LeaderId(self.number, self.incarnation, self.kept.replica):
            return
        if record.epoch < self.kept.epoch or record.epoch == self.leadership_epoch:
            return
        self.leadership_epoch = record.epoch
        self.follower.unlinked()
        self.follower.epoch = record.epoch
        self._save_epoch(record.epoch)
        world = self.world
        committed = self.follower.committed
        log = self.kept.log
        self.machine = PartitionLeader(
            log, record, revision, leader, self.kept.generation, committed, world.waits
        )
        self.sync_wanted = True
        world.observer.leadership_began(self, record)
        for other in world.linked_with(self.number):
            self.machine.linked(other)
        self.work()

    def _save_epoch(self, epoch: int) -> None:
        self.kept.epoch = max(self.kept.epoch, epoch)

    def note_in_sync(self) -> None:
        """Written down when the record lists this replica, and its disk has all that it has."""
        kept = self.kept
        if kept.in_sync or kept.log.synced_end < kept.log.written_end or self.stopped:
            return
        follows = self.follower.state is Following.FOLLOWING or self.machine is not None
        kept.in_sync = follows and self.record.has(self.number, kept.replica)

    def elect(self, unreachable: frozenset[int]) -> None:
        """Ask for the leadership."""
        kept = self.kept
        if self.machine is not None or self.electing is not None or not self.revision:
            return
        leader_id = LeaderId(self.number, self.incarnation, kept.replica)
        candidate = Candidate(
            leader_id,
            kept.generation,
            self.entry.generation,
            self.entry.memory_lost_generation,
            self.world.waits,
            self.stopped,
        )
        if hindrance(self.record, candidate) is not None:
            return
        self._ask_for(leader_id, unreachable)

    def elect_last(self, reports: list[MemberReport]) -> None:
        """All members are suspect, and this one may have the most."""
        if self.machine is not None or self.electing is not None or self.stopped:
            return
        chosen = last_resort(self.record, reports)
        if chosen is not None and chosen.node == self.number:
            self._ask_for(LeaderId(self.number, self.incarnation, self.kept.replica), frozenset())

    def report(self) -> MemberReport | None:
        entry = self.record.member_on(self.number)
        if entry is None or self.stopped:
            return None
        if entry.replica != self.kept.replica:
            return MemberReport(entry, 0, None)
        return MemberReport(entry, self.entry.memory_lost_generation, self.kept.log.extent())

    def _ask_for(self, leader_id: LeaderId, unreachable: frozenset[int]) -> None:
        self.electing = election(self.record, leader_id, unreachable)
        self._submit(ELECTION, self.electing, self.revision, ())

    def _submit(
        self,
        number: int,
        record: PartitionRecord,
        revision: int,
        generations: tuple[tuple[int, int], ...],
    ) -> None:
        transaction = Transaction(
            self.number, self.incarnation, number, record, revision, generations
        )
        self.world.coordinator.submit(transaction)

    def answered(self, answer: Answer) -> None:
        if answer.number == ELECTION:
            record, self.electing = self.electing, None
            if record is not None and answer.outcome is Outcome.DONE:
                self._see(answer.revision, answer.record)
        elif self.machine is not None:
            self.machine.outcome(answer.number, answer.outcome, answer.revision)
            self.work()

    def read(self) -> None:
        """The coordinator's record arrives, as it is now."""
        coordinator = self.world.coordinator
        if self.machine is not None:
            self.machine.read(coordinator.revision, coordinator.record)
            self.work()

    # --- links ---

    def linked(self, other: int) -> None:
        if self.machine is not None:
            self.machine.linked(other)
            self.work()

    def unlinked(self, other: int) -> None:
        if self.machine is not None:
            self.machine.unlinked(other)
            self.work()
        if self.leader == other:
            self.leader = -1
            self.follower.unlinked()

    # --- publishing ---

    def publish(self, count: int, fails: bool) -> None:
        machine, world = self.machine, self.world
        if machine is None or not machine.ready or self.stopped:
            return
        log = self.kept.log
        start = log.written_end
        promise = machine.synced_everywhere
        epoch = machine.record.epoch
        batches = [Batch(epoch, world.new_content(), promise) for _ in range(count)]
        for batch in batches:
            log.append(batch)
        if fails:
            log.truncate(start)
            world.observer.refused(batches)
            machine.failed("a write failed")
            self.work()
            return
        world.observer.appended(self, start, batches)
        machine.wrote(log.written_end)
        self.sync_wanted = True
        self.work()

    # --- the disk ---

    def sync(self) -> None:
        if not self.sync_wanted and self.kept.log.synced_end == self.kept.log.written_end:
            return
        self.sync_wanted = False
        self.kept.log.sync()
        if self.machine is not None:
            self.machine.synced()
        else:
            self.follower.synced()
        self.note_in_sync()
        self.work()

    def fail_sync(self) -> None:
        self.kept.log.fail_sync()
        self.kept.ended = True
        if self.machine is not None:
            self.machine.failed("a sync failed")
            self.work()
        self.follower.sync_failed()
        self.work()

    # --- frames ---

    def receive(self, other: int, frame: Any) -> None:
        _RECEIVERS[type(frame)](self, other, frame)
        self.work()

    def _on_hello(self, other: int, frame: Hello) -> None:
        epoch = max(self.kept.epoch, self.follower.epoch)
        if self.machine is not None:
            if frame.epoch <= epoch:
                self.world.send(self.number, other, Refuse(frame.session, epoch))
                return
            self.machine.leave("another leader has a higher epoch")
            self.work()
        if not self.record.has(self.number, self.kept.replica):
            self.kept.in_sync = False
        self.follower.unclean_epoch = self.record.unclean_epoch
        previous, self.leader = self.leader, other
        self.follower.hello(frame.session, frame.epoch)
        if self.follower.session != frame.session:  # refused, or stopped
            for effect in self.follower.out:
                self.world.send(self.number, other, effect)
            self.follower.out.clear()
            self.leader = previous

    def _on_match_at(self, other: int, frame: MatchAt) -> None:
        if other == self.leader:
            self.follower.match_at(frame.session, frame.end, frame.chain)

    def _on_begin_at(self, other: int, frame: BeginAt) -> None:
        if other == self.leader:
            self.follower.begin_at(frame.session, frame.start)

    def _on_row(self, other: int, frame: LogAppend) -> None:
        if other == self.leader:
            self.follower.append(*frame)
            self.world.observer.learned(self)

    def _on_report_extent(self, other: int, frame: ReportExtent) -> None:
        if self.machine is not None:
            session, _, replica, generation, extent, _ = frame
            self.machine.extent_reported(other, session, replica, generation, extent)

    def _on_matched(self, other: int, frame: Matched) -> None:
        if self.machine is not None:
            self.machine.matched(other, frame.session, frame.end)

    def _on_acknowledge(self, other: int, frame: Acknowledge) -> None:
        if self.machine is not None:
            peer = self.machine.peers.get(other)
            if peer is not None and peer.session == frame.session:
                self.world.observer.acknowledged(self, other, frame)
            self.machine.acknowledged(other, *frame)

    def _on_refuse(self, other: int, frame: Refuse) -> None:
        if self.machine is not None:
            self.machine.refused(other, frame.session, frame.epoch)

    # --- effects ---

    def work(self) -> None:
        """Carry out what the machines want done."""
        machine, follower = self.machine, self.follower
        while machine is not None and machine.out:
            effects, machine.out = machine.out, []
            for effect in effects:
                _EFFECTS[type(effect)](self, effect)
            machine = self.machine
        while follower.out:
            effects, follower.out = follower.out, []
            for effect in effects:
                _EFFECTS[type(effect)](self, effect)
            follower = self.follower

    def _to_node(self, effect: Any) -> None:
        self.world.send(self.number, effect.node, effect)

    def _to_leader(self, effect: Any) -> None:
        if self.leader >= 0:
            self.world.observer.answering(self, effect)
            self.world.send(self.number, self.leader, effect)

    def _do_feed(self, effect: Feed) -> None:
        machine, log = self.machine, self.kept.log
        if machine is None:
            return
        node, session, start, committed = effect
        previous = log.name_before(start)
        end = min(start + self.world.fed_max, log.written_end)
        batches = tuple(log.batches[start:end])
        if previous is not None and batches:
            append = LogAppend(session, machine.record.epoch, previous, start, batches, committed)
            self.world.send(self.number, node, append)
            machine.fed(node, end)

    def _do_commit(self, effect: CommitTo) -> None:
        machine, log = self.machine, self.kept.log
        if machine is None:
            return
        self.world.observer.committed(self, machine, effect.end)
        for node, peer in machine.peers.items():
            if peer.sent != UNMATCHED:
                previous = log.name_before(peer.sent)
                if previous is not None:
                    append = LogAppend(
                        peer.session, machine.record.epoch, previous, peer.sent, (), effect.end
                    )
                    self.world.send(self.number, node, append)

    def _do_propose(self, effect: Propose) -> None:
        self._submit(effect.number, effect.record, effect.revision, effect.generations)

    def _do_read(self, effect: ReadRecord) -> None:
        self.world.reads.append((self.number, self.incarnation))

    def _do_leave(self, effect: Leave) -> None:
        machine, self.machine = self.machine, None
        if machine is not None:
            stopped = self.follower.state is Following.STOPPED
            self.follower = self._new_follower(machine.committed)
            self.follower.epoch = max(machine.record.epoch, self.follower.epoch)
            if stopped:
                self.follower.state = Following.STOPPED
        self.leader = -1

    def _do_save_epoch(self, effect: SaveEpoch) -> None:
        self._save_epoch(effect.epoch)

    def _do_cut(self, effect: Truncate) -> None:
        self.world.observer.cut(self, effect.end)
        self.kept.log.truncate(effect.end)

    def _do_begin(self, effect: Begin) -> None:
        self.world.observer.begun_again(self)
        self.kept.log = self.follower.log = ModelLog()

    def _do_append(self, effect: Append) -> None:
        start, batches, committed = effect
        log = self.kept.log
        fresh = batches[log.written_end - start :]
        if self.kept.in_sync and any(batch.promise > log.synced_end for batch in fresh):
            self.kept.in_sync = False  # it catches up: the headers speak of others
        self.world.observer.appended(self, log.written_end, fresh)
        for batch in fresh:
            log.append(batch)
        self.follower.appended(log.written_end, committed)
        self.world.observer.learned(self)

    def _do_sync(self, effect: Sync) -> None:
        self.sync_wanted = True

    def _do_stop(self, effect: Stop) -> None:
        self._stop(effect.reason)


_RECEIVERS: dict[type, Any] = {
    Hello: Node._on_hello,
    MatchAt: Node._on_match_at,
    BeginAt: Node._on_begin_at,
    LogAppend: Node._on_row,
    ReportExtent: Node._on_report_extent,
    Matched: Node._on_matched,
    Acknowledge: Node._on_acknowledge,
    Refuse: Node._on_refuse,
}
_EFFECTS: dict[type, Any] = {
    Hello: Node._to_node,
    MatchAt: Node._to_node,
    BeginAt: Node._to_node,
    Feed: Node._do_feed,
    CommitTo: Node._do_commit,
    Propose: Node._do_propose,
    ReadRecord: Node._do_read,
    Leave: Node._do_leave,
    SaveEpoch: Node._do_save_epoch,
    ReportExtent: Node._to_leader,
    Truncate: Node._do_cut,
    Begin: Node._do_begin,
    Matched: Node._to_leader,
    Append: Node._do_append,
    Sync: Node._do_sync,
    Acknowledge: Node._to_leader,
    Refuse: Node._to_leader,
    Stop: Node._do_stop,
}
