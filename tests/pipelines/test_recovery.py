"""Where each log goes on by what a table of several nsqds has, and where that is a guess."""

from __future__ import annotations

import pytest

from cases import each
from penstock.errors import DataLost
from penstock.pipelines.lakelogs import TopicLog
from penstock.pipelines.recovery import Reached, following
from penstock.spark.offsets import Log

A, B = Log("orders", "one", 0, "a:1"), Log("orders", "two", 0, "b:1")
BOTH: Reached = {("orders", "a:1", 0): 4, ("orders", "b:1", 0): 7}


def known(*logs: str) -> dict[str, TopicLog]:
    return {"orders": TopicLog(logs, "owner")}


def test_each_log_goes_on_behind_its_own_rows() -> None:
    new = Log("orders", "three", 0, "c:1")
    other = Log("bills", "four", 0, "a:1")
    found = following(BOTH, known("one@a:1", "two@b:1"), [A, B, new, other], ())
    assert found == {A: 5, B: 8}


def test_rows_from_before_there_were_several() -> None:
    reached = {("orders", "", 0): 9, **BOTH}
    assert following(reached, known("one", "one@a:1", "two@b:1"), [A, B], ()) == {A: 10, B: 8}


def test_an_nsqd_that_moved_is_known_by_its_log() -> None:
    moved = B._replace(broker="c:1")
    assert following(BOTH, known("one@a:1", "two@b:1"), [A, moved], ()) == {A: 5, moved: 8}
    twice = {**BOTH, ("orders", "c:1", 0): 12}
    notes = known("one@a:1", "two@b:1", "two@c:1")
    assert following(twice, notes, [A, moved], ()) == {A: 5, moved: 13}


def test_what_is_gone_for_good_is_left_out() -> None:
    notes = known("one@a:1", "two@b:1")
    assert following(BOTH, notes, [A], ("b:1",)) == {A: 5}
    with pytest.raises(DataLost, match=r"nsqd b:1 has messages of it .* is nowhere now"):
        following(BOTH, notes, [A], ())


@each(
    ("reached", "logs", "said"),
    [
        (BOTH, ("one@a:1", "two"), "does not say which log"),  # two: of an earlier build
        (BOTH, ("one", "two", "one@a:1"), "does not say which log"),
        (BOTH, ("old", "one@a:1", "two@b:1"), "does not say which log"),  # whose old was is unknown
        ({("orders", "", 0): 9}, ("one", "old"), "does not say which log"),
        (BOTH, ("one@a:1", "two@b:1", "old@b:1"), "does not say which log"),  # made again, let in
        (BOTH, ("one@a:1", "old@b:1"), "deleted and made again"),
    ],
)
def test_a_guess_is_refused(reached: Reached, logs: tuple[str, ...], said: str) -> None:
    with pytest.raises(DataLost, match=said):
        following(reached, known(*logs), [A, B], ())
