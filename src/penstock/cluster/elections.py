"""The members elect themselves: who stands for a vacant leadership, and when.

A leadership is **vacant** when

- the record names no leader (it resigned);
- the process that it names is over (`failure_detector`), or was this one before its restart;
- its leader is linked, and has not said that it is leading within LEADERSHIP_TAKEN_NS, and
  LEADERSHIP_EACH_NS for each partition that the node leads.

A member asks for a vacant leadership when its turn has come: members follow one another in the
order of preference, ELECTION_STEP_NS apart (FIRST_ELECTION_STEP_NS for a new partition), those left
out that are missing, refuse connections or are about to stop. A member that reaches fewer members
than a commit needs waits LEADERSHIP_TAKEN_NS longer, unless no other is left that might do better;
so does one that has just given this leadership up. One whose log is corrupt lets intact ones go
first (`failure_detector`). The coordinator's comparison decides between two that ask at once.

**When all members may have lost something** (`penstock.replication.election`), each sends the
others what it has, until all have reported; the one with the most asks for the leadership.

No message puts a node into a leadership: that does the record alone, when the view has it.
"""

import logging
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.cluster import keys
from penstock.cluster.coordinator import CreatedIs, Delete, Operation, Put, RevisionIs, Settled
from penstock.cluster.documents import RECORD
from penstock.cluster.failure_detector import CorruptReplicas, FailureDetector
from penstock.cluster.keys import PartitionName
from penstock.cluster.messages import SendReport
from penstock.cluster.transactions import Batches, Proposal
from penstock.cluster.view import Versioned, View, versioned
from penstock.limits import (
    ELECTION_RETRY_NS,
    ELECTION_STEP_NS,
    FIRST_ELECTION_STEP_NS,
    INTACT_FIRST_NS,
    LEADERSHIP_EACH_NS,
    LEADERSHIP_TAKEN_NS,
    REPORT_PAUSE_NS,
)
from penstock.log.epochs import Extent
from penstock.replication.election import (
    Candidate,
    MemberReport,
    election,
    hindrance,
    is_suspect,
    last_resort,
)
from penstock.replication.leader import Outcome
from penstock.replication.record import LeaderId, PartitionRecord

_log = logging.getLogger("penstock.cluster")


class Local(NamedTuple):
    replica: int
    stopped: bool
    waits: bool  # for the disk
    extent: Extent
    leads: bool  # it is leading


@dataclass(slots=True, eq=False)
class Vacancy:
    epoch: int
    reason: str
    due_ns: int
    proposed: bool = False
    is_logged: bool = False
    reports: dict[int, MemberReport] = field(default_factory=dict)
    report_due_ns: int = 0


