"""What queues share of one log, each in its own order."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from penstock.takeover.alignment import Alignment, Run, Segment


def laid_out(size: int) -> Alignment:
    alignment = Alignment()
    alignment.add(0, size, [], [(0, size)])
    return alignment


def test_runs_in_the_order_of_the_log_are_shared_whole() -> None:
    runs = [Run(0, 0, 2, 3), Run(3, 0, 7, 2)]
    assert laid_out(10).choose(runs, 5) == runs


def test_of_runs_that_cross_the_longer_one_is_shared() -> None:
    short, long = Run(0, 0, 7, 2), Run(2, 0, 2, 3)
    assert laid_out(10).choose([short, long], 5) == [long]


def test_no_more_runs_than_allowed_are_shared() -> None:
    runs = [Run(0, 0, 0, 2), Run(3, 0, 3, 4), Run(9, 0, 8, 1)]
    assert laid_out(10).choose(runs, 1) == [runs[1]]


def test_what_is_stored_again_stands_in_front_of_the_run_that_follows_it() -> None:
    alignment = laid_out(10)
    shared = [Run(1, 0, 4, 3), Run(5, 0, 8, 1)]
    alignment.add(1, 8, shared, [(0, 1), (4, 5), (6, 8)])
    assert alignment.segments == [
        Segment(0, 0, 4),
        Segment(1, 0, 1),
        Segment(0, 4, 8),
        Segment(1, 4, 5),
        Segment(0, 8, 10),
        Segment(1, 6, 8),
    ]
    # a run over several segments is cut where they end
    assert alignment.choose([Run(0, 0, 2, 4)], 5) == [Run(0, 0, 2, 2), Run(2, 0, 4, 2)]


@given(st.permutations(range(8)), st.lists(st.integers(1, 5), min_size=8, max_size=8))
def test_the_heaviest_selection_is_found(order: list[int], lengths: list[int]) -> None:
    starts = [sum(lengths[:number]) for number in range(9)]
    runs, at = [], 0
    for number in order:
        runs.append(Run(at, 0, starts[number], lengths[number]))
        at += lengths[number]
    chosen = laid_out(starts[8]).choose(runs, 8)
    rising = [
        some
        for count in range(9)
        for some in combinations(runs, count)
        if list(some) == sorted(some, key=lambda run: run.first)
    ]
    assert tuple(chosen) in rising
    weights = [sum(run.length for run in some) for some in rising]
    assert sum(run.length for run in chosen) == max(weights)
