"""The parts of commits at a partition's leader, step by step."""

from __future__ import annotations

from penstock.cluster.commits.marks import Found, Mark, Marked, found_parts, visible_end
from penstock.cluster.commits.partline import (
    CommitsView,
    Decided,
    Done,
    DropPin,
    DropStages,
    KeepPin,
    PartLine,
    Prepared,
    Store,
)
from penstock.cluster.commits.values import Pin

SEVEN = Pin(7, ("s7",), 5, 100, 10)
OPEN = CommitsView(12, (), frozenset({7, 8}))


def new(*pins: Pin, batches: tuple[Marked, ...] = (), committed: int = 100) -> PartLine:
    return PartLine(pins, batches, committed)


def taken(line: PartLine) -> list[object]:
    line.validate()
    out, line.out = line.out, []
    return out


def decided(*pairs: tuple[int, int], revision: int = 20) -> CommitsView:
    return CommitsView(revision, tuple(Decided(*pair) for pair in pairs), frozenset())


def test_the_way_of_a_part() -> None:
    line = new()
    line.seen(OPEN)
    line.prepare(SEVEN)
    assert taken(line) == [KeepPin(SEVEN)]
    line.pinned(7)
    assert taken(line) == [Prepared(7)]
    line.seen(decided((15, 7)))
    assert line.is_storing
    assert taken(line) == [Store(7, ("s7",), 5, 0)]
    line.stored(Mark(7, 0, True), 100, 103)
    assert taken(line) == [Store(7, ("s7",), 5, 3)]
    line.stored(Mark(7, 3, False), 103, 105)
    assert not line.is_storing
    line.committed(103)
    assert line.visible == 100
    assert taken(line) == []
    line.committed(105)
    assert line.visible == 105
    assert taken(line) == [Done(7), DropPin(7)]
    line.asked(7)
    assert taken(line) == []  # it says so once; whoever asks again is answered when the pin is gone
    line.unpinned(7)
    assert taken(line) == [DropStages(("s7",))]
    line.asked(7)
    assert taken(line) == [Done(7)]


def test_prepare_is_answered_again_but_not_before_the_set_has_the_pin() -> None:
    line = new()
    line.prepare(SEVEN)
    line.prepare(SEVEN)
    assert taken(line) == [KeepPin(SEVEN)]
    line.pinned(7)
    line.prepare(SEVEN)
    assert taken(line) == [Prepared(7), Prepared(7)]


def test_an_abandoned_commit_keeps_its_stages_for_the_next_attempt() -> None:
    line = new(SEVEN)
    line.pinned(7)
    assert line.is_pinned("s7")
    line.seen(CommitsView(12, (), frozenset()))
    assert taken(line) == [Prepared(7), DropPin(7)]
    line.unpinned(7)
    assert taken(line) == []
    assert not line.is_pinned("s7")


def test_a_view_from_before_the_prepare_key_says_nothing() -> None:
    line = new(SEVEN)
    line.pinned(7)
    line.seen(CommitsView(9, (), frozenset()))
    assert taken(line) == [Prepared(7)]


def test_an_older_view_does_not_take_a_decision_back() -> None:
    line = new(SEVEN)
    line.seen(decided((15, 7)))
    line.seen(OPEN)
    assert taken(line) == [Store(7, ("s7",), 5, 0)]


def test_what_is_seen_of_parts() -> None:
    batches = [Marked(Mark(7, 0, True), 10, 12), Marked(Mark(7, 2, False), 12, 15)]
    parts = found_parts(batches)
    assert parts == {7: Found(10, 15, 5, True)}
    ends = [visible_end(committed, parts.values()) for committed in (9, 10, 12, 15, 20)]
    assert ends == [9, 10, 10, 15, 20]
    assert visible_end(12, found_parts(batches[:1]).values()) == 10