@dataclass(eq=False)
class Elections:
    own: int
    incarnation: int
    generation: int
    view: View
    failure_detector: FailureDetector
    batches: Batches
    local: Callable[[PartitionName], Local | None]
    corrupt_replicas: CorruptReplicas

    def __post_init__(self) -> None:
        self.is_leaving = False  # this process is about to stop
        self.leavers: set[int] = set()  # nodes that are, until their links have ended
        self.now_ns = 0
        self.vacancies: dict[PartitionName, Vacancy] = {}
        self.out: list[tuple[int, SendReport]] = []  # to which node
        self._of_node: dict[int, set[PartitionName]] = {}  # partitions by the node that leads
        self._leads: dict[PartitionName, int] = {}
        self._awaited: dict[PartitionName, tuple[int, int]] = {}  # epoch, until when
        self._in_force: dict[PartitionName, int] = {}  # epoch of which its leader has spoken
        self._given_up_ns: dict[PartitionName, int] = {}

    # --- events ---

    def record_changed(self, name: PartitionName, held: Versioned[PartitionRecord] | None) -> None:
        record = held.document if held is not None else None
        self._index(name, record)
        if record is None:
            self._in_force.pop(name, None)
        if record is None or record.member_on(self.own) is None:
            self._forget(name)
            return
        if record.leader is not None and self._in_force.get(name) != record.epoch:
            self._awaited[name] = record.epoch, self._taken_by_ns(record.leader.node)
        self.consider(name)

    def _taken_by_ns(self, node: int) -> int:
        """When all leaderships of a node should be taken over. It begins them one after the other,
        and greets a node that has just been linked for one after the other."""
        count = len(self._of_node.get(node, ()))
        return self.now_ns + LEADERSHIP_TAKEN_NS + count * LEADERSHIP_EACH_NS

    def _index(self, name: PartitionName, record: PartitionRecord | None) -> None:
        before = self._leads.pop(name, None)
        if before is not None:
            self._of_node[before].discard(name)
        if record is not None and record.leader is not None:
            self._leads[name] = record.leader.node
            self._of_node.setdefault(record.leader.node, set()).add(name)

    def _forget(self, name: PartitionName) -> None:
        """This node is no member. The state of its leader is kept: it may become one."""
        for table in (self.vacancies, self._awaited, self._given_up_ns):
            table.pop(name, None)

    def in_force(self, name: PartitionName, epoch: int) -> None:
        """The leader of this epoch has greeted."""
        self._in_force[name] = epoch
        if name in self._awaited and self._awaited[name][0] <= epoch:
            del self._awaited[name]

    @property
    def awaited(self) -> Set[PartitionName]:
        """Replicas whose leaders have not greeted yet."""
        return self._awaited.keys()

    def gave_up(self, name: PartitionName) -> None:
        self._given_up_ns[name] = self.now_ns

    def node_changed(self, node: int) -> None:
        """The link, key or incarnation of a node has changed."""
        for name in tuple(self._of_node.get(node, ())):
            held = self.view.partitions.get(name)
            if held is None:
                continue  # it was deleted: that change comes after this one, out of the same batch
            epoch = held.document.epoch
            if node in self.failure_detector.links and self._in_force.get(name) != epoch:
                self._awaited[name] = epoch, self._taken_by_ns(node)
            self.consider(name)

    def absence_counts(self) -> None:
        """From now on absences may be acted upon."""
        for node in tuple(self._of_node):
            if node != self.own and node not in self.failure_detector.links:
                self.node_changed(node)

    def reported(self, node: int, name: PartitionName, epoch: int, report: MemberReport) -> None:
        vacancy = self.vacancies.get(name)
        if vacancy is not None and vacancy.epoch == epoch:
            vacancy.reports[node] = report

    # --- conclusions ---

    def consider(self, name: PartitionName) -> None:
        """Stand for the leadership if it is vacant and this node is a member."""
        record = self._member_record(name)
        reason = self._vacancy(name, record) if record is not None else ""
        if record is None or not reason:
            self.vacancies.pop(name, None)
            return
        vacancy = self.vacancies.get(name)
        if vacancy is None or vacancy.epoch != record.epoch:
            self.vacancies[name] = Vacancy(record.epoch, reason, self._due_ns(name, record))

    def _member_record(self, name: PartitionName) -> PartitionRecord | None:
        held = self.view.partitions.get(name)
        if held is None or held.document.member_on(self.own) is None:
            return None
        return held.document

    def _vacancy(self, name: PartitionName, record: PartitionRecord) -> str:
        leader = record.leader
        if leader is None:
            return "its leader resigned"
        if leader.node == self.own:
            if leader.incarnation == self.incarnation:
                self._awaited.pop(name, None)  # who is leading here need not be told
                return ""
            return "its leader was an earlier incarnation of this node"
        awaited = self._awaited.get(name)
        if awaited is not None and self.now_ns >= awaited[1]:
            if self.failure_detector.links.get(leader.node) == leader.incarnation:
                return "its leader has not taken over"
            del self._awaited[name]  # asked for again when there is a link
        return self.failure_detector.why_gone(leader.node, leader.incarnation, self.now_ns)

    def _due_ns(self, name: PartitionName, record: PartitionRecord) -> int:
        missing = {m.node for m in record.members if self._is_missing(m.node)}
        if record.leader is not None and record.leader.node != self.own:
            missing.add(record.leader.node)
        nodes = [m.node for m in record.members if m.node not in missing]
        order = record.preferred(nodes)
        rank = order.index(self.own) if self.own in order else len(order)
        step_ns = FIRST_ELECTION_STEP_NS if self._is_first(name) else ELECTION_STEP_NS
        due_ns = self.now_ns + rank * step_ns
        gave_up_ns = self._given_up_ns.get(name)
        if gave_up_ns is not None and self.now_ns < gave_up_ns + LEADERSHIP_TAKEN_NS:
            due_ns = max(due_ns, gave_up_ns + LEADERSHIP_TAKEN_NS)
        if self._reached(record) < record.members_min and order != [self.own]:
            due_ns += LEADERSHIP_TAKEN_NS
        return due_ns

    def _is_missing(self, node: int) -> bool:
        held, detector = self.view.nodes.get(node), self.failure_detector
        if held is not None and detector.is_refused(node, held.document.incarnation):
            return True
        return node in self.leavers or detector.is_missing(node, self.now_ns)

    def _is_first(self, name: PartitionName) -> bool:
        """Creating replicas takes a node a while: without this the quickest node would lead, and
        hand over to the preferred one seconds later."""
        held = self.view.partitions[name]
        return held.document.leader is None and held.revision == held.created

    def _reached(self, record: PartitionRecord) -> int:
        """The number of members that a commit of this node could count on."""
        links = self.failure_detector.links
        return sum(m.node == self.own or m.node in links for m in record.members)

    def tick(self, mono_ns: int) -> None:
        self.now_ns = mono_ns
        for name, (_, deadline_ns) in tuple(self._awaited.items()):
            if mono_ns >= deadline_ns:
                self.consider(name)
        for name, vacancy in tuple(self.vacancies.items()):
            if vacancy.due_ns <= mono_ns and not vacancy.proposed:
                self._stand_for_election(name, vacancy)

    def _stand_for_election(self, name: PartitionName, vacancy: Vacancy) -> None:
        self.consider(name)  # things may have changed since
        record, local = self._member_record(name), self.local(name)
        if self.vacancies.get(name) is not vacancy or record is None or local is None:
            return
        if self.view.refusal(name) or local.leads or self.is_leaving:
            return
        leader_id = LeaderId(self.own, self.incarnation, local.replica)
        candidate = self._candidate(leader_id, local)
        if hindrance(record, candidate) is None:
            has_waited = self.now_ns >= vacancy.due_ns + INTACT_FIRST_NS
            links = self.failure_detector.links
            if not has_waited and self.corrupt_replicas.successor(name, record, links) is not None:
                return
            self._propose(name, vacancy, election(record, leader_id, self._unreachable(record)))
        elif not local.stopped and self._may_have_lost(record, candidate):
            self._report(name, vacancy, record, local)
            chosen = last_resort(record, tuple(vacancy.reports.values()))
            if chosen is not None and chosen.node == self.own:
                self._propose(name, vacancy, election(record, leader_id, ()))

    def _candidate(self, leader_id: LeaderId, local: Local) -> Candidate:
        held = self.view.memberships.get(self.own)
        written = held.document.generation if held is not None else -1
        lost = held.document.memory_lost_generation if held is not None else 0
        return Candidate(leader_id, self.generation, written, lost, local.waits, local.stopped)

    def _unreachable(self, record: PartitionRecord) -> set[int]:
        links = self.failure_detector.links
        return {m.node for m in record.members if m.node != self.own and m.node not in links}

    # --- without an intact member ---

    def _may_have_lost(self, record: PartitionRecord, candidate: Candidate) -> bool:
        entry = record.member_on(self.own)
        if entry is None or candidate.generation != candidate.written_generation:
            return False
        return entry.replica != candidate.leader_id.replica or is_suspect(entry, candidate)

    def _report(
        self, name: PartitionName, vacancy: Vacancy, record: PartitionRecord, local: Local
    ) -> None:
        entry = record.member_on(self.own)
        if entry is None or self.now_ns < vacancy.report_due_ns:
            return
        vacancy.report_due_ns = self.now_ns + REPORT_PAUSE_NS
        lost = self.view.memberships[self.own].document.memory_lost_generation
        extent = local.extent if entry.replica == local.replica else None
        vacancy.reports[self.own] = MemberReport(entry, lost, extent)
        report = SendReport(*name, record.epoch, entry, lost, extent)
        for member in record.members:
            if member.node in self.failure_detector.links:
                self.out.append((member.node, report))

    # --- transactions ---

    def _propose(self, name: PartitionName, vacancy: Vacancy, record: PartitionRecord) -> None:
        held = self.view.partitions[name]
        key = keys.partition(*name)
        besides, created = self._refusing(held.document)
        vacancy.proposed = True
        if not self._is_first(name) and not vacancy.is_logged:
            vacancy.is_logged = True  # etcd may be away for hours, and each second one asks again
            _log.info("%s/%d: this node asks to lead it: %s", *name, vacancy.reason)
        self.batches.add(
            Proposal(
                Put(key, RECORD.encode(record)),
                (RevisionIs(key, held.revision), *created),
                lambda settled: self._settled(name, vacancy, settled),
                besides,
            )
        )

    def _refusing(
        self, record: PartitionRecord
    ) -> tuple[tuple[Operation, ...], tuple[CreatedIs, ...]]:
        """A node that refused connections is taken for dead, and learns of it: its key is
        removed."""
        leader = record.leader
        held = self.view.nodes.get(leader.node) if leader is not None else None
        if leader is None or held is None or held.document.incarnation != leader.incarnation:
            return (), ()
        if not self.failure_detector.is_refused(leader.node, leader.incarnation):
            return (), ()
        key = keys.node(leader.node)
        return (Delete(key),), (CreatedIs(key, held.created),)

    def _settled(self, name: PartitionName, vacancy: Vacancy, settled: Settled) -> None:
        """A done change arrives through the view. Anything else is considered again."""
        if settled.outcome is Outcome.DONE:
            return
        vacancy.proposed = False
        wait_ns = ELECTION_RETRY_NS if settled.outcome is Outcome.UNKNOWN else ELECTION_STEP_NS
        vacancy.due_ns = self.now_ns + wait_ns
        for entry in settled.found:
            if entry.key == keys.partition(*name):
                self.view.suspect(name, versioned(RECORD, entry))
