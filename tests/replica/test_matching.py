"""The common end of two logs, beside a search through all of their batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.replica.matching import Extent, common_end


def extent(epochs_of_batches: list[int], start: int = 0) -> Extent:
    epochs: list[tuple[int, int]] = []
    for offset, epoch in enumerate(epochs_of_batches, start):
        if not epochs or epochs[-1][0] != epoch:
            epochs.append((epoch, offset))
    return Extent(start, start + len(epochs_of_batches), tuple(epochs))


def test_the_newest_epoch_of_both_decides() -> None:
    leader, follower = extent([1, 1, 1, 2, 2, 4, 4, 4]), extent([1, 1, 1, 2, 2, 2, 3])
    assert common_end(leader, follower) == 5


def test_equal_ends_prove_nothing() -> None:
    assert common_end(extent([1, 1, 6]), extent([1, 1, 5])) == 2


def test_an_empty_log_has_the_start_in_common() -> None:
    assert common_end(extent([1, 1]), extent([])) == 0
    assert common_end(extent([]), extent([1, 1])) == 0


def test_below_the_leaders_start_there_is_nothing_in_common() -> None:
    assert common_end(extent([3, 3], start=10), extent([1, 1])) is None
    assert common_end(extent([3, 3], start=10), extent([2] * 12)) is None
    assert common_end(extent([3, 3], start=10), extent([], start=10)) == 10


def test_where_a_log_begins_there_is_no_batch_to_compare() -> None:
    assert common_end(extent([3, 3], start=10), extent([1] * 9 + [3])) is None
    assert common_end(extent([3] * 4), extent([3, 3], start=4)) is None
    assert common_end(extent([3, 3], start=10), extent([1] * 9 + [3, 3])) == 11


@st.composite
def two_replicas(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Logs as leaders make them: each epoch continues a prefix of what one of the two has."""
    logs: list[list[int]] = [[], []]
    for epoch in range(1, draw(st.integers(1, 7)) + 1):
        leader = draw(st.integers(0, 1))
        logs[leader] += [epoch] * draw(st.integers(1, 4))
        if draw(st.booleans()):  # the other one follows, for a part
            end = common_end(extent(logs[leader]), extent(logs[1 - leader]))
            assert end is not None
            upto = draw(st.integers(end, len(logs[leader])))
            logs[1 - leader] = logs[leader][:upto]
    return logs[0], logs[1]


@given(two_replicas())
def test_it_is_where_a_search_finds_the_first_difference(logs: tuple[list[int], list[int]]) -> None:
    one, other = logs
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    assert common_end(extent(one), extent(other)) == same
    assert common_end(extent(other), extent(one)) == same
