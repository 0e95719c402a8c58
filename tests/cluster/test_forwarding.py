"""One publish on its way to another node, attempt by attempt."""

from __future__ import annotations

import random

from penstock.cluster.forwarding import Forward, Verdict, partition_of_producer
from penstock.replica.leading import Outcome
from penstock.replica.producerline import Known, judge
from penstock.replica.producerline import Verdict as Judged

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


class Topic:
    """Partitions with the real table's judgement, and attempts whose answers get lost."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.tables: list[dict[int, Known]] = [{} for _ in range(3)]
        self.stored: list[tuple[int, int]] = []  # producer, sequence

    def carry(self, forward: Forward, producer_id: int, sequence: int) -> Verdict:
        for now_ns in range(3):
            others = [one for one in range(3) if one != forward.partition]
            self.dice.shuffle(others)
            forward.ended(self._attempt(forward.partition, producer_id, sequence), others, now_ns)
            if forward.verdict is not None:
                return forward.verdict
        raise AssertionError("no answer at the deadline")

    def _attempt(self, partition: int, producer_id: int, sequence: int) -> Outcome:
        throw = self.dice.random()
        if throw < 0.25:
            return Outcome.REFUSED
        if throw < 0.4:
            return Outcome.UNKNOWN  # it never arrived
        table = self.tables[partition]
        if judge(table.get(producer_id), None, 0, sequence, 1) is Judged.NEW:  # or SequenceGap
            table[producer_id] = Known(0, sequence + 1, 0)
            self.stored.append((producer_id, sequence))
        return Outcome.UNKNOWN if throw < 0.6 else Outcome.DONE


def test_what_is_handed_on_stands_once_and_what_was_refused_not_at_all() -> None:
    for seed in range(300):
        topic, sequences = Topic(seed), [0, 0]
        for number in range(30):
            preferred = topic.dice.randrange(3)
            if topic.dice.random() < 0.5:  # its publisher cannot say that something is a repeat
                verdict = topic.carry(Forward(preferred, 2), 1000 + number, 0)
                count = topic.stored.count((1000 + number, 0))
                assert (verdict, count) not in ((Verdict.OK, 0), (Verdict.REFUSED, 1)), seed
                assert count <= 1, seed
                continue
            producer = topic.dice.randrange(2)
            forward = Forward(preferred, 2, producer + 1, 3)
            while topic.carry(forward, producer + 1, sequences[producer]) is not Verdict.OK:
                forward = Forward(topic.dice.randrange(3), 2, producer + 1, 3)
            assert topic.stored.count((producer + 1, sequences[producer])) == 1, seed
            sequences[producer] += 1
