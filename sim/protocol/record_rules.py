"""Which changes of a partition's record are legal: what every history is held against."""

from penstock.replication.record import PartitionRecord


def broken_rule(before: PartitionRecord, after: PartitionRecord) -> str | None:
    """What makes this change illegal; None where nothing does."""
    if after.identity != before.identity:
        return "another topic's record is in its place"
    if len(after.members) < after.members_min:
        return f"{len(after.members)} members where {after.members_min} are needed"
    if len({member.node for member in after.members}) < len(after.members):
        return "a node has two places in the set"
    if len(set(after.wanted)) < len(after.wanted):
        return "a node is wanted twice"
    if after.epoch == before.epoch:
        return _broken_by_leader(before, after)
    if after.epoch != before.epoch + 1:
        return f"epoch {after.epoch} follows epoch {before.epoch}"
    return _broken_by_election(before, after)


def _broken_by_leader(before: PartitionRecord, after: PartitionRecord) -> str | None:
    if after.leader not in (before.leader, None):
        return "another leader in the same epoch"
    if after.leader is None and after.members != before.members:
        return "a change of the set without a leader"
    return _leader_is_member(after)


def _broken_by_election(before: PartitionRecord, after: PartitionRecord) -> str | None:
    if after.leader is None:
        return "an election without a leader"
    if not set(after.members) <= set(before.members):
        return "an election added a member"
    return _leader_is_member(after)


def _leader_is_member(record: PartitionRecord) -> str | None:
    leader = record.leader
    if leader is not None and not record.has(leader.node, leader.replica):
        return "the leader is no member"
    return None
