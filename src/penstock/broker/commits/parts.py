"""The list of a commit's stages, when it comes in parts: a long one would hold up the loop while it
is read.

Parts come in order, each again as often as its sender likes; the first one begins again. What is
gathered is forgotten when the commit is done, when others need the room, and at a restart: a sender
that hears of a gap sends all of them again. So nothing depends on what is here.
"""

from __future__ import annotations

from penstock import limits
from penstock.broker.commits.stageapps import Ref
from penstock.errors import CommitGap

_Key = tuple[str, int]  # app, version


class CommitParts:
    def __init__(self) -> None:
        self._gathered: dict[_Key, list[list[Ref]]] = {}  # the one that grew last stands last

    @property
    def count(self) -> int:
        """Of stages, in all lists."""
        return sum(len(part) for parts in self._gathered.values() for part in parts)

    def add(self, app: str, version: int, part: int, refs: list[Ref]) -> list[Ref]:
        """All that is there now, this part included. CommitGap when those before it are not."""
        key = app, version
        parts = self._gathered.pop(key, [])
        if part > len(parts):
            if parts:
                self._gathered[key] = parts
            raise CommitGap(len(parts))
        parts[part:] = [refs]
        self._gathered[key] = parts
        while self.count > limits.COMMIT_GATHERED_MAX and len(self._gathered) > 1:
            del self._gathered[next(iter(self._gathered))]
        return [ref for one in parts for ref in one]

    def forget(self, app: str, version: int) -> None:
        self._gathered.pop((app, version), None)
