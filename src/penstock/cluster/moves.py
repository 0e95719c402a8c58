"""Moves of replicas, seen from the record alone.

A move changes what is wanted of a partition, in two steps; the leader does the rest (see
`penstock.replication.record`). Its state is not kept anywhere: it follows from the move and the
record, so that another controller goes on where one has ended.

| state | when | the controller | the leader |
|---|---|---|---|
| WAITING | a target is not wanted yet | wants all of both, when a copy may begin | |
| COPYING | a target is no member | the same | feeds it, takes it in when level |
| LEADING | the leader is none of them | the same | hands over |
| RELEASING | all targets are members, and others too | wants the targets alone | leaves them out |
| DONE | the targets are the set, and what is wanted | | |

Each transaction compares the record's revision. So the old replicas are released by a record in
which all targets are members, and if one of them falls out before they have gone, all of both are
wanted again.

A move is **cancelled**, in each state, by moving back: by one that exchanges origin and target.
What was copied is released, and nothing is copied that is still there.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from enum import Enum
from typing import Annotated, NamedTuple

from penstock import limits
from penstock.cluster.json_form import form_of, integer, list_of, parts, text
from penstock.cluster.keys import PartitionName
from penstock.replication.record import PartitionRecord, arranged

Nodes = Annotated[
    tuple[int, ...], list_of(integer(0, limits.NODE_ID_MAX), limits.MEMBERS_MAX)
]  # in order of preference
Least = Annotated[int, integer(1, limits.MEMBERS_MAX)]
_PARTITION = parts(
    PartitionName, topic=text(limits.NAME_BYTES_MAX), number=integer(0, limits.PARTITIONS_MAX - 1)
)


class PartitionMove(NamedTuple):
    partition: Annotated[PartitionName, _PARTITION]
    origin: Nodes
    target: Nodes
    members_min: Least  # at the target
    origin_members_min: Least

    @property
    def wide(self) -> tuple[int, ...]:
        """All nodes of both. The targets come first: one of them is to lead."""
        return self.target + tuple(node for node in self.origin if node not in self.target)


MOVE = form_of(PartitionMove)


class MoveState(Enum):
    WAITING = "waiting"
    COPYING = "copying"
    LEADING = "leading"
    RELEASING = "releasing"
    DONE = "done"


def lacking(move: PartitionMove, record: PartitionRecord) -> tuple[int, ...]:
    """Targets that need a copy, or have to catch up."""
    return tuple(node for node in move.target if record.member_on(node) is None)


def state_of(move: PartitionMove, record: PartitionRecord) -> MoveState:
    if lacking(move, record):
        return MoveState.COPYING if set(move.target) <= set(record.wanted) else MoveState.WAITING
    if record.leader is None or record.leader.node not in move.target:
        return MoveState.LEADING
    is_set = {member.node for member in record.members} == set(move.target)
    if is_set and record.wanted == move.target and record.members_min == move.members_min:
        return MoveState.DONE
    return MoveState.RELEASING


def next_record(
    move: PartitionMove, record: PartitionRecord, may_begin: bool
) -> PartitionRecord | None:
    """The controller's next proposal; None: nothing for now. `may_begin`: may a copy begin?"""
    state = state_of(move, record)
    if state is MoveState.WAITING:
        proposed = _widened(move, record) if may_begin else record
    elif state in (MoveState.COPYING, MoveState.LEADING):
        proposed = _widened(move, record) if _has_others(move, record) else record
    else:
        proposed = arranged(record, move.target, move.members_min)
    return proposed if proposed != record else None


def _widened(move: PartitionMove, record: PartitionRecord) -> PartitionRecord:
    return arranged(record, move.wide, record.members_min)


def _has_others(move: PartitionMove, record: PartitionRecord) -> bool:
    """Once all others are released, a target that drops out is fed like any member."""
    return any(member.node not in move.target for member in record.members)


# --- how many at a time ---


class Copy(NamedTuple):
    """A replica that needs a copy, or has to catch up."""

    partition: PartitionName
    source: int  # the node of the leader, which feeds it
    target: int
    spare: int  # members above the minimum: with none, one more loss stops the partition
    is_move: bool  # else it was a member, or replaces one that is lost


def may_begin(waiting: Iterable[Copy], running: Collection[Copy]) -> list[Copy]:
    """The copies that begin now: partitions closest to their minimum first, repairs before moves.
    After an outage of an hour there are a few thousand candidates."""
    received = Counter(copy.target for copy in running)
    sent = Counter(copy.source for copy in running)
    chosen = []
    for copy in sorted(
        waiting, key=lambda one: (one.spare, one.is_move, one.partition, one.target)
    ):
        has_room = received[copy.target] < limits.COPIES_IN_MAX
        if has_room and sent[copy.source] < limits.COPIES_OUT_MAX:
            received[copy.target] += 1
            sent[copy.source] += 1
            chosen.append(copy)
    return chosen
