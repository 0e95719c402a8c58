"""Who asks for a vacant leadership, when, and what the transaction says."""

from typing import Any

import pytest

from penstock.cluster import keys
from penstock.cluster.coordinator import CreatedIs, Delete, KeyValue, RevisionIs, Settled
from penstock.cluster.documents import ACTIVE, RECORD, Membership, NodeDocument
from penstock.cluster.elections import Elections, Local
from penstock.cluster.failure_detector import CorruptReplicas, FailureDetector
from penstock.cluster.keys import PartitionName
from penstock.cluster.transactions import Batches
from penstock.cluster.view import Versioned, View
from penstock.limits import (
    ABSENCE_GRACE_NS,
    ELECTION_RETRY_NS,
    ELECTION_STEP_NS,
    FIRST_ELECTION_STEP_NS,
    LEADERSHIP_TAKEN_NS,
    NODE_LEASE_NS,
    SECOND,
)
from penstock.log.epochs import Extent
from penstock.replication.election import MemberReport
from penstock.replication.leader import Outcome
from penstock.replication.record import LeaderId, Member, PartitionRecord
from sim.protocol.record_rules import broken_rule

NAME = PartitionName("orders", 0)
KEY = keys.partition(*NAME)
A, B, C = Member(1, 101, 1), Member(2, 102, 1), Member(3, 103, 1)
LED_BY_A = PartitionRecord(7, 5, LeaderId(1, 11, 101), (A, B, C), 2, (1, 2, 3))
VACANT = LED_BY_A._replace(leader=None)
SETTLED_NS = NODE_LEASE_NS + ABSENCE_GRACE_NS
EXTENT = Extent(0, 9, ((5, 0),))


class Desk:
    """One node's elections; by default node 2 of three, all linked."""

    def __init__(
        self, own: int = 2, record: PartitionRecord = LED_BY_A, waits: bool = True
    ) -> None:
        self.own = own
        self.view = View()
        self.failure_detector = FailureDetector(own, self.view)
        self.failure_detector.followed(-SETTLED_NS)
        self.local = Local(100 + own, False, waits, EXTENT, False)
        self.batches = Batches(self)  # type: ignore[arg-type]
        self.elections = Elections(
            own, 10 * own + 1, 1, self.view, self.failure_detector, self.batches,
            lambda name: self.local, CorruptReplicas(own),
        )  # fmt: skip
        for node in (1, 2, 3):
            self.alive(node, 10 * node + 1)
            self.known(node)
            if node != own:
                self.failure_detector.linked(node, 10 * node + 1)
        self.revision = 20
        self.set_record(record)

    def alive(self, node: int, incarnation: int) -> None:
        self.view.nodes[node] = Versioned(
            NodeDocument(incarnation, "h", 1, 2, "h", 3, "", "", 0, 0), 5, 4
        )

    def known(self, node: int, lost: int = 0) -> None:
        self.view.memberships[node] = Versioned(Membership(1, 1, "", lost, 1, 0, ACTIVE), 5, 5)

    def set_record(self, record: PartitionRecord) -> None:
        self.revision += 1
        held = self.view.partitions[NAME] = Versioned(record, self.revision, 3)
        self.elections.record_changed(NAME, held)

    def lose(self, node: int) -> None:
        del self.view.nodes[node]
        self.failure_detector.unlinked(node)
        self.elections.node_changed(node)

    def asked(self, mono_ns: int) -> PartitionRecord | None:
        """What this node asks for by then."""
        self.elections.tick(mono_ns)
        if not self.batches.waiting:
            return None
        ((change, compares, _, _),) = self.batches.waiting
        assert RevisionIs(KEY, self.revision) in compares
        assert change.key == KEY
        assert not isinstance(change, Delete)
        record = RECORD.decode(KEY, change.value)
        held = self.view.partitions[NAME]
        assert broken_rule(held.document, record) is None
        return record

    def settle(self, outcome: Outcome, *found: KeyValue) -> None:
        (proposal,) = self.batches.waiting
        self.batches.waiting.clear()
        proposal.done(Settled(outcome, self.revision, found))

    def sent(self) -> list[Any]:
        effects, self.elections.out = self.elections.out, []
        return effects


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_the_preferred_replica_stands_at_once_without_dead_members(desk: Desk) -> None:
    desk.lose(1)
    assert desk.asked(0) == PartitionRecord(7, 6, LeaderId(2, 21, 102), (B, C), 2, (1, 2, 3))


def test_a_new_partition_waits_longer_for_the_preferred_node(desk: Desk) -> None:
    """Its files are being made there: who is done first would lead for seconds, then hand over."""
    desk.revision = 2  # of its creation: 3
    desk.set_record(VACANT)
    assert desk.asked(FIRST_ELECTION_STEP_NS - 1) is None
    assert desk.asked(FIRST_ELECTION_STEP_NS) is not None


def test_a_new_partition_does_not_wait_for_a_stopping_node(desk: Desk) -> None:
    desk.elections.leavers.add(1)
    desk.revision = 2
    desk.set_record(VACANT)
    assert desk.asked(0) is not None


