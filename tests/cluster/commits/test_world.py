"""Commits over several leaders at random: promises hold, and a rule that is gone is missed."""

from __future__ import annotations

import pytest

from cases import each
from penstock.cluster.commits.committer import Verdict
from tests.cluster.commits.world import Focus, play

HISTORIES = 250  # of each block


@each("first", range(0, 4 * HISTORIES, HISTORIES))
def test_every_promise_holds(first: int) -> None:
    worlds = [play(seed) for seed in range(first, first + HISTORIES)]
    # A run in which nothing happens shows nothing.
    assert sum(len(world.decided) for world in worlds) > HISTORIES
    assert sum(world.fail_overs_in_a_part for world in worlds) > HISTORIES // 20
    for verdict in Verdict:
        assert sum(world.answers[verdict] for world in worlds) > HISTORIES // 2


def test_the_same_seed_is_the_same_history() -> None:
    one, two = play(4711), play(4711)
    assert one.answers == two.answers
    assert one.decided == two.decided
    assert [p.own.log for p in one.partitions.values()] == [
        p.own.log for p in two.partitions.values()
    ]


FOCUSES: tuple[Focus, ...] = (
    (("fail_over", 60),),
    (("make_again", 8),),
    (("give_up", 20), ("lose", 15)),
    (("publish", 60),),
)


@pytest.mark.long
def test_every_promise_holds_where_something_happens_often() -> None:
    for focus in FOCUSES:
        for seed in range(400):
            play(seed, focus)
