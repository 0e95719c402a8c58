"""Which learners are fed from the logs at a time: a few for each node, the neediest first.

After an outage of an hour every partition of a node is to be fed. All at once, they would share the
link and the disk so that none of them becomes level for long, and publishers would wait for the
rest. So each node has PLACES, and a learner needs one to be fed from its leader's log.

| | |
|---|---|
| has a place | until it takes part in rows as they come, its session or the office ends |
| waits | first whose partition has the fewest members above its minimum, then who lacks the least |
| acknowledges nothing for CATCH_UP_STALL_NS | gives its place to the next, and waits behind all |
| a member | needs none: commits wait for it |

No clock is read: `tick` brings the time. What `ask` refused is asked for again by `again`, which is
called when there is a place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.limits import CATCH_UP_PLACES, CATCH_UP_STALL_NS
from penstock.replica.frames import Target


class Need(NamedTuple):
    """How much a partition needs this learner. The lowest comes first."""

    is_stalled: bool
    members_spare: int  # above the minimum
    missing_bytes: int


class _Waiting(NamedTuple):
    need: Need
    again: Callable[[], None]


class CatchUp:
    """Of one node, for all partitions that it leads."""

    def __init__(self, places_max: int = CATCH_UP_PLACES) -> None:
        self.places_max = places_max
        self._now_ns = 0
        self._fed: dict[int, dict[Target, int]] = {}  # by node: since when nothing came
        self._waiting: dict[int, dict[Target, _Waiting]] = {}
        self._stalled: set[tuple[int, Target]] = set()

    def ask(
        self,
        node: int,
        target: Target,
        members_spare: int,
        missing_bytes: int,
        again: Callable[[], None],
    ) -> bool:
        """May the learner of `target` on this node be fed? False: it waits for `again`."""
        fed = self._fed.setdefault(node, {})
        if target in fed:
            return True
        waiting = self._waiting.setdefault(node, {})
        need = Need((node, target) in self._stalled, members_spare, missing_bytes)
        waiting[target] = _Waiting(need, again)
        if len(fed) >= self.places_max or _neediest(waiting) != target:
            return False
        self._begin(node, target)
        return True

    def progressed(self, node: int, target: Target) -> None:
        """It has acknowledged something."""
        self._stalled.discard((node, target))
        fed = self._fed.get(node)
        if fed is not None and target in fed:
            fed[target] = self._now_ns

    def leave(self, node: int, target: Target) -> None:
        """It needs no place, or not any more."""
        self._stalled.discard((node, target))
        self._waiting.get(node, {}).pop(target, None)
        if self._fed.get(node, {}).pop(target, None) is not None:
            self._fill(node)

    def leave_all(self, target: Target) -> None:
        """The office is over."""
        for node in {*self._fed, *self._waiting}:
            self.leave(node, target)

    def tick(self, mono_ns: int) -> None:
        self._now_ns = mono_ns
        for node, fed in tuple(self._fed.items()):
            for target, since_ns in tuple(fed.items()):
                if self._waiting.get(node) and mono_ns - since_ns >= CATCH_UP_STALL_NS:
                    del fed[target]
                    self._stalled.add((node, target))
            self._fill(node)

    def _fill(self, node: int) -> None:
        """Places that are free go to the neediest."""
        fed, waiting = self._fed.get(node, {}), self._waiting.get(node, {})
        while waiting and len(fed) < self.places_max:
            target = _neediest(waiting)
            again = waiting[target].again
            self._begin(node, target)
            again()

    def _begin(self, node: int, target: Target) -> None:
        del self._waiting[node][target]
        self._fed[node][target] = self._now_ns

    def validate(self) -> None:
        for node, fed in self._fed.items():
            waiting = self._waiting.get(node, {})
            if len(fed) > self.places_max:
                raise RuntimeError(f"node {node} is fed {len(fed)} learners at a time")
            if fed.keys() & waiting.keys():
                raise RuntimeError(f"a learner on node {node} is fed, and waits for it")
            if waiting and len(fed) < self.places_max:
                raise RuntimeError(f"a learner waits, and node {node} has a free place")


def _neediest(waiting: dict[Target, _Waiting]) -> Target:
    """Of those that need it equally, the one that has waited longest."""
    return min(waiting, key=lambda target: waiting[target].need)
