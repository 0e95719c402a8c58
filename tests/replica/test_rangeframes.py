"""What an answer without batches says."""

from __future__ import annotations

from penstock.replica.matching import NO_BATCH
from penstock.replica.rangeframes import SendRange, lacking


def test_a_replica_says_up_to_where_it_lacks_a_range() -> None:
    assert SendRange(1, 7, lacking(12), b"").lacks_until == 12


def test_an_answer_may_leave_it_open() -> None:
    assert SendRange(1, 7, NO_BATCH, b"").lacks_until == 0


def test_batches_say_nothing_of_the_kind() -> None:
    assert SendRange(1, 7, lacking(12), b"a batch").lacks_until == 0
