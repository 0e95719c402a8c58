"""The controller: the one process that watches all partitions. The cluster serves without it.

It stands beside a daemon of discovery. Whoever holds the leased key `controller` is it, and each of
its transactions compares when that key was made: one that was paused for a minute changes nothing.

| state | on | to |
|---|---|---|
| IDLE | the key is ours | SETTLING |
| SETTLING | a lease and 2 s later | ACTING |
| SETTLING, ACTING | the watch was broken | SETTLING, from the beginning |
| SETTLING, ACTING | the key is another's, or gone | IDLE |

What it does while ACTING, in this order:

1. **Elections that the members have left undone** for 2 s: no leader, or one whose node is missing
   or has another incarnation. The first in the order of preference that may lead. Dead members are
   left out as far as the minimum allows. That a leader is not leading, or a replica is stopped, is
   known to the members alone.
2. **Moves** go on, as their records say (see `moves`); copies begin as few as may.
3. **Plans**, once a minute, or when nodes have come, gone, or are to be left: what is lost is made
   again, what is drained moves away, the rest is balanced. Their changes become moves, which stand
   in the coordinator, so that the next controller goes on with them.

It keeps nothing that has to survive it.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from penstock import limits
from penstock.cluster import keys
from penstock.cluster.coordinator import (
    Compare,
    CreatedIs,
    Delete,
    Operation,
    Put,
    RevisionIs,
    Transaction,
)
from penstock.cluster.documents import RECORD
from penstock.cluster.keys import PartitionName
from penstock.cluster.moves import (
    MOVE,
    Copy,
    MoveState,
    PartitionMove,
    lacking,
    may_begin,
    next_record,
    state_of,
)
from penstock.cluster.placement import NodeStanding, PlacementNode, PlacementPartition, plan
from penstock.replication.election import Candidate, election, hindrance
from penstock.replication.record import LeaderId, PartitionRecord

# --- observations ---


class NodeSeen(NamedTuple):
    """A node of the cluster. `standing`: the state that its operator has set."""

    zone: str
    standing: NodeStanding
    generation: int  # that its last start has written
    memory_lost_generation: int
    incarnation: int | None  # of the process whose key is there; None: there is none


class PartitionSeen(NamedTuple):
    record: PartitionRecord
    revision: int
    replicas: int  # as its topic asks for
    waits: bool  # its topic waits for the disk
    move: PartitionMove | None = None
    move_revision: int = 0  # of its key


class Situation(NamedTuple):
    """The metadata as the view shows it, and the reports of nodes."""

    controller: int | None  # the incarnation in the key
    controller_created: int
    nodes: Mapping[int, NodeSeen]
    partitions: Mapping[PartitionName, PartitionSeen]
    reachable: Collection[int] = ()  # nodes that answer, whether their key is there or not


# --- effects ---


class PartitionChange(NamedTuple):
    """A change of a partition that is still as `seen`. A field that is None stays unchanged."""

    partition: PartitionName
    seen: PartitionSeen
    record: PartitionRecord | None = None
    move: PartitionMove | None = None
    is_move_done: bool = False


class Propose(NamedTuple):
    """One transaction; `transaction_of` makes it."""

    controller_created: int
    changes: tuple[PartitionChange, ...]


def transaction_of(effect: Propose) -> Transaction:
    """Compares the creation of the key `controller`, and every changed key."""
    compares: list[Compare] = [CreatedIs(keys.CONTROLLER, effect.controller_created)]
    operations: list[Operation] = []
    for change in effect.changes:
        record_key, move_key = keys.partition(*change.partition), keys.move(*change.partition)
        compares.append(RevisionIs(record_key, change.seen.revision))
        if change.record is not None:
            operations.append(Put(record_key, RECORD.encode(change.record)))
        if change.move is not None or change.is_move_done:
            compares.append(RevisionIs(move_key, change.seen.move_revision))
        if change.move is not None:
            operations.append(Put(move_key, MOVE.encode(change.move)))
        elif change.is_move_done:
            operations.append(Delete(move_key))
    return Transaction(tuple(compares), tuple(operations))


class Duty(IntEnum):
    IDLE = 1
    SETTLING = 2
    ACTING = 3


def members_min_of(seen: PartitionSeen, replicas: int) -> int:
    """The minimum of the in-sync set for this many replicas: half of the replicas that the topic
    wants, as at its creation."""
    return min((seen.replicas + 1) // 2, replicas)


class Controller:
    def __init__(self, incarnation: int) -> None:
        self.duty = Duty.IDLE
        self.presence = Presence()
        self.out: list[Propose] = []
        self._incarnation = incarnation  # of this process: it stands in the key
        self._settled_ns = 0
        self._leaderless: dict[PartitionName, tuple[int, int]] = {}  # epoch, since
        self._proposed: dict[PartitionName, tuple[int, int, int]] = {}  # revisions, until
        self._planned_ns = 0
        self._planned_for: Any = None

    # --- leadership ---

    def watch_broken(self, now_ns: int) -> None:
        """Changes in between are unknown: every absence has to be observed anew."""
        if self.duty is not Duty.IDLE:
            self._settle(now_ns)

    def _settle(self, now_ns: int) -> None:
        self.duty = Duty.SETTLING
        self._settled_ns = now_ns + limits.CONTROLLER_SETTLE_NS
        self._leaderless.clear()
        self._proposed.clear()
        self._planned_for = None
        self.presence.forget()

    def tick(self, situation: Situation, now_ns: int) -> None:
        """Call a few times a second."""
        if situation.controller != self._incarnation:
            self.duty = Duty.IDLE
            return
        if self.duty is Duty.IDLE:
            self._settle(now_ns)
        registered = [n for n, seen in situation.nodes.items() if seen.incarnation is not None]
        self.presence.look(situation.nodes, registered, situation.reachable, now_ns)
        if now_ns < self._settled_ns:
            return
        self.duty = Duty.ACTING
        changes = self._elections(situation, now_ns)
        changes |= self._moves(situation, changes)
        changes |= self._planned(situation, now_ns, changes)
        self._propose(situation, self._not_proposed(changes, now_ns))

    def _not_proposed(
        self, changes: Mapping[PartitionName, PartitionChange], now_ns: int
    ) -> list[PartitionChange]:
        """Proposals of a moment ago, from the same revisions, are still on their way."""
        self._proposed = {name: one for name, one in self._proposed.items() if now_ns < one[2]}
        new = []
        for name, change in changes.items():
            revisions = change.seen.revision, change.seen.move_revision
            if self._proposed.get(name, (0, 0, 0))[:2] != revisions:
                self._proposed[name] = *revisions, now_ns + limits.ELECT_AFTER_NS
                new.append(change)
        return new

    def _propose(self, situation: Situation, changes: list[PartitionChange]) -> None:
        size = limits.TRANSACTION_KEYS_MAX // 2 - 1  # each compares and puts two keys at most
        for first in range(0, len(changes), size):
            chunk = tuple(changes[first : first + size])
            self.out.append(Propose(situation.controller_created, chunk))

    # --- elections ---

    def _elections(self, situation: Situation, now_ns: int) -> dict[PartitionName, PartitionChange]:
        changes = {}
        for name, seen in situation.partitions.items():
            if self._is_served(situation, seen):
                self._leaderless.pop(name, None)
                continue
            epoch, since_ns = self._leaderless.get(name, (-1, now_ns))
            if epoch != seen.record.epoch:
                since_ns = now_ns
            self._leaderless[name] = seen.record.epoch, since_ns
            if now_ns - since_ns >= limits.ELECT_AFTER_NS:
                record = self._elect(situation, seen)
                if record is not None:
                    changes[name] = PartitionChange(name, seen, record)
        return changes

    def _is_served(self, situation: Situation, seen: PartitionSeen) -> bool:
        leader = seen.record.leader
        if leader is None:
            return False
        node = situation.nodes.get(leader.node)
        if node is None or leader.node in self.presence.missing:
            return False
        return node.incarnation in (
            leader.incarnation,
            None,
        )  # reachable without a key: the coordinator's trouble

    def _elect(self, situation: Situation, seen: PartitionSeen) -> PartitionRecord | None:
        record = seen.record
        failed = record.leader.node if record.leader is not None else None
        able = [
            leader_id
            for member in record.members
            if (leader_id := _able_leader(situation, seen, member.node)) is not None
        ]
        if not able:
            return None
        order = {node: rank for rank, node in enumerate(record.wanted)}
        chosen = min(able, key=lambda s: (s.node == failed, order.get(s.node, len(order)), s.node))
        return election(record, chosen, self.presence.missing)

    # --- moves ---

    def _moves(
        self, situation: Situation, taken: Mapping[PartitionName, PartitionChange]
    ) -> dict[PartitionName, PartitionChange]:
        moving = [
            (name, seen, seen.move)
            for name, seen in situation.partitions.items()
            if seen.move is not None and name not in taken
        ]
        begin = self._that_begin(situation)
        changes = {}
        for name, seen, move in moving:
            if state_of(move, seen.record) is MoveState.DONE:
                changes[name] = PartitionChange(name, seen, is_move_done=True)
                continue
            record = next_record(move, seen.record, name in begin)
            if record is not None:
                changes[name] = PartitionChange(name, seen, record)
        return changes

    def _that_begin(self, situation: Situation) -> set[PartitionName]:
        """All moves whose copies may begin."""
        waiting: list[Copy] = []
        running: list[Copy] = []
        for name, seen in situation.partitions.items():
            copies = _copies(name, seen)
            is_waiting = (
                seen.move is not None and state_of(seen.move, seen.record) is MoveState.WAITING
            )
            (waiting if is_waiting else running).extend(copies)
        begun = set(may_begin(waiting, running))
        held_back = {copy.partition for copy in waiting if copy not in begun}
        return {copy.partition for copy in begun} - held_back

    # --- plans ---

    def _placement_nodes(self, situation: Situation, now_ns: int) -> list[PlacementNode]:
        lost = self.presence.lost(now_ns)
        nodes = []
        for number, seen in sorted(situation.nodes.items()):
            standing = NodeStanding.LOST if number in lost else seen.standing
            is_there = number not in self.presence.missing and seen.incarnation is not None
            is_steady = is_there and self.presence.is_steady(number, now_ns)
            nodes.append(PlacementNode(number, seen.zone, standing, is_steady))
        return nodes

    def _planned(
        self, situation: Situation, now_ns: int, taken: Mapping[PartitionName, PartitionChange]
    ) -> dict[PartitionName, PartitionChange]:
        nodes = self._placement_nodes(situation, now_ns)
        now = nodes, {name: seen.replicas for name, seen in situation.partitions.items()}
        is_due = now_ns - self._planned_ns >= limits.PLAN_EVERY_NS or now != self._planned_for
        if not is_due or self.presence.too_many_missing:
            return {}
        self._planned_ns, self._planned_for = now_ns, now
        drawn = plan(nodes, [_held(name, seen) for name, seen in situation.partitions.items()])
        planned = {}
        for name, seen in situation.partitions.items():
            if name in drawn or _has_another_minimum(seen):
                planned[name] = _begun(name, seen, drawn.get(name, seen.record.wanted))
        if planned.keys() & taken.keys():
            self.plan_again()
        return {name: change for name, change in planned.items() if name not in taken}

    def plan_again(self) -> None:
        """A part of the plan was left out or failed, since its record has changed."""
        self._planned_for = None


def _begun(name: PartitionName, seen: PartitionSeen, after: tuple[int, ...]) -> PartitionChange:
    """Where a move is under way, the new plan starts from the replicas that exist."""
    members = tuple(member.node for member in seen.record.members)
    origin = members if seen.move is not None else seen.record.wanted
    least = members_min_of(seen, len(after))
    move = PartitionMove(name, origin, after, least, seen.record.members_min)
    return PartitionChange(name, seen, move=move)


def _has_another_minimum(seen: PartitionSeen) -> bool:
    least = members_min_of(seen, len(seen.record.wanted))
    return seen.move is None and seen.record.members_min != least


def _held(name: PartitionName, seen: PartitionSeen) -> PlacementPartition:
    wanted = seen.move.target if seen.move is not None else seen.record.wanted
    members = tuple(member.node for member in seen.record.members)
    return PlacementPartition(name, seen.replicas, wanted, members)


def _copies(name: PartitionName, seen: PartitionSeen) -> list[Copy]:
    """Replicas that are being copied, or should be."""
    record, leader = seen.record, seen.record.leader
    if leader is None:
        return []
    targets = [node for node in record.wanted if record.member_on(node) is None]
    if seen.move is not None:
        targets = list(lacking(seen.move, record))
    spare = len(record.members) - record.members_min
    is_move = seen.move is not None
    return [Copy(name, leader.node, node, spare, is_move) for node in targets]


def _able_leader(situation: Situation, seen: PartitionSeen, number: int) -> LeaderId | None:
    """The member on a node, if it may lead."""
    node, member = situation.nodes.get(number), seen.record.member_on(number)
    if node is None or node.incarnation is None or member is None:
        return None
    leader_id = LeaderId(number, node.incarnation, member.replica)
    candidate = Candidate(
        leader_id, node.generation, node.generation, node.memory_lost_generation, seen.waits, False
    )
    return leader_id if hindrance(seen.record, candidate) is None else None


class Presence:
    """Which nodes are there, since when, and which are lost, as one controller has seen it.

    A node's key vanishes when its lease runs out, which an outage of the coordinator does to all of
    them at once. So a node is **missing** only when it can't be reached directly either, and
    nothing counts that was seen before the controller took over, or while its watch was broken: its
    times begin then.

    A missing node is **lost** after a while: its replicas are made again elsewhere. Never while
    more than a fifth of the nodes are missing (one may always be): then something else is at fault,
    and copying everything would make it worse.
    """

    def __init__(self) -> None:
        self._nodes: frozenset[int] = frozenset()
        self._there_since_ns: dict[int, int] = {}
        self._missing_since_ns: dict[int, int] = {}

    def forget(self) -> None:
        self._there_since_ns.clear()
        self._missing_since_ns.clear()

    def look(
        self,
        nodes: Iterable[int],
        registered: Collection[int],
        reachable: Collection[int],
        now_ns: int,
    ) -> None:
        """`nodes`: all members of the cluster. `registered`: those whose key exists."""
        self._nodes = frozenset(nodes)
        for node in self._nodes:
            if node in registered:
                self._missing_since_ns.pop(node, None)
                self._there_since_ns.setdefault(node, now_ns)
                continue
            self._there_since_ns.pop(node, None)
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
