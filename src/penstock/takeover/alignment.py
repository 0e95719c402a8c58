"""Queues that share messages, laid out as one log in which each keeps its own order.

The log grows queue by queue. What a new queue has in common with it comes as runs: stretches that
follow one another in the queue and where they are stored. The heaviest set of runs that stand in
the same order in both is shared (the longest increasing subsequence, weighted by length). The rest
of the queue is stored again, between the runs where it stood: two queues that disagree about the
order of some messages each keep a copy of those.

Each shared run costs a channel at most one finished range more, and what is stored again before it
costs every other channel at most one. `add` shares no more runs than it is allowed, the longest.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple


class Run(NamedTuple):
    """Records of a queue that another queue stores."""

    at: int  # ordinal of the first in the queue
    owner: int  # the queue that stores them
    first: int  # ordinal of the first there
    length: int

    @property
    def at_end(self) -> int:
        return self.at + self.length

    @property
    def first_end(self) -> int:
        return self.first + self.length


class Segment(NamedTuple):
    """What a queue stores itself of its records [start, end), together in the log."""

    queue: int
    start: int
    end: int


class Place(NamedTuple):
    """A record's place in the log. Places compare as the records stand there."""

    segment: int
    ordinal: int


class Alignment:
    def __init__(self) -> None:
        self.segments: list[Segment] = []  # in the order of the log

    def choose(self, runs: Iterable[Run], runs_max: int) -> list[Run]:
        """Those that a queue can share: in its order, which is the log's too. They may be cut where
        something else stands in between in the log."""
        longest = heapq.nlargest(runs_max, runs, key=lambda run: run.length)
        index = _Index(self.segments)
        placed = [one for run in sorted(longest) for one in index.cut(run)]
        return _in_order(placed)

    def add(self, queue: int, size: int, shared: list[Run], own: Iterable[tuple[int, int]]) -> None:
        """Put in what `queue` stores itself: of its records [start, end) for each of `own`, which
        are gaps between the runs in `shared`."""
        followers = {run.at: run for run in shared}
        index = _Index(self.segments)
        inserted: list[tuple[Place, Segment]] = []
        last: list[Segment] = []
        for start, end in own:
            segment = Segment(queue, start, end)
            if end == size:
                last.append(segment)
            else:
                run = followers[end]
                inserted.append((index.place(run.owner, run.first), segment))
        self.segments = [*_insert(self.segments, inserted), *last]


class _Index:
    """Where a record stands in the log."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._starts: dict[int, list[int]] = {}
        self._numbers: dict[int, list[int]] = {}
        for number, segment in enumerate(segments):
            self._starts.setdefault(segment.queue, []).append(segment.start)
            self._numbers.setdefault(segment.queue, []).append(number)

    def place(self, queue: int, ordinal: int) -> Place:
        at = bisect_right(self._starts[queue], ordinal) - 1
        return Place(self._numbers[queue][at], ordinal)

    def cut(self, run: Run) -> Iterable[tuple[Place, Run]]:
        """The run in pieces that each lie in one segment."""
        at, owner, first, left = run
        while left:
            place = self.place(owner, first)
            length = min(left, self._segments[place.segment].end - first)
            yield place, Run(at, owner, first, length)
            at, first, left = at + length, first + length, left - length


def _in_order(placed: list[tuple[Place, Run]]) -> list[Run]:
    """The heaviest selection whose places rise. `placed` is in the order of the queue."""
    ranks = {place: rank for rank, place in enumerate(sorted(place for place, _ in placed))}
    best = _PrefixMaximum(len(placed))
    before: list[int] = []  # the one that goes before each in the best selection that ends with it
    weight_max, last = 0, -1
    for number, (place, run) in enumerate(placed):
        weight, previous = best.below(ranks[place])
        before.append(previous)
        weight += run.length
        best.raise_to(ranks[place], weight, number)
        if weight > weight_max:
            weight_max, last = weight, number
    chosen: list[Run] = []
    while last >= 0:
        chosen.append(placed[last][1])
        last = before[last]
    return chosen[::-1]


class _PrefixMaximum:
    """The greatest weight among the first n places, as places get theirs (a Fenwick tree)."""

    def __init__(self, count: int) -> None:
        self._best = [(0, -1)] * (count + 1)

    def below(self, rank: int) -> tuple[int, int]:
        best = (0, -1)
        while rank:
            best = max(best, self._best[rank])
            rank &= rank - 1
        return best

    def raise_to(self, rank: int, weight: int, number: int) -> None:
        rank += 1
        while rank < len(self._best):
            self._best[rank] = max(self._best[rank], (weight, number))
            rank += rank & -rank


def _insert(segments: list[Segment], inserted: list[tuple[Place, Segment]]) -> list[Segment]:
    """Each of `inserted`, whose places rise, in front of the record at its place."""
    joined: list[Segment] = []
    number, start = 0, segments[0].start if segments else 0
    for place, segment in inserted:
        while number < place.segment:
            joined.append(Segment(segments[number].queue, start, segments[number].end))
            number += 1
            start = segments[number].start
        if place.ordinal > start:
            joined.append(Segment(segments[number].queue, start, place.ordinal))
            start = place.ordinal
        joined.append(segment)
    if number < len(segments):
        joined.append(Segment(segments[number].queue, start, segments[number].end))
        joined += segments[number + 1 :]
    return joined
