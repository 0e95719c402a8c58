"""The record of a partition, and its legal changes.

The record is stored in the coordinator under one key. Every change compares the revision that its
writer has read, so changes follow one another, and each of them is one of these functions:

| change | by | epoch | leader | members |
|---|---|---|---|---|
| `elected` | a member | one more | that member | some may be dropped, none is added |
| `resigned` | the leader | the same | none | the same |
| `regrouped` | the leader | the same | the same | some are dropped, some added, at once |
| none | the leader | the same | the same | the same: only the revision changes |
| `arranged` | the controller | the same | the same | the same: wanted and minimum change |

Why this is enough: a leader commits what *every* member of every set that may be in force has
acknowledged. Each member of each record therefore holds all that was committed before that record,
and an election, which only chooses among the members, cannot choose one that lacks something.
`regrouped` is the only way in; the leader proposes it for a replica that already holds everything,
and from the proposal on it commits nothing without that replica.

No record has fewer members than its `members_min`. The minimum is raised when the set has reached
it, and lowered at any time: all members have what was committed, however few they have to be.

**The wanted replicas drive moves.** The leader admits wanted replicas when they are level, drops
members that are no longer wanted (`superfluous`), and hands over to the preferred one
(`successor`). The controller therefore changes what is wanted, never the set.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Member(NamedTuple):
    """A replica that commits wait for. `generation`: the node's, at its admission."""

    node: int
    replica: int  # a random id: a directory that was wiped or copied again has another
    generation: int


class LeaderId(NamedTuple):
    """The identity of a leader. A restart of the process is another incarnation, and ends the
    leadership."""

    node: int
    incarnation: int
    replica: int


class PartitionRecord(NamedTuple):
    identity: int  # of the topic: a topic that is made again has another
    epoch: int
    leader: LeaderId | None
    members: tuple[Member, ...]
    members_min: int
    wanted: tuple[int, ...]  # nodes that should have a replica, in order of preference
    unclean_epoch: int = 0  # from this epoch on what was committed may have been given up

    def member_on(self, node: int) -> Member | None:
        for member in self.members:
            if member.node == node:
                return member
        return None

    @property
    def replica_nodes(self) -> set[int]:
        """Those of the members, and those that should have a replica."""
        return {*self.wanted, *(member.node for member in self.members)}

    def preferred(self, nodes: Sequence[int]) -> list[int]:
        """The wanted ones first, in the order of preference."""
        wanted = [node for node in self.wanted if node in nodes]
        return wanted + [node for node in nodes if node not in wanted]

    def has(self, node: int, replica: int) -> bool:
        return any(member.node == node and member.replica == replica for member in self.members)


def elected(
    record: PartitionRecord, leader_id: LeaderId, left_out: tuple[Member, ...] = ()
) -> PartitionRecord:
    members = tuple(member for member in record.members if member not in left_out)
    return record._replace(epoch=record.epoch + 1, leader=leader_id, members=members)


def resigned(record: PartitionRecord) -> PartitionRecord:
    return record._replace(leader=None)


def regrouped(
    record: PartitionRecord, gone: tuple[Member, ...] = (), added: tuple[Member, ...] = ()
) -> PartitionRecord:
    """A newer entry of a node replaces the older one."""
    nodes = {member.node for member in (*gone, *added)}
    kept = tuple(member for member in record.members if member.node not in nodes)
    return record._replace(members=kept + added)


def arranged(record: PartitionRecord, wanted: tuple[int, ...], members_min: int) -> PartitionRecord:
    """The minimum is raised as far as there are members."""
    return record._replace(wanted=wanted, members_min=min(members_min, len(record.members)))


def superfluous(record: PartitionRecord) -> tuple[int, ...]:
    """Nodes that the leader leaves out: members that are not wanted. Not while a wanted one is
    missing, for then there may be too few, and never the leader itself."""
    nodes = [member.node for member in record.members]
    if record.leader is None or not set(record.wanted) <= set(nodes):
        return ()
    return tuple(n for n in nodes if n not in record.wanted and n != record.leader.node)


def successor(record: PartitionRecord, steady: Collection[int]) -> int | None:
    """The member to hand over to: the first in the order of preference, unless that is the leader.
    `steady`: nodes that have been present for a while, so that a leadership does not move to a node
    that comes and goes."""
    if record.leader is None:
        return None
    for node in record.wanted:
        if node == record.leader.node:
            return None
        if node in steady and record.member_on(node) is not None:
            return node
    return None
