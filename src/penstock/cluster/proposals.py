"""The proposals of a node for the partitions that it leads or could lead.

The shell reports what it sees: changes of the view, links, heartbeats, leaderships that begin and
end. `tick` draws the conclusions, some ten times a second; what is proposed lies in `batches` until
the turn ends. What the machines want done lies in their own `out`; `moved` names those that have
something.

| question | answered by |
|---|---|
| who is gone | `failure_detector` |
| who takes a vacant leadership, and when | `elections` |
| who is dropped, who may come back, when is a leadership given up | `membership` |
| who should lead or leave, by what is wanted | `preferred_leaders` |
| whose log is corrupt, and who should lead instead | `failure_detector` |
| how many transactions that takes | `transactions` |
| may this record be believed | `view` |

Answers of the coordinator are settled singly: a batch that was refused for one partition does not
hold up the others, and an answer that never came leaves each in doubt by itself.

**Preferred leaders.** The controller changes what is wanted; the leader does it
(`penstock.replication.record`). It looks once in PREFERRED_LEADERS_NS at the partitions that are in
such a state, leaves out what is not wanted any more, and hands over to the member that is wanted
first, once its link has been steady for SUCCESSOR_STEADY_NS (a leadership does not follow a node
that comes and goes) and then SUCCESSOR_LISTED_NS later: lookups name it meanwhile, so that
consumers are connected when it leads. A hand-over that was tried waits HAND_OVER_NS before it is
tried again, and no more than HAND_OVERS_MAX are begun at a time.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.cluster import keys
from penstock.cluster.coordinator import (
    Compare,
    Coordinator,
    Failed,
    Put,
    Reading,
    RevisionIs,
    Settled,
    seen_by_view,
)
from penstock.cluster.documents import RECORD
from penstock.cluster.elections import Elections, Local
from penstock.cluster.failure_detector import CorruptReplicas, FailureDetector
from penstock.cluster.keys import PartitionName
from penstock.cluster.membership import Members
from penstock.cluster.transactions import Batches, Proposal
from penstock.cluster.view import Versioned, View, ViewChange, versioned
from penstock.errors import DocumentBroken
from penstock.limits import (
    ELECTION_RETRY_NS,
    HAND_OVER_NS,
    HAND_OVERS_MAX,
    LEADERSHIP_TAKEN_NS,
    PREFERRED_LEADERS_NS,
    SUCCESSOR_LISTED_NS,
    SUCCESSOR_STEADY_NS,
)
from penstock.replication.authority import Evidence
from penstock.replication.effects import Propose
from penstock.replication.leader import Outcome, PartitionLeader
from penstock.replication.record import PartitionRecord, resigned, successor, superfluous


class Proposals:
    def __init__(
        self,
        own: int,
        incarnation: int,
        generation: int,
        view: View,
        coordinator: Coordinator,
        local: Callable[[PartitionName], Local | None],
        mono_ns: int,
        replica_timeout_ns: int,
    ) -> None:
        self.own, self.incarnation = own, incarnation
        self.view = view
        self.coordinator = coordinator
        self.batches = Batches(coordinator)
        self.failure_detector = FailureDetector(own, view)
        self.corrupt_replicas = CorruptReplicas(own)
        self.elections = Elections(
            own,
            incarnation,
            generation,
            view,
            self.failure_detector,
            self.batches,
            local,
            self.corrupt_replicas,
        )
        self.moved: set[PartitionName] = set()
        self.members = Members(self.resign, self.moved, replica_timeout_ns)
        self.preferred_leaders = PreferredLeaders(
            view, self.members.machines, self.hand_over, self.moved
        )
        self.evidence = Evidence()  # for the `PartitionLeader`s of this node
        self.now_ns = self.elections.now_ns = mono_ns
        self._may_act = False
        self._keyless: set[int] = set()  # nodes that were taken for gone, though they are linked
        self._leaving: dict[PartitionName, int] = {}  # leaderships that ended here, unwritten yet
        self._reads: dict[PartitionName, int] = {}  # to ask again for, and when
        self.handing: dict[PartitionName, int] = {}  # leaderships that are handed over, until when
        self._unsent: list[tuple[int, Callable[[Settled], None]]] = []  # when to say so, to whom
        self._restorations = view.restorations
        for name, held in view.partitions.items():  # remembered: their records may never change
            self.elections.record_changed(name, held)

    @property
    def machines(self) -> dict[PartitionName, PartitionLeader]:
        return self.members.machines

    # --- events from the shell ---

    def changed(self, changes: Iterable[ViewChange]) -> None:
        """The view has applied these changes."""
        for key, before, after in changes:
            if key.startswith(keys.PARTITIONS):
                self._record_changed(keys.partition_of(key), after)
            elif key.startswith(keys.NODES) and _incarnation_of(before) != _incarnation_of(after):
                node = keys.node_of(key)
                self.failure_detector.key_changed(node, after is not None, self.now_ns)
                self._keyless.discard(node)
                self.elections.node_changed(node)

    def _record_changed(self, name: PartitionName, held: Versioned[PartitionRecord] | None) -> None:
        machine = self.machines.get(name)
        if machine is not None and held is not None:
            machine.seen(held.revision, held.document)
            self.preferred_leaders.record_changed(name, held.document)
            self.moved.add(name)
        if held is None or not self._is_own(held.document):
            self._leaving.pop(name, None)
        self.elections.record_changed(name, held)

    def _is_own(self, record: PartitionRecord) -> bool:
        leader_id = record.leader
        return leader_id is not None and (leader_id.node, leader_id.incarnation) == (
            self.own,
            self.incarnation,
        )

    def linked(self, node: int, incarnation: int) -> None:
        self.failure_detector.linked(node, incarnation)
        self.members.linked(node, self.now_ns)
        self.preferred_leaders.linked(node, self.now_ns)
        self.elections.node_changed(node)

    def unlinked(self, node: int) -> None:
        self.failure_detector.unlinked(node)
        self.members.unlinked(node, self.now_ns)
        self.preferred_leaders.unlinked(node)
        self.corrupt_replicas.unlinked(node)
        self.evidence.lost(node)
        self.elections.leavers.discard(node)
        self.elections.node_changed(node)

    def leaving(self, node: int) -> None:
        """The node is about to stop: commits do not wait for it, and it gets no leadership."""
        self.elections.leavers.add(node)
        self.preferred_leaders.unlinked(node)
        self.members.leaving(node, self.now_ns)

    def refused(self, witness: int, node: int, incarnation: int) -> None:
        self.failure_detector.refused(witness, node, incarnation, self.now_ns)
        if self.failure_detector.is_refused(node, incarnation):
            self.elections.node_changed(node)

    def leadership_began(self, name: PartitionName, machine: PartitionLeader) -> None:
        self.members.leadership_began(name, machine, self.now_ns)
        self.preferred_leaders.record_changed(name, machine.record)

    def leadership_ended(self, name: PartitionName) -> None:
        """The machine has left. If the record still names this node, it has to be corrected."""
        self.members.leadership_ended(name)
        self.preferred_leaders.forget(name)
        held = self.view.partitions.get(name)
        if held is not None and self._is_own(held.document):
            self._leaving[name] = self.now_ns
            self.elections.gave_up(name)

    # --- effects of the machines ---

    def propose(self, name: PartitionName, machine: PartitionLeader, wanted: Propose) -> None:
        """The effect of a machine. The answer arrives by `outcome`, never within this call."""
        key = keys.partition(*name)
        compares = self._compares(key, wanted)
        done = partial(self._outcome, name, machine, wanted.number)
        if compares is None or self.view.refusal(name):
            self._unsent.append((self.now_ns + ELECTION_RETRY_NS, done))
            return
        self.batches.add(Proposal(Put(key, RECORD.encode(wanted.record)), compares, done))

    def _compares(self, key: str, wanted: Propose) -> tuple[Compare, ...] | None:
        """None: a node that would be added has another generation by now."""
        compares: list[Compare] = [RevisionIs(key, wanted.revision)]
        for node, generation in wanted.generations:
            held = self.view.memberships.get(node)
            if held is None or held.document.generation != generation:
                return None
            compares.append(RevisionIs(keys.member(node), held.revision))
        return tuple(compares)

    def _outcome(
        self, name: PartitionName, machine: PartitionLeader, number: int, settled: Settled
    ) -> None:
        machine.outcome(number, settled.outcome, settled.revision)
        self.moved.add(name)

    def read(self, name: PartitionName) -> None:
        """The effect of a machine: read the record from the coordinator."""
        self._reads[name] = self.now_ns

    def _read(self, name: PartitionName) -> None:
        machine, sent_ns = self.machines.get(name), self.now_ns
        if machine is not None:
            key = keys.partition(*name)
            self.coordinator.read(key, partial(self._was_read, name, machine, sent_ns))

    def _was_read(
        self, name: PartitionName, machine: PartitionLeader, sent_ns: int, answer: Reading | Failed
    ) -> None:
        if isinstance(answer, Failed) or answer.entry is None:
            self._reads[name] = self.now_ns + ELECTION_RETRY_NS
            return
        try:
            held = versioned(RECORD, answer.entry)
        except DocumentBroken:  # the view meets it, too, and freezes the partition
            self._reads[name] = self.now_ns + ELECTION_RETRY_NS
            return
        if self.view.suspect(name, held):
            return
        if held.revision == machine.revision:
            machine.confirmed(sent_ns)
        machine.read(held.revision, held.document)
        self.moved.add(name)

    def resign(self, name: PartitionName, reason: str) -> None:
        self.machines[name].resign(reason)
        self.moved.add(name)

    def hand_over(self, name: PartitionName, node: int) -> bool:
        """Hand over to a member whose process lives, unless that takes longer than
        LEADERSHIP_TAKEN_NS."""
        held, machine = self.view.nodes.get(node), self.machines.get(name)
        if (
            held is None
            or machine is None
            or self.failure_detector.links.get(node) != held.document.incarnation
        ):
            return False
        if not self.corrupt_replicas.may_be_given(name, node):
            return False
        self.handing[name] = self.now_ns + LEADERSHIP_TAKEN_NS
        self.moved.add(name)
        return machine.hand_over(node, held.document.incarnation)

    # --- conclusions ---

    def tick(self, mono_ns: int, is_followed: bool) -> None:
        """`is_followed`: the view is current, and this node's key exists."""
        self.now_ns = mono_ns
        if is_followed:
            self.failure_detector.followed(mono_ns)
        else:
            self.failure_detector.away()
            self._may_act = False
            self._keyless.clear()  # they are looked at again
        if self.failure_detector.may_act(mono_ns) != self._may_act:
            self._may_act = not self._may_act
            self.elections.now_ns = mono_ns
            self.elections.absence_counts()
        self._leave_keyless(mono_ns)
        self._leave_restored()
        for node in self.members.unlinked_ns:
            if self._is_gone(node):
                self.members.drop_from_all(node, mono_ns)
        for node, names in self.corrupt_replicas.failed_of_node.items():
            for name in names & self.machines.keys():
                self.members.failed(name, node, mono_ns)
        self.members.tick(mono_ns)
        self.preferred_leaders.tick(mono_ns)
        self._give_way()
        self.elections.tick(mono_ns)
        while self._unsent and self._unsent[0][0] <= mono_ns:
            self._unsent.pop(0)[1](Settled(Outcome.REFUSED, 0))
        for name in _take_due(self._reads, mono_ns):
            self._read(name)
        for name in _take_due(self.handing, mono_ns):
            if name in self.machines:
                self.machines[name].keep_leadership()
                self.moved.add(name)  # appends that waited for the successor may go
        for name in _take_due(self._leaving, mono_ns):
            self._leaving[name] = mono_ns + ELECTION_RETRY_NS
            self._correct(name)

    def _leave_keyless(self, mono_ns: int) -> None:
        for node in self.failure_detector.links.keys() - self._keyless:
            if self.failure_detector.is_keyless(node, mono_ns):
                self._keyless.add(node)
                self.elections.now_ns = mono_ns
                self.elections.node_changed(node)

    def _is_gone(self, node: int) -> bool:
        """The process has certainly ended: no commit need wait for it."""
        detector, held = self.failure_detector, self.view.nodes.get(node)
        if held is None:  # who was elected in its place may have removed the key
            return detector.may_act(self.now_ns) or node in detector.refused_incarnations
        return bool(detector.why_gone(node, held.document.incarnation, self.now_ns))

    def _give_way(self) -> None:
        """Leaderships whose log is corrupt go to intact members."""
        for name in (self.corrupt_replicas.corrupt & self.machines.keys()) - self.handing.keys():
            successor = self.corrupt_replicas.successor(
                name, self.machines[name].record, self.failure_detector.links
            )
            if successor is not None:
                self.hand_over(name, successor)

    def _leave_restored(self) -> None:
        """Revisions have restarted: proposals of a leadership can no longer be settled."""
        if self.view.restorations != self._restorations:
            self._restorations = self.view.restorations
            self.moved.update(self.machines)
            for machine in self.machines.values():
                machine.leave("the metadata was restored")

    def _correct(self, name: PartitionName) -> None:
        """A leadership of this node has ended, and the record still names it."""
        held = self.view.partitions.get(name)
        if held is None or name in self.machines or self.view.refusal(name):
            return
        key = keys.partition(*name)
        change = Put(key, RECORD.encode(resigned(held.document)))
        self.batches.add(Proposal(change, (RevisionIs(key, held.revision),), seen_by_view))


