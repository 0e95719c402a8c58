"""What the tasks of a batch read. Pure.

A large range is cut, so that several tasks share it, and small ones are put into one task: a task
costs tens of milliseconds before it reads its first row, which is more than a topic with a few
messages is worth. Each task reads its ranges one after the other, in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from penstock.spark.offsets import Range


def split(
    ranges: Iterable[Range], partitions_min: int | None, records_max: int | None
) -> list[Range]:
    """Ranges for tasks: none larger than `records_max`, and about `partitions_min` of them."""
    pieces = [
        piece
        for range_ in ranges
        for piece in _cut(range_, -(-range_.size // records_max) if records_max else 1)
    ]
    total = sum(piece.size for piece in pieces)
    if partitions_min is None or len(pieces) >= partitions_min or total == 0:
        return pieces
    return [
        part
        for piece in pieces
        for part in _cut(piece, max(1, round(piece.size * partitions_min / total)))
    ]


def _cut(range_: Range, count: int) -> list[Range]:
    count = min(count, range_.size)
    marks = [range_.start + range_.size * i // count for i in range(count + 1)] if count else []
    return [Range(range_.log, low, high) for low, high in pairwise(marks)]


def packed(
    ranges: Sequence[Range], rows_max: int, partitions_min: int | None
) -> list[tuple[Range, ...]]:
    """Neighbours together, up to `rows_max` rows; a larger range has a task of its own. There are
    no fewer tasks than `partitions_min`, as far as there are that many ranges."""
    if partitions_min is not None:
        rows_max = min(rows_max, -(-sum(one.size for one in ranges) // partitions_min))
        if len(ranges) <= partitions_min:
            rows_max = 0
    found: list[list[Range]] = []
    rows = 0
    for one in ranges:
        rows += one.size
        if not found or rows > rows_max:
            found.append([])
            rows = one.size
        found[-1].append(one)
    return [tuple(each) for each in found]
