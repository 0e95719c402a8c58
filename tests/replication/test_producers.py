"""What a publish of an idempotent producer is, by what is committed and what is not yet."""

import pytest

from cases import each
from penstock.errors import SequenceGap
from penstock.replication.producers import Known, ProducerReplication, Stamped, is_new

KNOWN = Known(3, 10, 0)  # committed: 0 to 9 of epoch 3
COMMITTED, PENDING = (3, 10), (3, 14)  # 10 to 13 are above the committed end


@each(
    ("last", "sequence", "count", "new", "stored"),
    [
        ((3, 0), 0, 5, True, True),
        (COMMITTED, 10, 1, True, False),
        (COMMITTED, 9, 1, False, True),
        (COMMITTED, 0, 10, False, True),
        (PENDING, 14, 1, True, False),
        (PENDING, 13, 1, False, False),
        (PENDING, 10, 4, False, False),
        (PENDING, 8, 4, False, False),  # safe when the last of them is
        (PENDING, 8, 2, False, True),
    ],
)
def test_verdicts_on_a_publish(
    last: tuple[int, int], sequence: int, count: int, new: bool, stored: bool
) -> None:
    assert is_new(last, 3, sequence, count) is new
    assert KNOWN.covers(3, sequence + count) is stored


@each(
    ("last", "sequence", "count", "expected"),
    [((3, 0), 1, 1, 0), (COMMITTED, 11, 1, 10), (COMMITTED, 9, 2, 10), (PENDING, 13, 2, 14)],
)
def test_a_gap_names_what_is_expected(
    last: tuple[int, int], sequence: int, count: int, expected: int
) -> None:
    with pytest.raises(SequenceGap) as gap:
        is_new(last, 3, sequence, count)
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
