"""What a node may conclude from silence."""

from cases import each
from penstock.cluster.documents import NodeDocument
from penstock.cluster.failure_detector import CorruptReplicas, FailureDetector
from penstock.cluster.keys import PartitionName
from penstock.cluster.membership import Readmission
from penstock.cluster.view import Versioned, View
from penstock.limits import (
    ABSENCE_GRACE_NS,
    KEYLESS_NS,
    NODE_LEASE_NS,
    READMISSION_DOUBLINGS_MAX,
    READMISSION_FORGET_NS,
    READMISSION_NS,
    REFUSAL_NS,
    REFUSAL_PAUSE_NS,
    SECOND,
)
from penstock.replication.record import LeaderId, Member, PartitionRecord

SETTLED_NS = NODE_LEASE_NS + ABSENCE_GRACE_NS


def alive(view: View, number: int, incarnation: int) -> None:
    view.nodes[number] = Versioned(NodeDocument(incarnation, "h", 1, 2, "h", 3, "", "", 0, 0), 5, 5)


def test_a_missing_key_is_no_failure_while_the_link_lives() -> None:
    failure_detector = FailureDetector(1, View())
    failure_detector.followed(0)
    failure_detector.linked(2, 20)
    assert failure_detector.why_gone(2, 20, SETTLED_NS) == ""
    failure_detector.unlinked(2)
    assert "its key is gone" in failure_detector.why_gone(2, 20, SETTLED_NS)


def test_a_node_that_stays_without_a_key_is_cut_off_from_the_coordinator() -> None:
    failure_detector = FailureDetector(1, View())
    failure_detector.followed(0)
    failure_detector.linked(2, 20)
    failure_detector.key_changed(2, False, SETTLED_NS)
    late_ns = SETTLED_NS + KEYLESS_NS
    assert failure_detector.why_gone(2, 20, late_ns - 1) == ""
    assert failure_detector.why_gone(2, 20, late_ns) == "node 2 does not reach etcd"
    failure_detector.away()  # so may all others be
    assert failure_detector.why_gone(2, 20, late_ns) == ""
    failure_detector.followed(late_ns)
    failure_detector.key_changed(2, True, late_ns)
    assert failure_detector.why_gone(2, 20, late_ns + SETTLED_NS + KEYLESS_NS) == ""


def test_a_broken_link_is_no_failure_while_the_key_is_there() -> None:
    failure_detector = FailureDetector(1, View())
    alive(failure_detector.view, 2, 20)
    failure_detector.followed(0)
    assert failure_detector.why_gone(2, 20, SETTLED_NS) == ""


def test_a_refused_connection_needs_two_witnesses_of_whom_one_is_this_node() -> None:
    failure_detector = FailureDetector(1, View())
    alive(failure_detector.view, 2, 20)
    failure_detector.refused(3, 2, 20, 0)
    failure_detector.refused(4, 2, 20, 0)
    assert failure_detector.why_gone(2, 20, 0) == ""
    failure_detector.refused(1, 2, 20, 0)
    assert failure_detector.why_gone(2, 20, 0) == "node 2 refuses connections"
    assert failure_detector.why_gone(2, 21, 0) == "node 2 has started again"


def test_witnesses_of_different_times_do_not_count_together() -> None:
    failure_detector = FailureDetector(1, View())
    alive(failure_detector.view, 2, 20)
    failure_detector.refused(3, 2, 20, 0)
    failure_detector.refused(1, 2, 20, REFUSAL_NS + 1)
    assert failure_detector.why_gone(2, 20, REFUSAL_NS + 1) == ""


def test_refusals_of_an_incarnation_count_once_in_a_while() -> None:
    failure_detector = FailureDetector(1, View())
    alive(failure_detector.view, 2, 20)

    def refuse(now_ns: int, life: int = 20) -> str:
        failure_detector.refused(1, 2, life, now_ns)
        failure_detector.refused(3, 2, life, now_ns)
        return failure_detector.why_gone(2, life, now_ns)

    assert refuse(0) != ""
    failure_detector.linked(2, 20)  # it lives after all
    failure_detector.unlinked(2)
    assert refuse(SECOND) == ""
    assert refuse(REFUSAL_PAUSE_NS) != ""
    alive(failure_detector.view, 2, 21)
    failure_detector.linked(2, 21)  # so the life before was over indeed
    failure_detector.unlinked(2)
    assert refuse(REFUSAL_PAUSE_NS + SECOND, 21) == "node 2 refuses connections"


