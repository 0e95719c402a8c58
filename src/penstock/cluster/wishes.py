"""What the record wants and is not yet so: who should leave the set, and who should lead.

The controller changes what is wanted; the leader does it (`penstock.replica.record`). It looks once
in WISHES_NS at the partitions that have such wishes, leaves out what is not wanted any more, and
hands over to the member that is wanted first, once its link has been steady for HEIR_STEADY_NS: an
office does not follow a node that comes and goes. A hand-over that was tried waits HAND_OVER_NS
before it is tried again, and no more than HAND_OVERS_MAX are begun at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from penstock.cluster.keys import PartitionName
from penstock.cluster.view import View
from penstock.limits import HAND_OVER_NS, HAND_OVERS_MAX, HEIR_STEADY_NS, WISHES_NS
from penstock.replica.leading import LeaderLine
from penstock.replica.record import Record, successor, superfluous


class Wishes:
    def __init__(
        self,
        view: View,
        lines: dict[PartitionName, LeaderLine],
        hand_over: Callable[[PartitionName, int], bool],
    ) -> None:
        self.view = view
        self.lines = lines
        self.open: set[PartitionName] = set()
        self._hand_over = hand_over
        self._linked_ns: dict[int, int] = {}
        self._tried_ns: dict[PartitionName, int] = {}
        self._due_ns = 0

    def linked(self, node: int, mono_ns: int) -> None:
        self._linked_ns[node] = mono_ns

    def unlinked(self, node: int) -> None:
        self._linked_ns.pop(node, None)

    def record_changed(self, name: PartitionName, record: Record) -> None:
        if superfluous(record) or successor(record, record.wanted) is not None:
            self.open.add(name)
        else:
            self.forget(name)

    def forget(self, name: PartitionName) -> None:
        """It has no wishes, or this node does not lead it."""
        self.open.discard(name)
        self._tried_ns.pop(name, None)

    def tick(self, mono_ns: int) -> None:
        if mono_ns < self._due_ns or not self.open:
            return
        self._due_ns = mono_ns + WISHES_NS
        steady = [n for n, at_ns in self._linked_ns.items() if mono_ns - at_ns >= HEIR_STEADY_NS]
        begun = 0
        for name in sorted(self.open):
            line = self.lines[name]
            line.drop(superfluous(line.record))
            if begun < HAND_OVERS_MAX:
                begun += self._begin(name, line.record, steady, mono_ns)

    def _begin(
        self, name: PartitionName, record: Record, steady: Collection[int], mono_ns: int
    ) -> bool:
        heir = successor(record, [node for node in steady if self._is_present(record, node)])
        tried_ns = self._tried_ns.get(name)
        if heir is None or (tried_ns is not None and mono_ns - tried_ns < HAND_OVER_NS):
            return False
        self._tried_ns[name] = mono_ns
        return self._hand_over(name, heir)

    def _is_present(self, record: Record, node: int) -> bool:
        """Its entry is of the node's present generation: it is no suspect."""
        entry, held = record.member_on(node), self.view.memberships.get(node)
        if entry is None or held is None:
            return False
        return entry.generation == held.document.generation