def test_the_set_does_not_fall_below_its_minimum(desk: Desk) -> None:
    """And who reaches too few to commit lets others go first."""
    desk.lose(1)
    desk.failure_detector.unlinked(3)
    desk.set_record(LED_BY_A)
    del desk.elections.vacancies[NAME]
    desk.elections.consider(NAME)
    assert desk.asked(LEADERSHIP_TAKEN_NS - 1) is None
    record = desk.asked(LEADERSHIP_TAKEN_NS)
    assert record is not None
    assert len(record.members) == 2
    assert B in record.members


def test_the_last_member_stands_at_once(desk: Desk) -> None:
    """The others are gone, or refuse connections: none of them would do better."""
    desk.failure_detector.unlinked(3)
    for witness in (1, 2):
        desk.failure_detector.refused(witness, 3, 31, 0)
    desk.lose(1)
    assert desk.asked(0) is not None


def test_a_restarted_leader_may_stand_again() -> None:
    desk = Desk(own=1, record=LED_BY_A._replace(leader=LeaderId(1, 10, 101)))
    record = desk.asked(0)
    assert record is not None
    assert record.leader == LeaderId(1, 11, 101)


def test_an_unreachable_restarted_leader_may_not_stand(desk: Desk) -> None:
    desk.failure_detector.unlinked(1)
    desk.elections.node_changed(1)
    assert desk.asked(10 * LEADERSHIP_TAKEN_NS) is None
    desk.failure_detector.linked(1, 11)
    desk.elections.node_changed(1)
    assert desk.asked(11 * LEADERSHIP_TAKEN_NS - 1) is None
    desk.elections.in_force(NAME, 5)
    assert desk.asked(20 * LEADERSHIP_TAKEN_NS) is None


def test_refused_connections_elect_and_remove_the_key_of_the_node(desk: Desk) -> None:
    desk.failure_detector.unlinked(1)
    desk.failure_detector.refused(3, 1, 11, 0)
    desk.failure_detector.refused(2, 1, 11, 0)
    desk.elections.node_changed(1)
    assert desk.asked(0) is not None
    (proposal,) = desk.batches.waiting
    assert proposal.besides == (Delete("nodes/1"),)
    assert CreatedIs("nodes/1", 4) in proposal.compares


def test_an_ineligible_replica_does_not_stand() -> None:
    for local in (
        Local(102, True, True, EXTENT, False),  # it is stopped
        Local(999, False, True, EXTENT, False),  # another replica than the member
        Local(102, False, True, EXTENT, True),  # it leads already
    ):
        desk = Desk(record=VACANT)
        desk.local = local
        assert desk.asked(10 * SETTLED_NS) is None


def test_an_election_with_an_unknown_outcome_is_repeated() -> None:
    desk = Desk(record=VACANT)
    assert desk.asked(ELECTION_STEP_NS) is not None
    desk.settle(Outcome.UNKNOWN)
    assert desk.asked(ELECTION_STEP_NS + ELECTION_RETRY_NS - 1) is None
    assert desk.asked(ELECTION_STEP_NS + ELECTION_RETRY_NS) is not None


def test_a_candidacy_is_logged_once_a_vacancy(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "penstock")
    desk = Desk(record=VACANT)
    for second in range(1, 10):
        assert desk.asked(second * SECOND) is not None
        desk.settle(Outcome.UNKNOWN)
    assert caplog.text.count("orders/0: this node asks to lead it: its leader resigned") == 1


def test_a_refusal_that_shows_an_older_record_freezes() -> None:
    desk = Desk(record=VACANT)
    assert desk.asked(ELECTION_STEP_NS) is not None
    older = RECORD.encode(VACANT._replace(epoch=4))
    desk.settle(Outcome.REFUSED, KeyValue(KEY, older, 30, 3))
    assert "epoch 5 is remembered" in desk.view.refusal(NAME)
    assert desk.asked(SETTLED_NS) is None


# --- where nobody is intact ---


def suspects(own: int) -> Desk:
    desk = Desk(own, VACANT, waits=False)
    for node in (1, 2, 3):
        desk.known(node, lost=2)
    return desk


def report(member: Member, end: int) -> MemberReport:
    return MemberReport(member, 2, Extent(0, end, ((5, 0),)))


def test_candidates_exchange_extents_and_the_longest_log_stands() -> None:
    desk = suspects(2)
    assert desk.asked(ELECTION_STEP_NS) is None
    sent = desk.sent()
    assert [(node, one.epoch) for node, one in sent] == [(1, 5), (3, 5)]
    assert (sent[0][1].entry, sent[0][1].extent) == (B, EXTENT)
    desk.elections.reported(1, NAME, 5, report(A, 8))
    assert desk.asked(ELECTION_STEP_NS) is None, "node 3 is silent"
    desk.elections.reported(3, NAME, 4, report(C, 8))
    assert desk.asked(ELECTION_STEP_NS) is None, "of an older epoch"
    desk.elections.reported(3, NAME, 5, report(C, 8))
    record = desk.asked(ELECTION_STEP_NS)
    assert record is not None
    assert record.leader == LeaderId(2, 21, 102)
    assert record.members == (A, B, C), "nobody is left out"
