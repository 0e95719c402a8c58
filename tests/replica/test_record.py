"""Changes of a partition's record: the legal ones, and what is found in others."""

from __future__ import annotations

from cases import each
from penstock.replica.record import (
    Member,
    Record,
    Seat,
    arranged,
    broken_rule,
    elected,
    regrouped,
    resigned,
    successor,
    superfluous,
    touched,
)

A, B, C = Member(1, 101, 1), Member(2, 102, 1), Member(3, 103, 1)
SEAT_A, SEAT_B = Seat(1, 11, 101), Seat(2, 12, 102)
RECORD = Record(7, 5, SEAT_A, (A, B), 1, (1, 2, 3))


@each(
    "after",
    [
        elected(RECORD, SEAT_B),
        elected(RECORD, SEAT_B, (A,)),
        resigned(RECORD),
        regrouped(RECORD, gone=(B,)),
        regrouped(RECORD, added=(C,)),
        regrouped(RECORD, gone=(B,), added=(C,)),
        touched(RECORD),
        arranged(RECORD, (3, 2, 1), 2),
    ],
)
def test_a_legal_change(after: Record) -> None:
    assert broken_rule(RECORD, after) is None


@each(
    ("after", "rule"),
    [
        (RECORD._replace(identity=8), "another topic's record is in its place"),
        (RECORD._replace(members=()), "0 members where 1 are needed"),
        (RECORD._replace(members=(A, A)), "a node has two places in the set"),
        (arranged(RECORD, (1, 2, 1), 1), "a node is wanted twice"),
        (RECORD._replace(epoch=7), "epoch 7 follows epoch 5"),
        (RECORD._replace(leader=SEAT_B), "another leader in the same epoch"),
        (RECORD._replace(leader=None, members=(A,)), "a change of the set without a leader"),
        (RECORD._replace(members=(B,)), "the leader is no member"),
        (elected(RECORD, SEAT_B)._replace(leader=None), "an election without a leader"),
        (elected(RECORD, SEAT_B)._replace(members=(B, C)), "an election added a member"),
        (elected(RECORD, Seat(3, 13, 103)), "the leader is no member"),
    ],
)
def test_a_change_that_breaks_a_rule(after: Record, rule: str) -> None:
    assert broken_rule(RECORD, after) == rule


def test_a_nodes_newer_entry_takes_the_place_of_the_older() -> None:
    newer = B._replace(generation=2)
    assert regrouped(RECORD, added=(newer,)).members == (A, newer)


def test_who_is_a_member() -> None:
    assert RECORD.member_on(2) == B
    assert RECORD.member_on(3) is None
    assert RECORD.has(2, 102)
    assert not RECORD.has(2, 999)


def test_the_minimum_is_raised_as_far_as_there_are_members() -> None:
    assert arranged(RECORD, (1, 2, 3), 3).members_min == 2
    assert arranged(RECORD, (1,), 1).members_min == 1


def test_members_that_are_not_wanted_are_superfluous() -> None:
    record = regrouped(RECORD, added=(C,))
    assert superfluous(record) == ()
    assert superfluous(record._replace(wanted=(1, 3))) == (2,)
    assert superfluous(record._replace(wanted=(2, 3))) == ()  # the leader goes by handing over
    assert superfluous(record._replace(wanted=(1, 4))) == ()  # one that is wanted is missing
    assert superfluous(resigned(record)._replace(wanted=(1, 3))) == ()


def test_to_whom_the_leader_hands_over() -> None:
    assert successor(RECORD, {1, 2, 3}) is None
    wanted = RECORD._replace(wanted=(3, 2, 1))
    assert successor(wanted, {1, 2, 3}) == 2  # 3 is no member yet
    assert successor(wanted, {1, 3}) is None
    assert successor(RECORD._replace(wanted=(2,)), {2}) == 2
    assert successor(resigned(wanted), {1, 2, 3}) is None
