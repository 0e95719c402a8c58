"""What a publish of an idempotent producer is, by what is committed and what is not yet."""

from __future__ import annotations

import pytest

from cases import each
from penstock.errors import ProducerFenced, SequenceGap
from penstock.replica.producerline import (
    Known,
    Newest,
    ProducerLine,
    Stamped,
    Verdict,
    judge,
)

KNOWN = Known(3, 10, 0)  # committed: 0 to 9 of epoch 3
NEWEST = Newest(3, 14)  # above the committed end: 10 to 13


@each(
    ("known", "newest", "sequence", "count", "verdict"),
    [
        (None, None, 0, 5, Verdict.NEW),
        (KNOWN, None, 10, 1, Verdict.NEW),
        (KNOWN, None, 9, 1, Verdict.STORED),
        (KNOWN, None, 0, 10, Verdict.STORED),
        (KNOWN, NEWEST, 14, 1, Verdict.NEW),
        (KNOWN, NEWEST, 13, 1, Verdict.PENDING),
        (KNOWN, NEWEST, 10, 4, Verdict.PENDING),
        (KNOWN, NEWEST, 8, 4, Verdict.PENDING),  # safe when the last of them is
        (KNOWN, NEWEST, 8, 2, Verdict.STORED),
        (None, NEWEST, 10, 1, Verdict.PENDING),
    ],
)
def test_what_a_publish_is(
    known: Known | None, newest: Newest | None, sequence: int, count: int, verdict: Verdict
) -> None:
    assert judge(known, newest, 3, sequence, count) is verdict


@pytest.mark.parametrize(
    ("known", "newest", "sequence", "count", "expected"),
    [
        (None, None, 1, 1, 0),
        (KNOWN, None, 11, 1, 10),
        (KNOWN, None, 9, 2, 10),
        (KNOWN, NEWEST, 13, 2, 14),
    ],
)
def test_a_gap_names_what_is_expected(
    known: Known | None, newest: Newest | None, sequence: int, count: int, expected: int
) -> None:
    with pytest.raises(SequenceGap) as gap:
        judge(known, newest, 3, sequence, count)
    assert gap.value.expected == expected


def test_a_newer_epoch_begins_at_0_and_ends_the_older_ones() -> None:
    assert judge(KNOWN, NEWEST, 4, 0, 1) is Verdict.NEW
    with pytest.raises(SequenceGap):
        judge(KNOWN, NEWEST, 4, 14, 1)
    for newest in (None, NEWEST):
        with pytest.raises(ProducerFenced) as fenced:
            judge(KNOWN, newest, 2, 10, 1)
        assert fenced.value.epoch == 3
    assert judge(KNOWN, Newest(4, 5), 4, 0, 5) is Verdict.PENDING  # not those of epoch 3


def stamped(end: int, next_sequence: int, producer: int = 7) -> Stamped:
    return Stamped(end, producer, 0, next_sequence, end)


def test_the_table_is_as_of_the_committed_end() -> None:
    line = ProducerLine(100, {})
    line.wrote(stamped(101, 1))
    line.wrote(stamped(103, 3))
    assert (line.table, line.newest(7), line.newest(8)) == ({}, Newest(0, 3), None)
    line.committed(102)
    assert (line.table, line.end) == ({7: Known(0, 1, 101)}, 102)
    line.committed(103)
    assert (line.table, line.newest(7)) == ({7: Known(0, 3, 103)}, None)
    line.committed(90)  # what an older frame says
    assert line.end == 103


def test_a_cut_takes_what_was_above_it() -> None:
    line = ProducerLine(100, {})
    line.wrote(stamped(101, 1))
    line.wrote(stamped(103, 3))
    assert line.cut(101)
    assert line.newest(7) == Newest(0, 1)
    line.committed(110)
    assert line.table == {7: Known(0, 1, 101)}
    assert line.cut(110)
    assert not line.cut(109)


def test_what_was_restored_counts_where_nothing_newer_is_known() -> None:
    line = ProducerLine(100, {})
    line.restored(stamped(90, 5))
    assert line.table == {7: Known(0, 5, 90)}
    line.restored(stamped(80, 3))
    assert line.table == {7: Known(0, 5, 90)}
    line.wrote(stamped(101, 9))
    line.committed(101)
    line.restored(stamped(95, 8))
    assert line.table == {7: Known(0, 9, 101)}


def test_a_leader_takes_the_tail_once() -> None:
    line = ProducerLine(100, {})
    line.wrote(stamped(101, 1))
    assert line.take_tail() == [stamped(101, 1)]
    assert line.take_tail() == []
    line.committed(101)
    assert line.table == {}  # the leader stores it, with its own of the same producer
