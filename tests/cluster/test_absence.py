"""What a node may conclude from silence."""

from __future__ import annotations

from penstock.cluster.absence import Absence
from penstock.cluster.documents import ACTIVE, REMOVED, Membership, Node
from penstock.cluster.view import Held, View
from penstock.limits import ABSENCE_GRACE_NS, NODE_LEASE_NS, REFUSAL_NS, REFUSAL_PAUSE_NS, SECOND

SETTLED_NS = NODE_LEASE_NS + ABSENCE_GRACE_NS


def alive(view: View, number: int, life: int) -> None:
    view.nodes[number] = Held(Node(life, "h", 1, 2, "h", 3, "", "", 0, 0), 5, 5)


def known(view: View, number: int, state: str = ACTIVE) -> None:
    view.memberships[number] = Held(Membership(1, 1, "", 0, 1, 0, state), 5, 5)


def test_another_life_is_the_end_of_this_one() -> None:
    absence = Absence(1, View())
    alive(absence.view, 2, 20)
    absence.linked(2, 20)
    assert absence.why_gone(2, 20, 0) == ""
    assert absence.why_gone(2, 19, 0) == "node 2 has started again"


def test_a_key_that_is_gone_says_nothing_while_there_is_a_link() -> None:
    absence = Absence(1, View())
    absence.followed(0)
    absence.linked(2, 20)
    assert absence.why_gone(2, 20, SETTLED_NS) == ""
    absence.unlinked(2)
    assert "its key is gone" in absence.why_gone(2, 20, SETTLED_NS)


def test_a_link_that_broke_says_nothing_while_the_key_is_there() -> None:
    absence = Absence(1, View())
    alive(absence.view, 2, 20)
    absence.followed(0)
    assert absence.why_gone(2, 20, SETTLED_NS) == ""


def test_a_refused_connection_needs_two_witnesses_of_whom_one_is_this_node() -> None:
    absence = Absence(1, View())
    alive(absence.view, 2, 20)
    absence.refused(3, 2, 20, 0)
    absence.refused(4, 2, 20, 0)
    assert absence.why_gone(2, 20, 0) == ""
    absence.refused(1, 2, 20, 0)
    assert absence.why_gone(2, 20, 0) == "node 2 refuses connections"
    assert absence.why_gone(2, 21, 0) == "node 2 has started again"


def test_witnesses_of_different_times_do_not_count_together() -> None:
    absence = Absence(1, View())
    alive(absence.view, 2, 20)
    absence.refused(3, 2, 20, 0)
    absence.refused(1, 2, 20, REFUSAL_NS + 1)
    assert absence.why_gone(2, 20, REFUSAL_NS + 1) == ""


def test_refusals_of_a_node_count_once_in_a_while() -> None:
    absence = Absence(1, View())
    alive(absence.view, 2, 20)

    def refuse(now_ns: int) -> str:
        absence.refused(1, 2, 20, now_ns)
        absence.refused(3, 2, 20, now_ns)
        return absence.why_gone(2, 20, now_ns)

    assert refuse(0) != ""
    absence.linked(2, 20)  # it lives after all
    absence.unlinked(2)
    assert refuse(SECOND) == ""
    assert refuse(REFUSAL_PAUSE_NS) != ""


def test_many_missing_nodes_are_not_replaced() -> None:
    absence = Absence(0, View())
    for number in range(10):
        known(absence.view, number)
        alive(absence.view, number, 1)
    absence.followed(0)
    assert not absence.may_replace_nodes(SETTLED_NS - 1)
    for number in (1, 2):
        del absence.view.nodes[number]
        assert absence.may_replace_nodes(SETTLED_NS)
    del absence.view.nodes[3]
    assert not absence.may_replace_nodes(SETTLED_NS)
    known(absence.view, 3, REMOVED)
    known(absence.view, 4, REMOVED)
    assert not absence.may_replace_nodes(SETTLED_NS), "two of eight"
    known(absence.view, 2, REMOVED)
    assert absence.may_replace_nodes(SETTLED_NS), "one of seven"


def test_one_missing_node_is_replaced_in_a_small_cluster() -> None:
    absence = Absence(0, View())
    for number in range(3):
        known(absence.view, number)
    alive(absence.view, 1, 1)
    absence.followed(0)
    assert absence.may_replace_nodes(SETTLED_NS)
    del absence.view.nodes[1]
    assert not absence.may_replace_nodes(SETTLED_NS)
