"""How old messages are at least, by when their offsets were seen."""

from __future__ import annotations

from penstock import limits
from penstock.broker.agemarks import AgeMarks

AGE = 160 * limits.SECOND
STEP = AGE // limits.AGE_MARKS


def test_marks_are_a_part_of_the_age_apart_and_bounded() -> None:
    marks = AgeMarks()
    noted = [marks.note(end, end * STEP // 4, AGE) for end in range(1, 400)]
    assert noted[:9] == [True, False, False, False, True, False, False, False, True]
    marks.old_end(400 * STEP // 4, AGE)
    assert len(marks.marks) <= limits.AGE_MARKS + 2


def test_nothing_new_is_no_mark() -> None:
    marks = AgeMarks()
    assert marks.note(5, 0, AGE)
    assert not marks.note(5, AGE, AGE)


def test_what_was_seen_long_enough_ago_is_too_old() -> None:
    marks = AgeMarks([(10, 0), (20, STEP)])
    assert marks.old_end(AGE - 1, AGE) == 0
    assert [marks.old_end(AGE, AGE) for _ in range(2)] == [10, 10]
    assert marks.old_end(10 * AGE, AGE) == 20
    assert marks.marks == [(20, STEP)]


def test_marks_of_a_clock_that_was_ahead_are_not_old() -> None:
    marks = AgeMarks([(10, 1000 * AGE)])
    marks.note(10, 0, AGE)
    assert marks.marks == [(10, 0)]
    assert marks.old_end(AGE, AGE) == 10
