"""Which replicas should not lead, as their nodes say, and which of the others should.

A node whose disk is full takes no publishes: all its replicas are named as if they were corrupt.
A corrupt replica is still a member: what it holds that is sound counts, and so does what it writes
from now on. But where it leads, channels wait at the corrupt range, and a sound member could serve
it. So a node says to all that it is linked to which of its replicas are corrupt, when that changes
and on each new link. One that has failed, since its disk takes nothing or its file cannot be read,
acknowledges nothing: no commit should wait for it.

| | |
|---|---|
| a leadership is vacant | a corrupt member waits for SOUND_FIRST_NS, if it reaches a sound one |
| the leadership is to be handed over | not to a corrupt member |
| a leader is corrupt | it hands over to a sound member, if it is linked to one |
| a follower has failed | its leader leaves it out, if the minimum allows |

A sound member that has not asked in that time cannot: then a corrupt one leads, and serves what is
sound.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.cluster.keys import PartitionName
from penstock.replication.record import Record

_NONE: frozenset[PartitionName] = frozenset()


class CorruptReplicas:
    def __init__(self, own: int) -> None:
        self.own = own
        self.corrupt: frozenset[PartitionName] = _NONE  # here
        self.failed: frozenset[PartitionName] = _NONE  # here, and among those
        self._of_node: dict[int, frozenset[PartitionName]] = {}
        self.failed_of_node: dict[int, frozenset[PartitionName]] = {}

    def heard(
        self,
        node: int,
        corrupt: Collection[PartitionName],
        failed: Collection[PartitionName] = (),
    ) -> None:
        self._of_node[node] = frozenset(corrupt)
        self.failed_of_node[node] = frozenset(failed)

    def unlinked(self, node: int) -> None:
        self._of_node.pop(node, None)
        self.failed_of_node.pop(node, None)

    def may_be_given(self, name: PartitionName, node: int) -> bool:
        return name not in self._of_node.get(node, _NONE)

    def should_wait(self, name: PartitionName, record: Record, reached: Collection[int]) -> bool:
        """This node is a member of `name`, and another one that is sound might ask."""
        return name in self.corrupt and bool(self._sound(name, record, reached))

    def successor(
        self, name: PartitionName, record: Record, reached: Collection[int]
    ) -> int | None:
        """The member that should lead in the place of this node; by preference."""
        if name not in self.corrupt:
            return None
        sound = self._sound(name, record, reached)
        preferred = [node for node in record.wanted if node in sound]
        return next(iter(preferred or sound), None)

    def _sound(self, name: PartitionName, record: Record, reached: Collection[int]) -> list[int]:
        return [
            member.node
            for member in record.members
            if member.node != self.own
            and member.node in reached
            and name not in self._of_node.get(member.node, _NONE)
        ]
