"""Whose log is corrupt, and who should lead instead."""

from __future__ import annotations

from penstock.cluster.keys import PartitionName
from penstock.cluster.soundness import Soundness
from penstock.replica.record import Member, Record, Seat

ORDERS, OTHER = PartitionName("orders", 0), PartitionName("other", 0)
MEMBERS = (Member(1, 101, 1), Member(2, 102, 1), Member(3, 103, 1))
RECORD = Record(7, 5, Seat(1, 11, 101), MEMBERS, 2, (1, 3, 2))


def corrupt_here(*names: PartitionName) -> Soundness:
    soundness = Soundness(own=1)
    soundness.corrupt = frozenset(names)
    return soundness


def test_a_sound_replica_waits_for_none() -> None:
    soundness = corrupt_here(OTHER)
    assert not soundness.should_wait(ORDERS, RECORD, (2, 3))
    assert soundness.heir(ORDERS, RECORD, (2, 3)) is None


def test_a_corrupt_one_gives_way_to_a_sound_member_that_it_reaches() -> None:
    soundness = corrupt_here(ORDERS)
    assert soundness.should_wait(ORDERS, RECORD, (2, 3))
    assert soundness.heir(ORDERS, RECORD, (2, 3)) == 3  # which is preferred
    assert soundness.heir(ORDERS, RECORD, (2,)) == 2
    assert soundness.heir(ORDERS, RECORD, (9,)) is None  # it is no member
    assert not soundness.should_wait(ORDERS, RECORD, ())


def test_not_to_one_that_is_corrupt_as_well() -> None:
    soundness = corrupt_here(ORDERS)
    soundness.heard(3, (ORDERS,))
    soundness.heard(2, (OTHER,))
    assert soundness.heir(ORDERS, RECORD, (2, 3)) == 2
    soundness.heard(2, (OTHER, ORDERS))
    assert soundness.heir(ORDERS, RECORD, (2, 3)) is None
    assert not soundness.should_wait(ORDERS, RECORD, (2, 3))


def test_an_office_is_not_given_to_one_that_says_that_it_is_corrupt() -> None:
    soundness = corrupt_here()
    soundness.heard(3, (ORDERS,))
    assert not soundness.may_be_given(ORDERS, 3)
    assert soundness.may_be_given(OTHER, 3)
    soundness.heard(3, ())  # it was repaired
    assert soundness.may_be_given(ORDERS, 3)


def test_what_a_node_has_said_ends_with_its_link() -> None:
    soundness = corrupt_here()
    soundness.heard(3, (ORDERS,))
    soundness.unlinked(3)
    assert soundness.may_be_given(ORDERS, 3)