def _take_due(times_ns: dict[PartitionName, int], mono_ns: int) -> list[PartitionName]:
    due = [name for name, at_ns in times_ns.items() if at_ns <= mono_ns]
    for name in due:
        del times_ns[name]
    return due


def _incarnation_of(held: Versioned[Any] | None) -> int | None:
    return held.document.incarnation if held is not None else None


@dataclass(eq=False)
class PreferredLeaders:
    view: View
    machines: dict[PartitionName, PartitionLeader]
    _hand_over: Callable[[PartitionName, int], bool]
    _moved: set[PartitionName]
    # By partition: since when a node is to lead next.
    open: dict[PartitionName, dict[int, int]] = field(default_factory=dict)
    _linked_ns: dict[int, int] = field(default_factory=dict)
    _tried_ns: dict[PartitionName, int] = field(default_factory=dict)
    _due_ns: int = 0

    def linked(self, node: int, mono_ns: int) -> None:
        self._linked_ns[node] = mono_ns

    def unlinked(self, node: int) -> None:
        self._linked_ns.pop(node, None)

    def record_changed(self, name: PartitionName, record: PartitionRecord) -> None:
        if superfluous(record) or successor(record, record.wanted) is not None:
            self.open.setdefault(name, {})
        else:
            self.forget(name)

    def forget(self, name: PartitionName) -> None:
        """The partition wants nothing, or this node does not lead it."""
        self.open.pop(name, None)
        self._tried_ns.pop(name, None)

    def tick(self, mono_ns: int) -> None:
        if mono_ns < self._due_ns or not self.open:
            return
        self._due_ns = mono_ns + PREFERRED_LEADERS_NS
        steady = [
            n for n, at_ns in self._linked_ns.items() if mono_ns - at_ns >= SUCCESSOR_STEADY_NS
        ]
        begun = 0
        for name in sorted(self.open):
            machine = self.machines[name]
            if machine.drop(superfluous(machine.record)):
                self._moved.add(name)
            if begun < HAND_OVERS_MAX and not machine.is_changing:
                begun += self._begin(name, machine.record, steady, mono_ns)

    def _begin(
        self, name: PartitionName, record: PartitionRecord, steady: Collection[int], mono_ns: int
    ) -> bool:
        node = successor(record, [one for one in steady if self._is_present(record, one)])
        tried_ns = self._tried_ns.get(name)
        if node is None or (tried_ns is not None and mono_ns - tried_ns < HAND_OVER_NS):
            return False
        if mono_ns - self.open[name].setdefault(node, mono_ns) < SUCCESSOR_LISTED_NS:
            return False
        self._tried_ns[name] = mono_ns
        return self._hand_over(name, node)

    def _is_present(self, record: PartitionRecord, node: int) -> bool:
        """The node is registered, and its entry has the present generation: it is no suspect."""
        entry, held = record.member_on(node), self.view.memberships.get(node)
        if entry is None or held is None or node not in self.view.nodes:
            return False
        return entry.generation == held.document.generation
