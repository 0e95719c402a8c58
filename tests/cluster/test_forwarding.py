"""One publish on its way to another node, attempt by attempt."""

from __future__ import annotations

from penstock.cluster.forwarding import Forward, Verdict, partition_of_producer
from penstock.replica.leading import Outcome

DEADLINE_NS = 100


def test_a_refused_one_is_tried_elsewhere() -> None:
    forward = Forward(1, DEADLINE_NS)
    forward.ended(Outcome.REFUSED, [2, 0], 10)
    assert (forward.partition, forward.verdict) == (2, None)
    forward.ended(Outcome.DONE, [], 20)
    assert forward.verdict is Verdict.OK


def test_one_whose_outcome_is_unknown_stays_where_it_may_be_stored() -> None:
    forward = Forward(1, DEADLINE_NS)
    forward.ended(Outcome.UNKNOWN, [2, 0], 10)
    assert forward.partition == 1
    forward.ended(Outcome.REFUSED, [2, 0], 20)
    assert forward.partition == 1
    forward.ended(Outcome.REFUSED, [2, 0], DEADLINE_NS)
    assert forward.verdict is Verdict.UNKNOWN


def test_a_refusal_at_the_deadline() -> None:
    forward = Forward(1, DEADLINE_NS)
    forward.ended(Outcome.REFUSED, [], DEADLINE_NS)
    assert forward.verdict is Verdict.REFUSED


def test_a_named_partition_is_kept() -> None:
    forward = Forward(1, DEADLINE_NS, producer_id=7, hash_partitions=3, is_named=True)
    forward.ended(Outcome.REFUSED, [2, 0], 10)
    assert forward.partition == 1


def test_a_stamp_picks_the_partition_for_good() -> None:
    expected = partition_of_producer(7, 3)
    for preferred in range(3):
        forward = Forward(preferred, DEADLINE_NS, producer_id=7, hash_partitions=3)
        forward.ended(Outcome.REFUSED, [0, 1, 2], 10)
        assert forward.partition == expected


def test_producers_are_spread() -> None:
    assert {partition_of_producer(producer, 8) for producer in range(200)} == set(range(8))
