"""Topics that were deleted, and where their logs ended: a reader can tell whether it had read all.
The newest of them, and since the start: of what is not here nobody knows.
"""

from __future__ import annotations

from penstock import limits


class EndedTopics:
    def __init__(self, count_max: int = limits.ENDED_TOPICS_MAX) -> None:
        self._count_max = count_max
        self._ends: dict[tuple[str, str], int] = {}  # by name and identity, the oldest first

    def add(self, name: str, identity: str, end: int) -> None:
        self._ends[name, identity] = end
        while len(self._ends) > self._count_max:
            del self._ends[next(iter(self._ends))]

    def of(self, names: set[str]) -> dict[str, dict[str, int]]:
        """By name and identity, the end of the log."""
        found: dict[str, dict[str, int]] = {}
        for (name, identity), end in self._ends.items():
            if name in names:
                found.setdefault(name, {})[identity] = end
        return found
