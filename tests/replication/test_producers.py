"""What a publish of an idempotent producer is, by what is committed and what is not yet."""

import pytest

from cases import each
from penstock.errors import SequenceGap
from penstock.replication.producers import (
    Known,
    Newest,
    ProducerReplication,
    SequenceVerdict,
    Stamped,
    judge,
)

KNOWN = Known(3, 10, 0)  # committed: 0 to 9 of epoch 3
NEWEST = Newest(3, 14)  # above the committed end: 10 to 13


@each(
    ("known", "newest", "sequence", "count", "verdict"),
    [
        (None, None, 0, 5, SequenceVerdict.NEW),
        (KNOWN, None, 10, 1, SequenceVerdict.NEW),
        (KNOWN, None, 9, 1, SequenceVerdict.STORED),
        (KNOWN, None, 0, 10, SequenceVerdict.STORED),
        (KNOWN, NEWEST, 14, 1, SequenceVerdict.NEW),
        (KNOWN, NEWEST, 13, 1, SequenceVerdict.PENDING),
        (KNOWN, NEWEST, 10, 4, SequenceVerdict.PENDING),
        (KNOWN, NEWEST, 8, 4, SequenceVerdict.PENDING),  # safe when the last of them is
        (KNOWN, NEWEST, 8, 2, SequenceVerdict.STORED),
        (None, NEWEST, 10, 1, SequenceVerdict.PENDING),
    ],
)
def test_verdicts_on_a_publish(
    known: Known | None, newest: Newest | None, sequence: int, count: int, verdict: SequenceVerdict
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


def stamped(end: int, next_sequence: int, producer: int = 7) -> Stamped:
    return Stamped(end, producer, 0, next_sequence, end)


def test_the_table_is_as_of_the_committed_end() -> None:
    machine = ProducerReplication(100, {})
    machine.wrote(stamped(101, 1))
    machine.wrote(stamped(103, 3))
    assert machine.table == {}
    machine.committed(102)
    assert (machine.table, machine.end) == ({7: Known(0, 1, 101)}, 102)
    machine.committed(103)
    assert machine.table == {7: Known(0, 3, 103)}
    machine.committed(90)  # what an older frame says
    assert machine.end == 103


def test_a_cut_takes_what_was_above_it() -> None:
    machine = ProducerReplication(100, {})
    machine.wrote(stamped(101, 1))
    machine.wrote(stamped(103, 3))
    assert machine.cut(101)
    machine.committed(110)
    assert machine.table == {7: Known(0, 1, 101)}
    assert machine.cut(110)
    assert not machine.cut(109)
