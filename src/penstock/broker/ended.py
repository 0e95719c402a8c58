"""Topics that were deleted, and where their logs ended: a reader can tell whether it had read all.
The newest of them, and since the start: of what is not here nobody knows.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock import limits


class EndedTopics:
    def __init__(self, count_max: int = limits.ENDED_TOPICS_MAX) -> None:
        self._count_max = count_max
        # By name and identity, the oldest first; the ends by partition.
        self._ends: dict[tuple[str, str], tuple[int, ...]] = {}

    def add(self, name: str, identity: str, ends: Sequence[int]) -> None:
        self._ends[name, identity] = tuple(ends)
        while len(self._ends) > self._count_max:
            del self._ends[next(iter(self._ends))]

    def of(self, names: set[str]) -> dict[str, dict[str, int]]:
        """By name and identity, the end of the first partition's log."""
        found: dict[str, dict[str, int]] = {}
        for (name, identity), ends in self._ends.items():
            if name in names:
                found.setdefault(name, {})[identity] = ends[0]
        return found

    def logs_of(self, names: set[str]) -> dict[str, dict[str, dict[int, int]]]:
        """By name, identity and partition, the end of each log."""
        found: dict[str, dict[str, dict[int, int]]] = {}
        for (name, identity), ends in self._ends.items():
            if name in names:
                found.setdefault(name, {})[identity] = dict(enumerate(ends))
        return found
