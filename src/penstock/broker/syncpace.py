"""When the logs of one topic are synced though no publisher waits for it (durability `os`).

A sync costs the same whatever it has to write, so a topic does not have more of them for being in
several partitions: they share one pause, and after it the partition is synced that would lose most
in a power loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from penstock import limits


class Synced(Protocol):
    """A partition, as `GroupCommit` sees it."""

    @property
    def busy(self) -> bool: ...
    @property
    def unsynced_count(self) -> int: ...

    def sync(self) -> bool: ...


class SyncPace:
    def __init__(self, partitions: Callable[[], Iterable[Synced]], every_count: int) -> None:
        self._partitions = partitions
        self.every_count = every_count
        self._due_ns = 0

    def look(self, unsynced_count: int, wall_ns: int) -> None:
        """After a row, `unsynced_count` messages of that partition are not on the disk yet. Below
        `every_count` there is no need to ask."""
        if unsynced_count < self.every_count or wall_ns < self._due_ns:
            return
        self._due_ns = wall_ns + limits.SYNC_PAUSE_NS
        free = [one for one in self._partitions() if not one.busy]
        first = max(free, key=lambda one: one.unsynced_count, default=None)
        if first is not None and first.unsynced_count >= self.every_count:
            first.sync()
