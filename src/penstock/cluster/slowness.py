"""Which node answers far more slowly than the others: a member that is merely slow is never late.

A disk that takes half a second for each sync stays below `--replica-timeout` for ever, and each
commit waits for it. So the times to acknowledge are counted by node, over SLOW_WINDOW_NS, in powers
of two. A node is slow when its p99 is above SLOW_NS and SLOW_FACTOR times that of the others
together. Where all are slow, nobody is: then it is the network, or the load.
"""

from __future__ import annotations

from penstock.limits import SLOW_FACTOR, SLOW_NS, SLOW_SAMPLES_MIN, SLOW_WINDOW_NS

_SLOTS = 5  # of the window: it moves by a slot at a time
_BUCKETS = 48  # powers of two of nanoseconds: three days


class _Counts:
    """Of one node."""

    __slots__ = ("slots",)

    def __init__(self) -> None:
        self.slots = [[0] * _BUCKETS for _ in range(_SLOTS)]

    def total(self) -> list[int]:
        return [sum(slot[bucket] for slot in self.slots) for bucket in range(_BUCKETS)]


class Slowness:
    def __init__(self) -> None:
        self._counts: dict[int, _Counts] = {}
        self._slot = 0

    def acknowledged(self, node: int, took_ns: int, mono_ns: int) -> None:
        self._move(mono_ns)
        counts = self._counts.get(node)
        if counts is None:
            counts = self._counts[node] = _Counts()
        bucket = min(max(took_ns, 1).bit_length(), _BUCKETS - 1)
        counts.slots[self._slot % _SLOTS][bucket] += 1

    def _move(self, mono_ns: int) -> None:
        """Slots that are older than the window begin again."""
        slot = mono_ns * _SLOTS // SLOW_WINDOW_NS
        for passed in range(max(self._slot + 1, slot - _SLOTS + 1), slot + 1):
            for counts in self._counts.values():
                counts.slots[passed % _SLOTS] = [0] * _BUCKETS
        self._slot = max(self._slot, slot)

    def forget(self, node: int) -> None:
        self._counts.pop(node, None)

    def slow_nodes(self, mono_ns: int) -> list[int]:
        self._move(mono_ns)
        totals = {node: counts.total() for node, counts in self._counts.items()}
        return [node for node in totals if self._is_slow(node, totals)]

    def _is_slow(self, node: int, totals: dict[int, list[int]]) -> bool:
        others = [sum(column) for column in zip(*_without(totals, node), strict=True)]
        if sum(totals[node]) < SLOW_SAMPLES_MIN or sum(others) < SLOW_SAMPLES_MIN:
            return False
        own_ns = _p99_ns(totals[node])
        return own_ns > SLOW_NS and own_ns > SLOW_FACTOR * _p99_ns(others)


def _without(totals: dict[int, list[int]], node: int) -> list[list[int]]:
    return [counts for other, counts in totals.items() if other != node]


def _p99_ns(counts: list[int]) -> int:
    """The least time that its bucket stands for."""
    left = sum(counts) // 100
    for bucket in range(len(counts) - 1, -1, -1):
        left -= counts[bucket]
        if left < 0:
            return 1 << max(bucket - 1, 0)
    return 0
