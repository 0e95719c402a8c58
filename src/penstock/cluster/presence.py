"""Which nodes are there, since when, and which are lost for good, as one controller has seen it.

A node's key vanishes when its lease runs out, which an outage of the coordinator does to all of
them at once. So a node is **missing** only when it can't be reached directly either, and nothing
counts that was seen before the controller took office, or while its watch was broken: its times
begin then.

A missing node is **lost** after a while: its replicas are made again elsewhere. Never while more
than a fifth of the nodes are missing (one may always be): then something else is at fault, and
copying everything would make it worse.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock import limits


class Presence:
    __slots__ = ("_missing_since_ns", "_nodes", "_there_since_ns")

    def __init__(self) -> None:
        self._nodes: frozenset[int] = frozenset()
        self._there_since_ns: dict[int, int] = {}
        self._missing_since_ns: dict[int, int] = {}

    def forget(self) -> None:
        """What was seen counts no more."""
        self._there_since_ns.clear()
        self._missing_since_ns.clear()

    def look(
        self,
        nodes: Iterable[int],
        registered: Collection[int],
        reachable: Collection[int],
        now_ns: int,
    ) -> None:
        """`nodes`: all that belong to the cluster. `registered`: those whose key is there."""
        self._nodes = frozenset(nodes)
        for node in self._nodes:
            if node in registered:
                self._missing_since_ns.pop(node, None)
                self._there_since_ns.setdefault(node, now_ns)
            else:
                self._there_since_ns.pop(node, None)
                self._look_for(node, reachable, now_ns)

    def _look_for(self, node: int, reachable: Collection[int], now_ns: int) -> None:
        if node in reachable:
            self._missing_since_ns.pop(node, None)
        else:
            self._missing_since_ns.setdefault(node, now_ns)

    def is_steady(self, node: int, now_ns: int) -> bool:
        since_ns = self._there_since_ns.get(node, now_ns)
        return now_ns - since_ns >= limits.NODE_STEADY_NS

    def missing_for_ns(self, node: int, now_ns: int) -> int:
        return now_ns - self._missing_since_ns.get(node, now_ns)

    @property
    def missing(self) -> frozenset[int]:
        return frozenset(self._missing_since_ns) & self._nodes

    @property
    def too_many_missing(self) -> bool:
        share = len(self._nodes) // limits.NODES_MISSING_SHARE
        return len(self.missing) > max(share, 1)

    def lost(self, now_ns: int) -> frozenset[int]:
        if self.too_many_missing:
            return frozenset()
        return frozenset(
            node
            for node in self.missing
            if self.missing_for_ns(node, now_ns) >= limits.NODE_REPLACE_NS
        )
