"""How the record determines a replica's role, from one record to the next.

A leadership begins when the record names this replica in this incarnation of its process, its epoch
is in the ledger, and what the log had before is committed (elected, until then). It ends with a
record or a hello of a higher epoch, or a failed write or sync. Then the replica is a follower to be
matched, or, if its disk failed, stopped. An epoch gives one leadership: after it has ended, only
another election begins one.

`turn` is called once a turn, after incoming frames were handled. It clears away a leadership that
ended, when none of its methods is running and no sync thread has its files. A node may lose a
hundred at once, and its disk may be slow: nothing waits for that, and the next leader's hello is
answered afterwards.

The roles of a replica among several: how it uses its files, and what the record lists it as.

| role | frames of a leader | commits wait for it | it trusts |
|---|---|---|---|
| Unassigned | a hello makes it one that follows | – | what its file says |
| Following, as a learner | are followed | no | only its own mark |
| Following, and listed | are followed | yes | headers, once it is in sync |
| Leading, elected | a hello of a higher epoch ends that | accepts no publish yet | the same |
| Leading, and serving | the same | serves publishers and consumers | the same |
| Stopped | are dropped | – | nothing: it is copied again, as another replica |

A role is replaced as a whole. When the record begins to list a learner, nothing is matched again:
it was level.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.health import Trouble
from penstock.broker.ports import PeerLane
from penstock.broker.replicas.leadership import Leadership, LeadershipPorts
from penstock.broker.replicas.log_follower import Awaited, LogFollower
from penstock.errors import WriteRefused
from penstock.replication.effects import Hello, Refuse
from penstock.replication.frames import Frame, encode
from penstock.replication.leader import PartitionLeader
from penstock.replication.record import LeaderId, PartitionRecord

if TYPE_CHECKING:
    from penstock.broker.partition.leader import Leader
    from penstock.broker.replicas.replicated_partition import ReplicatedPartition


class Assignment:
    """`owner` keeps more than the log."""

    def __init__(self, owner: ReplicatedPartition) -> None:
        self._owner = owner
        self._label, self._key, self._own = owner.replica.label, owner.key, owner.own
        self._log = log = owner.replica.log
        self._stop_due = ""  # why this replica is to end with its leadership
        self._promising = False
        self.record: PartitionRecord | None = None
        self.revision = 0
        self._restorations = 0
        self.target = owner.target
        reason = owner.own.file.reason if log.stopped is None else log.stopped.reason
        self.leadership: Leadership | None = None
        self.served: Leader | None = None  # of the leadership; None: only elected so far
        self.follower: LogFollower | None = None
        self.is_stopped = bool(reason)
        self._replication = owner.replication
        self._records = owner.replica_host.records
        self._syncs, self._health = owner.context.syncs, owner.context.health
        self._waits = owner.topic.durability == "disk"
        self._linked: set[int] = set()
        self._leadership_epoch = 0  # of the last leadership of this incarnation
        self._due_epoch = 0  # of a leadership that begins when a sync has ended
        self._is_over = False  # the leadership, and it is not cleared away yet
        self._greeting: tuple[int, Hello] | None = None  # that is answered when it is
        self._committed = log.agreed_end if owner.own.believes_headers else 0

    @property
    def leader_id(self) -> LeaderId:
        replication = self._replication
        return LeaderId(replication.node, replication.incarnation, self._own.replica)

    def _become(
        self,
        leadership: Leadership | None = None,
        follower: LogFollower | None = None,
        stopped: bool = False,
    ) -> None:
        """Without either: the files are open, and nothing is served."""
        self.leadership, self.served, self.follower = leadership, None, follower
        self.is_stopped = stopped

    @property
    def role(self) -> str:
        """For people."""
        if self.leadership is not None:
            return "elected" if self.served is None else "leading"
        if self.follower is not None:
            return "follower" if self.follower.listed else "learner"
        return "stopped" if self.is_stopped else "unassigned"

    @property
    def has_failed(self) -> bool:
        """It acknowledges nothing: it is stopped, or its disk refuses writes."""
        awaited = self.follower.awaited if self.follower is not None else Awaited.NOTHING
        has_no_room = awaited is Awaited.ROOM
        if awaited is Awaited.EPOCH:  # no promise is stored, so it follows no leader
            has_no_room = bool(self._replication.epoch_ledger.trouble)
        return has_no_room or self.is_stopped

    @property
    def committed(self) -> int:
        if self.leadership is not None:
            return self.leadership.machine.committed
        return self._committed if self.follower is None else self.follower.machine.committed

    @property
    def linked_nodes(self) -> frozenset[int]:
        return frozenset(self._linked)

    @property
    def restless(self) -> bool:
        is_elected = self.leadership is not None and self.served is None
        return self._is_over or self._promising or is_elected or bool(self._due_epoch)

    def set_waits(self, waits: bool) -> None:
        """The topic's durability has changed. A leadership's own line follows its `GroupCommit`."""
        self._waits = waits
        if self.follower is not None:
            self.follower.machine.waits = waits

    # --- the record ---

    def is_news(self, revision: int, restorations: int = 0) -> bool:
        return (restorations, revision) > (self._restorations, self.revision)

    def assign(self, revision: int, record: PartitionRecord, restorations: int = 0) -> None:
        """The record, newly read. An older one changes nothing. `restorations`: of the metadata;
        with each of them revisions begin again."""
        if not self.is_news(revision, restorations):
            return
        self._restorations = restorations
        self.revision, self.record = revision, record
        if self.leadership is not None:
            self.leadership.machine.seen(revision, record)
            self.leadership.moved()
            self.turn()
        self._promise_if_named()
        self._list()

    @property
    def _is_named(self) -> bool:
        """In this incarnation: another id belongs to a past leadership."""
        return self.record is not None and self.record.leader == self.leader_id

    def _list(self) -> None:
        """The follower learns the record's entry about its replica."""
        follower, record = self.follower, self.record
        if follower is None:
            return
        own = self.leader_id
        is_listed = record is not None and record.has(own.node, own.replica)
        follower.record_seen(is_listed or self._is_named, record.unclean_epoch if record else 0)

    def _promise_if_named(self) -> None:
        if self.record is not None and self._is_named:
            self._promise(self.record.epoch)

    def _promise(self, epoch: int) -> None:
        epoch_ledger, key = self._replication.epoch_ledger, self._key
        if not self._is_free or epoch <= self._leadership_epoch or epoch < epoch_ledger.epoch(key):
            return
        self._leadership_epoch = epoch
        if self.follower is not None:
            self.follower.abandon(epoch)
        self._promising = True
        self._owner.mark_due()
        epoch_ledger.save(key, epoch, lambda: self._begin_leadership(epoch))

    @property
    def _is_free(self) -> bool:
        return self.leadership is None and not self.is_stopped

    def _begin_leadership(self, epoch: int) -> None:
        """The promise is durable. Does the record still name this replica?"""
        self._promising = False
        record, epoch_ledger = self.record, self._replication.epoch_ledger
        if record is None or record.epoch != epoch or epoch_ledger.epoch(self._key) != epoch:
            return
        if self.follower is not None and self.follower.busy:
            self._due_epoch = epoch  # when its sync job lets go of the log's files
            return
        if not (self._is_free and self._is_named):
            return
        machine = PartitionLeader(
            self._log, record, self.revision, self.leader_id,
            self._replication.generation, self.committed, self._waits,
            evidence=self._replication.evidence, isolation=self._replication.isolation,
            beside=True,
        )  # fmt: skip
        ports = LeadershipPorts(
            self.target, self._replication.peers, self._records, self._replication.catch_up
        )
        leadership = Leadership(self._log, machine, ports)
        leadership.on_over, leadership.on_change = partial(self._note_over, machine), self._look
        self._become(leadership)
        self._note_leadership(machine, began=True)
        # Writes of an earlier leader, which this disk may lack.
        self._syncs.sync(self._log, self._synced, awaited=True)
        leadership.work()
        for node in sorted(self._linked):
            leadership.linked(node)
        self._look()

    # --- a leadership that begins ---

    def _synced(self, error: OSError | None) -> None:
        log, leadership = self._log, self.leadership
        if leadership is None:
            return
        if log.stopped is not None:
            leadership.failed(log.stopped.reason)
        else:
            leadership.synced()
        self._look()

    def _look(self) -> None:
        """Begin to serve once the log as of the election is committed."""
        leadership = self.leadership
        if leadership is None or self.served is not None:
            return
        if self._is_over or self._log.busy:
            return
        if leadership.has_level_tail and self._owner.is_free:
            self._note_in_sync()
            self.served = self._owner.serve(leadership)

    def _note_in_sync(self) -> None:
        log, own = self._log, self._own
        if not own.believes_headers and log.synced_end == log.written_end:
            try:
                own.become("in_sync")
            except WriteRefused as error:
                self._health.report(self._label, Trouble.WRITE, error.reason)

    # --- a leadership that ends ---

    def _note_leadership(self, machine: PartitionLeader, began: bool) -> None:
        self._owner.replica_host.note_leadership(self._owner, machine, began)

    def _note_over(self, machine: PartitionLeader) -> None:
        """Called before a publisher gets an answer. A failed sync is written down first."""
        self._is_over = True
        self._note_leadership(machine, began=False)
        self._owner.mark_due()
        if self._log.stopped is not None:
            self._mark_stopped(self._log.stopped.reason)

    def _mark_stopped(self, reason: str) -> None:
        self._health.report(self._label, Trouble.STOPPED, reason)
        try:
            self._own.become("stopped", reason)
        except WriteRefused as error:
            self._health.report(self._label, Trouble.WRITE, error.reason)

    def turn(self) -> None:
        stopped, leadership = self._log.stopped, self.leadership
        if leadership is not None and stopped is not None and not self._is_over:
            leadership.failed(stopped.reason)  # by a sync of its own, say
        if leadership is not None and self._is_over:
            if self._is_busy:
                return  # `restless`: the turn in which its sync job has ended goes on
            self._clear(leadership)
            self._promise_if_named()  # it may have won an election meanwhile
        self._look()
        if self._due_epoch:
            epoch, self._due_epoch = self._due_epoch, 0
            self._begin_leadership(epoch)
        if self._stop_due and self.leadership is None:
            reason, self._stop_due = self._stop_due, ""
            self._stop_for(reason)
        if stopped is not None and not self.is_stopped:
            self._mark_stopped(stopped.reason)
            self._become(stopped=True)
        if self._greeting is not None:
            (node, hello), self._greeting = self._greeting, None
            self.receive(node, hello)

    def stop(self, reason: str) -> None:
        """Files beside the log are in doubt: the replica stops, and a leadership before it."""
        leadership = self.leadership
        if leadership is None:
            self._stop_for(reason)
            return
        self._stop_due = reason
        leadership.leave(reason)
        self._owner.mark_due()

    def _stop_for(self, reason: str) -> None:
        if self.follower is not None:
            self.follower.stop(reason)
        elif not self.is_stopped:
            self._mark_stopped(reason)
            self._become(stopped=True)

    def resign(self, reason: str) -> None:
        """The leadership ends, if there is one, and is cleared away at once."""
        leadership = self.leadership
        if leadership is not None:
            leadership.leave(reason)
            leadership.on_change()
            self._is_over = False  # what ends while this waits may call `turn`
            self._syncs.wait_for(lambda: self._is_busy)
            self._clear(leadership)
            self._greeting = None
            self.turn()

    def _clear(self, leadership: Leadership) -> None:
        is_served = self.served is not None
        self._committed = leadership.machine.committed
        self._is_over = False
        self._become()
        if is_served:
            self._owner.cease()

    @property
    def _is_busy(self) -> bool:
        return self._log.busy or (self.served is not None and self.served.busy)

    # --- links and frames ---

    def linked(self, node: int) -> None:
        self._linked.add(node)
        if self.leadership is not None:
            self.leadership.linked(node)

    def unlinked(self, node: int) -> None:
        self._linked.discard(node)
        if self._greeting is not None and self._greeting[0] == node:
            self._greeting = None
        if self.leadership is not None:
            self.leadership.unlinked(node)
        elif self.follower is not None:
            self.follower.unlinked(node)

    def receive(self, node: int, frame: Frame) -> None:
        if isinstance(frame, Hello) and not self._may_follow(node, frame):
            return
        if self.leadership is not None:
            self.leadership.receive(node, frame)
        elif self.follower is not None:
            self.follower.receive(node, frame)

    def _may_follow(self, node: int, hello: Hello) -> bool:
        """A leader greets. A greeting of a higher epoch ends a leadership."""
        if self.is_stopped:
            return False
        leadership = self.leadership
        if leadership is not None:
            if hello.epoch <= leadership.machine.record.epoch:
                refusal = Refuse(hello.session, leadership.machine.record.epoch)
                self._replication.peers.send(node, PeerLane.LIVE, encode(self.target, refusal))
                return False
            leadership.leave("another leader has a higher epoch")
            leadership.on_change()
            self.turn()
            if self.leadership is not None:
                self._greeting = node, hello
                return False
        if self.follower is None and not self.is_stopped:
            self._follow()
        return True

    def _follow(self) -> None:
        self._become(follower=LogFollower(self._owner, self._waits, self._committed))
        self._list()

    def note_stopped(self, reason: str) -> None:
        """Its follower has stopped, and has written that down."""
        self._become(stopped=True)

    def settle(self) -> None:
        if self.follower is not None:
            self.follower.settle()

    def validate(self) -> None:
        if self.follower is not None:
            self.follower.validate()
        elif self.leadership is not None:
            self.leadership.machine.validate()