# --- when who was dropped comes back ---


def test_a_first_drop_for_a_broken_link_costs_no_waiting() -> None:
    """It is one drop, from whatever number of partitions, and whenever their records can change."""
    readmission = Readmission()
    for partition in range(50):
        readmission.dropped(2, False, partition)
    assert readmission.held_off == set()
    readmission.linked(2, 10 * SECOND)
    readmission.dropped(2, False, 20 * SECOND)
    assert readmission.held_off == {2}


def test_each_drop_doubles_the_time_of_steady_links() -> None:
    readmission = Readmission()
    now_ns = 0
    for doublings in (0, 1, 2, *range(3, READMISSION_DOUBLINGS_MAX + 3)):
        readmission.dropped(2, True, now_ns)
        hold_ns = READMISSION_NS << min(doublings, READMISSION_DOUBLINGS_MAX)
        assert readmission.admitted(now_ns + hold_ns - 1) == []
        assert readmission.left_ns(2, now_ns + hold_ns - 1) == 1
        assert readmission.admitted(now_ns + hold_ns) == [2]
        assert readmission.held_off == set()
        now_ns += hold_ns


def test_the_time_begins_again_with_the_link() -> None:
    readmission = Readmission()
    readmission.dropped(2, True, 0)
    readmission.unlinked(2)
    assert readmission.admitted(100 * SECOND) == []
    readmission.linked(2, 100 * SECOND)
    assert readmission.admitted(100 * SECOND + READMISSION_NS - 1) == []
    assert readmission.admitted(100 * SECOND + READMISSION_NS) == [2]


def test_after_an_hour_it_is_short_again() -> None:
    readmission = Readmission()
    now_ns = 0
    for _ in range(3):
        readmission.dropped(2, True, now_ns)
        now_ns += 100 * SECOND
        assert readmission.admitted(now_ns) == [2]
    now_ns += READMISSION_FORGET_NS
    readmission.dropped(2, True, now_ns)
    assert readmission.admitted(now_ns + READMISSION_NS) == [2]


# --- whose log is corrupt, and who should lead instead ---


ORDERS, OTHER = PartitionName("orders", 0), PartitionName("other", 0)
MEMBERS = (Member(1, 101, 1), Member(2, 102, 1), Member(3, 103, 1))
RECORD = PartitionRecord(7, 5, LeaderId(1, 11, 101), MEMBERS, 2, (1, 3, 2))


@each(
    ("here", "reported", "reached", "successor"),
    [
        (OTHER, {}, (2, 3), None),  # an intact one waits for none
        (ORDERS, {}, (2, 3), 3),  # which is preferred
        (ORDERS, {}, (2,), 2),
        (ORDERS, {}, (9,), None),  # it is no member
        (ORDERS, {}, (), None),
        (ORDERS, {3: (ORDERS,), 2: (OTHER,)}, (2, 3), 2),
        (ORDERS, {3: (ORDERS,), 2: (OTHER, ORDERS)}, (2, 3), None),
    ],
)
def test_a_corrupt_leader_gives_way_to_an_intact_member(
    here: PartitionName,
    reported: dict[int, tuple[PartitionName, ...]],
    reached: tuple[int, ...],
    successor: int | None,
) -> None:
    corrupt_replicas = CorruptReplicas(own=1)
    corrupt_replicas.corrupt = frozenset({here})
    for node, names in reported.items():
        corrupt_replicas.reported(node, names)
    assert corrupt_replicas.successor(ORDERS, RECORD, reached) == successor


def test_no_leadership_is_given_to_a_corrupt_replica() -> None:
    corrupt_replicas = CorruptReplicas(own=1)
    corrupt_replicas.reported(3, (ORDERS,))
    assert not corrupt_replicas.may_be_given(ORDERS, 3)
    assert corrupt_replicas.may_be_given(OTHER, 3)
    corrupt_replicas.reported(3, ())  # it was repaired
    assert corrupt_replicas.may_be_given(ORDERS, 3)
    corrupt_replicas.reported(3, (ORDERS,))
    corrupt_replicas.unlinked(3)
    assert corrupt_replicas.may_be_given(ORDERS, 3)
