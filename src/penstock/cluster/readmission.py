"""When a node that was dropped from a set may be a member again.

A node that is dropped and level again a second later, for ever, costs two transactions a partition
each time. So it is fed, and not demanded, until its link has been steady for READMISSION_NS times
two to the power of how often it was dropped lately. A first drop because the link broke costs no
waiting: mostly the process was started again. An hour without a drop, and it begins at its
shortest.
"""

from __future__ import annotations

from penstock.limits import (
    READMISSION_DOUBLINGS_MAX,
    READMISSION_FORGET_NS,
    READMISSION_NS,
)


class _Past:
    __slots__ = ("count", "dropped_ns", "hold_ns", "steady_since_ns")

    def __init__(self) -> None:
        self.count = 0
        self.dropped_ns = 0
        self.hold_ns = 0
        self.steady_since_ns: int | None = None


class Readmission:
    """By node, for all partitions that this node leads."""

    def __init__(self) -> None:
        self.held_off: set[int] = set()  # shared with each `LeaderLine`
        self._past: dict[int, _Past] = {}

    def dropped(self, node: int, is_linked: bool, mono_ns: int) -> None:
        """Once for all partitions that it is dropped from in a turn."""
        past = self._past.setdefault(node, _Past())
        if past.count and mono_ns - past.dropped_ns > READMISSION_FORGET_NS:
            past.count = 0
        if node not in self.held_off:
            past.count += 1
            doublings = past.count - (1 if is_linked else 2)
            if doublings >= 0:
                past.hold_ns = READMISSION_NS << min(doublings, READMISSION_DOUBLINGS_MAX)
                self.held_off.add(node)
        past.dropped_ns = mono_ns
        past.steady_since_ns = mono_ns if is_linked else None

    def linked(self, node: int, mono_ns: int) -> None:
        past = self._past.get(node)
        if past is not None:
            past.steady_since_ns = mono_ns

    def unlinked(self, node: int) -> None:
        past = self._past.get(node)
        if past is not None:
            past.steady_since_ns = None

    def admitted(self, mono_ns: int) -> list[int]:
        """Nodes that are held off no longer."""
        steady = [node for node in self.held_off if self._is_steady(node, mono_ns)]
        self.held_off.difference_update(steady)
        return sorted(steady)

    def _is_steady(self, node: int, mono_ns: int) -> bool:
        past = self._past[node]
        since_ns = past.steady_since_ns
        return since_ns is not None and mono_ns - since_ns >= past.hold_ns
