"""What the tasks of a batch read."""

from __future__ import annotations

from cases import each
from penstock.spark import tasks
from penstock.spark.offsets import Log, Range

A = Log("a", "one", 0)
B = Log("b", "two", 0)


@each(
    ("least", "most", "sizes"),
    [
        (None, None, [100, 10]),
        (None, 30, [25, 25, 25, 25, 10]),
        (2, None, [100, 10]),
        (11, None, [10] * 11),
        (4, 60, [25, 25, 25, 25, 10]),
        (1000, None, [1] * 110),
    ],
)
def test_ranges_are_split_for_tasks(least: int | None, most: int | None, sizes: list[int]) -> None:
    ranges = [Range(A, 7, 107), Range(B, 0, 10)]
    pieces = tasks.split(ranges, least, most)
    assert [piece.size for piece in pieces] == sizes
    covered = [(p.log, i) for p in pieces for i in range(p.start, p.end)]
    assert covered == [(r.log, i) for r in ranges for i in range(r.start, r.end)]


def test_nothing_is_split_into_nothing() -> None:
    assert tasks.split([Range(A, 4, 4)], 8, 5) == []


def small(*sizes: int) -> list[Range]:
    return [Range(Log(f"t{n}", "one", 0), 5, 5 + size) for n, size in enumerate(sizes)]


@each(
    ("sizes", "rows_max", "least", "packed"),
    [
        ((), 10, None, []),
        ((3, 3, 3, 3), 10, None, [[3, 3, 3], [3]]),
        ((30, 3, 3, 30, 1), 10, None, [[30], [3, 3], [30], [1]]),
        ((5, 5, 5), 10, None, [[5, 5], [5]]),
        ((2, 2, 2, 2), 100, 2, [[2, 2], [2, 2]]),
        ((2, 2, 2, 2), 100, 4, [[2], [2], [2], [2]]),
        ((2, 2), 100, 8, [[2], [2]]),
    ],
)
def test_small_ranges_share_a_task(
    sizes: tuple[int, ...], rows_max: int, least: int | None, packed: list[list[int]]
) -> None:
    found = tasks.packed(small(*sizes), rows_max, least)
    assert [[one.size for one in each] for each in found] == packed
    assert [one for each in found for one in each] == small(*sizes)
