"""A commit's list in parts: in order, again as often as its sender likes, bounded."""

from __future__ import annotations

import pytest

from penstock import limits
from penstock.broker.commits.parts import CommitParts
from penstock.broker.commits.stageapps import Ref
from penstock.errors import CommitGap

X, Y, Z = (Ref("t", name) for name in "xyz")


def test_parts_come_in_order() -> None:
    parts = CommitParts()
    assert parts.add("app", 1, 0, [X]) == [X]
    assert parts.add("app", 1, 1, [Y]) == [X, Y]
    assert parts.add("app", 1, 1, [Z]) == [X, Z]  # the answer was lost, and it was sent again
    with pytest.raises(CommitGap) as gap:
        parts.add("app", 1, 3, [Y])
    assert gap.value.expected == 2
    assert parts.add("app", 1, 0, [Z]) == [Z]
    with pytest.raises(CommitGap):
        parts.add("app", 2, 1, [Y])


def test_what_is_done_is_forgotten() -> None:
    parts = CommitParts()
    parts.add("app", 1, 0, [X])
    parts.forget("app", 1)
    assert parts.count == 0
    with pytest.raises(CommitGap):
        parts.add("app", 1, 1, [Y])


def test_the_oldest_list_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMIT_GATHERED_MAX", 3)
    parts = CommitParts()
    parts.add("one", 1, 0, [X, Y])
    parts.add("two", 1, 0, [X, Y])
    assert parts.count == 2
    with pytest.raises(CommitGap):
        parts.add("one", 1, 1, [Z])
