"""Where the replicas of partitions should be: a plan, as values, without carrying anything out.

A plan names, for each partition that should change, the nodes that should have a replica, in order
of preference; the first is the one that should lead. What is wanted, in falling order:

1. **No node twice.** A partition has at most one replica on a node.
2. **Enough.** Each has as many as its topic asks for, on nodes that stay. Replicas leave nodes that
   are lost or drained; where no other node is free, they stay there, and the plan says so. A node
   in maintenance keeps what it has and gets nothing new.
3. **Zones.** Replicas are spread over the zones as evenly as their nodes allow. A node that names
   no zone is one by itself.
4. **Balance.** Bytes kept are spread evenly over nodes, then the load of leading.

**Fewest moves.** Steps 2 and 3 move what has to be moved, once, to where balance wants it. Step 4
takes from the fullest node and gives to the emptiest, and a move has to bring the two closer
together; where all replicas weigh the same that is the least number there is. Nodes that differ by
less than a share of the mean are balanced: loads are measured, and nothing is copied for noise.

**Only in peace.** Nothing is moved for balance while a partition lacks members: first what is lost
is made whole, with the disks and the network to itself.

The same cluster gives the same plan, and a cluster that follows its plan gives an empty one.

The layout on which placement tries its moves: which node has which replica, and its weight.

It keeps sums, so that a move costs little, and knows no preferences: those are placement's. Weights
are whole numbers, so that sums are exact: a rest of rounding would look like a reason to move.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from penstock import limits
from penstock.cluster.keys import PartitionName
from penstock.errors import ConfigError


class NodeStanding(Enum):
    SERVES = "serves"
    MAINTENANCE = "maintenance"  # for a while: leads nothing, gets nothing new, keeps what it has
    DRAINING = "draining"  # for good: its replicas move away
    LOST = "lost"  # as draining, and nothing can be read from it


class PlacementNode(NamedTuple):
    """A node, as far as placement goes."""

    number: int
    zone: str = ""
    standing: NodeStanding = NodeStanding.SERVES
    is_full: bool = False  # its disk is below the watermark: it gets nothing new

    @property
    def stays(self) -> bool:
        return self.standing in (NodeStanding.SERVES, NodeStanding.MAINTENANCE)

    @property
    def takes(self) -> bool:
        return self.standing is NodeStanding.SERVES and not self.is_full


class PlacementPartition(NamedTuple):
    """A partition: what there is, and what its topic asks for."""

    partition: PartitionName
    replicas: int  # asked for
    wanted: tuple[int, ...]  # nodes, in order of preference; none yet: it is new
    members: tuple[int, ...] = ()  # nodes of the in-sync set
    bytes_kept: float = 0.0  # averages
    led_bytes_per_s: float = 0.0

    @property
    def weight(self) -> int:
        """Of a replica. An empty one counts too: it has files, and may grow."""
        return round(self.bytes_kept) + limits.PLACEMENT_REPLICA_BYTES

    @property
    def led_weight(self) -> int:
        return round(self.led_bytes_per_s) + limits.PLACEMENT_LEADER_BYTES_PER_S

    @property
    def is_whole(self) -> bool:
        return set(self.wanted) <= set(self.members)


class Reason(Enum):
    NEW = "new partition"
    LOST = "its node is lost"
    DRAINED = "its node is drained"
    RAISED = "more replicas"
    LOWERED = "fewer replicas"
    ZONES = "zones"
    BALANCE = "balance"
    LEADERS = "leaders"


class PlacementChange(NamedTuple):
    partition: PartitionName
    before: tuple[int, ...]
    after: tuple[int, ...]
    reason: Reason  # the first one, in the order of the steps
    copied_bytes: float

    @property
    def come(self) -> tuple[int, ...]:
        return tuple(node for node in self.after if node not in self.before)

    @property
    def gone(self) -> tuple[int, ...]:
        return tuple(node for node in self.before if node not in self.after)


class Short(NamedTuple):
    """A partition for which there are too few nodes."""

    partition: PartitionName
    lacking: int


class PlacementPlan(NamedTuple):
    changes: tuple[PlacementChange, ...]
    short: tuple[Short, ...] = ()
    held_back: str | None = None  # why nothing is moved for balance

    @property
    def moves(self) -> int:
        """Replicas that are copied."""
        return sum(len(change.come) for change in self.changes)

    @property
    def copied_bytes(self) -> float:
        return sum(change.copied_bytes for change in self.changes)


def plan(
    nodes: Iterable[PlacementNode],
    partitions: Iterable[PlacementPartition],
    tolerance: float = limits.PLACEMENT_TOLERANCE,
    steps_max: int = limits.PLACEMENT_STEPS_MAX,
) -> PlacementPlan:
    """Raises ConfigError for a partition that wants a node twice, or less than one replica."""
    drawing = _Drawing(sorted(nodes), sorted(partitions))
    drawing.repair()
    drawing.spread_zones()
    held_back = drawing.hindrance_of_balance()
    if held_back is None:
        drawing.balance(tolerance, steps_max)
    drawing.move_leaders_off()
    if held_back is None:
        drawing.balance_leaders(tolerance, steps_max)
    return drawing.result(held_back)


class _Drawing:
    def __init__(self, nodes: list[PlacementNode], partitions: list[PlacementPartition]) -> None:
        self.nodes = {node.number: node for node in nodes}
        self.partitions = partitions
        for held in partitions:
            _check(held)
            for number in held.wanted:  # one that is not listed has left for good
                self.nodes.setdefault(number, PlacementNode(number, standing=NodeStanding.LOST))
        zones = {n: node.zone or f"node {n}" for n, node in self.nodes.items()}
        self.layout = ReplicaLayout(zones, {held.partition: held.wanted for held in partitions})
        self.weights = {held.partition: held.weight for held in partitions}
        self.led_weights = {held.partition: held.led_weight for held in partitions}
        self.layout.weigh(self.weights, self.led_weights)
        self.reasons: dict[PartitionName, Reason] = {}
        self.takers = [n for n, node in self.nodes.items() if node.takes]

    def _note(self, partition: PartitionName, reason: Reason) -> None:
        self.reasons.setdefault(partition, reason)

    # --- enough, on nodes that stay ---

    def repair(self) -> None:
        for held in self.partitions:
            while len(self.layout.nodes_of(held.partition)) > held.replicas:
                self.layout.remove(held.partition, self._most_superfluous(held.partition))
                self._note(held.partition, Reason.LOWERED)
            self._leave_nodes(held)
            while len(self.layout.nodes_of(held.partition)) < held.replicas:
                node = self.layout.best(held.partition, self.takers)
                if node is None:
                    break
                self.layout.add(held.partition, node)
                self._note(held.partition, Reason.RAISED if held.wanted else Reason.NEW)

    def _leave_nodes(self, held: PlacementPartition) -> None:
        for number in self.layout.nodes_of(held.partition):
            node = self.nodes[number]
            if node.stays:
                continue
            other = self.layout.best(held.partition, self.takers, without=number)
            if other is not None:
                self.layout.replace(held.partition, number, other)
                is_lost = node.standing is NodeStanding.LOST
                self._note(held.partition, Reason.LOST if is_lost else Reason.DRAINED)

    def _most_superfluous(self, partition: PartitionName) -> int:
        """Lost before drained before sound, of the fullest zone, on the fullest node; the one that
        is preferred most goes last of these."""
        nodes = self.layout.nodes_of(partition)

        def value(node: int) -> tuple[int, int, int, int]:
            order = (
                NodeStanding.LOST,
                NodeStanding.DRAINING,
                NodeStanding.MAINTENANCE,
                NodeStanding.SERVES,
            )
            in_zone = self.layout.in_zone(partition, node)
            at = order.index(self.nodes[node].standing)
            return at, -in_zone, -self.layout.weight_of(node), -nodes.index(node)

        return min(nodes, key=value)

    # --- zones ---

    def spread_zones(self) -> None:
        """A replica goes from a zone to another one that has at least two fewer."""
        for held in self.partitions:
            while True:
                step = self._zone_step(held.partition)
                if step is None:
                    break
                self.layout.replace(held.partition, *step)
                self._note(held.partition, Reason.ZONES)

    def _zone_step(self, partition: PartitionName) -> tuple[int, int] | None:
        target = self.layout.best(partition, self.takers)
        if target is None:
            return None
        room = self.layout.in_zone(partition, target) + 2
        sources = [
            node
            for node in self.layout.nodes_of(partition)
            if self.nodes[node].standing is NodeStanding.SERVES
            and self.layout.in_zone(partition, node) >= room
        ]
        if not sources:
            return None
        source = max(sources, key=lambda node: self._eagerness(partition, node))
        return source, target

    def _eagerness(self, partition: PartitionName, node: int) -> tuple[int, bool, int, int]:
        is_follower = self.layout.leader_of(partition) != node
        in_zone = self.layout.in_zone(partition, node)
        return in_zone, is_follower, self.layout.weight_of(node), -node

    # --- balance ---

    def hindrance_of_balance(self) -> str | None:
        """Partitions that wait for members. What only begins with this plan counts too."""
        for held in self.partitions:
            if held.wanted and not held.is_whole:
                lacking = sorted(set(held.wanted) - set(held.members))
                return f"{_spelled(held.partition)} waits for node {lacking[0]}"
        urgent = (Reason.LOST, Reason.RAISED)
        for partition, reason in self.reasons.items():
            if reason in urgent:
                return f"{_spelled(partition)} is to be made whole first ({reason.value})"
        return None

    def balance(self, tolerance: float, steps_max: int) -> None:
        slack = tolerance * self.layout.mean_weight(self.takers)
        for _ in range(steps_max):
            step = next(self._balancing_steps(slack), None)
            if step is None:
                return
            self.layout.replace(*step)
            self._note(step[0], Reason.BALANCE)

    def _balancing_steps(self, slack: float) -> Iterator[tuple[PartitionName, int, int]]:
        """From the fullest to the emptiest; then from others, where zones forbid that."""
        rising = sorted(self.takers, key=lambda node: (self.layout.weight_of(node), node))
        sources = [n for n, node in self.nodes.items() if node.standing is NodeStanding.SERVES]
        sources.sort(key=lambda node: (-self.layout.weight_of(node), node))
        for source in sources:
            for target in rising:
                between = self.layout.weight_of(source) - self.layout.weight_of(target)
                if between <= slack:
                    break
                partition = self._best_to_move(source, target, between)
                if partition is not None:
                    yield partition, source, target

    def _best_to_move(self, source: int, target: int, between: int) -> PartitionName | None:
        """The one whose move brings the two nodes closest together; rather one that only follows
        there: its leader need not change."""
        best: tuple[int, bool] | None = None
        chosen = None
        for partition in self.layout.partitions_of(source):
            weight = self.weights[partition]
            value = (weight * (between - weight), self.layout.leader_of(partition) != source)
            if weight >= between or (best is not None and value <= best):
                continue
            if self.layout.may_replace(partition, source, target):
                best, chosen = value, partition
        return chosen

    # --- leaders ---

    def move_leaders_off(self) -> None:
        for held in self.partitions:
            nodes = self.layout.nodes_of(held.partition)
            able = [n for n in nodes if self.nodes[n].standing is NodeStanding.SERVES]
            if able and nodes[0] not in able:
                node = min(able, key=lambda n: (self.layout.led_weight_of(n), n))
                self.layout.prefer(held.partition, node)
                self._note(held.partition, Reason.LEADERS)

    def balance_leaders(self, tolerance: float, steps_max: int) -> None:
        able = [n for n, node in self.nodes.items() if node.standing is NodeStanding.SERVES]
        slack = tolerance * self.layout.mean_led_weight(able)
        for _ in range(steps_max):
            step = next(self._leading_steps(able, slack), None)
            if step is None:
                return
            self.layout.prefer(*step)
            self._note(step[0], Reason.LEADERS)

    def _leading_steps(self, able: list[int], slack: float) -> Iterator[tuple[PartitionName, int]]:
        led = self.layout.led_weight_of
        rising = sorted(able, key=lambda node: (led(node), node))
        for source in reversed(rising):
            for target in rising:
                between = led(source) - led(target)
                if between <= slack:
                    break
                partition = self._best_to_lead(source, target, between)
                if partition is not None:
                    yield partition, target

    def _best_to_lead(self, source: int, target: int, between: int) -> PartitionName | None:
        best, chosen = 0, None
        for partition in self.layout.led_by(source):
            weight = self.led_weights[partition]
            gain = weight * (between - weight)
            if gain > best and target in self.layout.nodes_of(partition):
                best, chosen = gain, partition
        return chosen

    # --- what comes of it ---

    def result(self, held_back: str | None) -> PlacementPlan:
        changes, short = [], []
        for held in self.partitions:
            after = self.layout.nodes_of(held.partition)
            if after != held.wanted:
                reason = self.reasons[held.partition]
                copies = len(set(after) - set(held.wanted))
                copied = copies * held.bytes_kept
                changes.append(PlacementChange(held.partition, held.wanted, after, reason, copied))
            lacking = held.replicas - sum(self.nodes[node].stays for node in after)
            if lacking > 0:
                short.append(Short(held.partition, lacking))
        return PlacementPlan(tuple(changes), tuple(short), held_back)


def _check(held: PlacementPartition) -> None:
    if held.replicas < 1:
        raise ConfigError(
            f"replicas of {_spelled(held.partition)}", held.replicas, "it has to be 1 at least"
        )
    if len(set(held.wanted)) < len(held.wanted):
        raise ConfigError(
            f"nodes of {_spelled(held.partition)}", held.wanted, "a node has one replica at most"
        )


def _spelled(partition: PartitionName) -> str:
    return f"{partition.topic}/{partition.number}"


def described(drawn: PlacementPlan) -> list[str]:
    """Lines for a person: what `--dry-run` prints."""
    lines = []
    for change in drawn.changes:
        before = ", ".join(map(str, change.before)) or "nothing"
        after = ", ".join(map(str, change.after))
        lines.append(f"{_spelled(change.partition)}: {before} -> {after} ({change.reason.value})")
    for short in drawn.short:
        lines.append(f"{_spelled(short.partition)}: {short.lacking} more nodes are needed")
    if drawn.held_back is not None:
        lines.append(f"nothing is moved for balance: {drawn.held_back}")
    copies = f"{drawn.moves} replicas, {drawn.copied_bytes / limits.MIB:.0f} MiB to copy"
    return [*lines, copies if drawn.changes else "nothing to do"]


class ReplicaLayout:
    def __init__(
        self, zones: Mapping[int, str], nodes: Mapping[PartitionName, tuple[int, ...]]
    ) -> None:
        self._zones = zones
        self._nodes = {partition: list(held) for partition, held in nodes.items()}
        self._weights: Mapping[PartitionName, int] = {}
        self._led_weights: Mapping[PartitionName, int] = {}
        self._weight = dict.fromkeys(zones, 0)
        self._led_weight = dict.fromkeys(zones, 0)
        self._on: dict[int, dict[PartitionName, None]] = {node: {} for node in zones}

    def weigh(
        self, weights: Mapping[PartitionName, int], led_weights: Mapping[PartitionName, int]
    ) -> None:
        """Once, before anything moves."""
        self._weights, self._led_weights = weights, led_weights
        for partition, nodes in self._nodes.items():
            for node in nodes:
                self._weight[node] += weights[partition]
                self._on[node][partition] = None
            if nodes:
                self._led_weight[nodes[0]] += led_weights[partition]

    # --- what is where ---

    def nodes_of(self, partition: PartitionName) -> tuple[int, ...]:
        return tuple(self._nodes[partition])

    def leader_of(self, partition: PartitionName) -> int | None:
        nodes = self._nodes[partition]
        return nodes[0] if nodes else None

    def partitions_of(self, node: int) -> Iterable[PartitionName]:
        return self._on[node]

    def led_by(self, node: int) -> Iterable[PartitionName]:
        return [one for one in self._on[node] if self._nodes[one][0] == node]

    def weight_of(self, node: int) -> int:
        return self._weight[node]

    def led_weight_of(self, node: int) -> int:
        return self._led_weight[node]

    def mean_weight(self, nodes: Collection[int]) -> float:
        return sum(self._weight[node] for node in nodes) / max(len(nodes), 1)

    def mean_led_weight(self, nodes: Collection[int]) -> float:
        return sum(self._led_weight[node] for node in nodes) / max(len(nodes), 1)

    def in_zone(self, partition: PartitionName, node: int, without: int | None = None) -> int:
        """Replicas in that node's zone."""
        zone = self._zones[node]
        held = self._nodes[partition]
        return sum(self._zones[one] == zone for one in held if one != without)

    def best(
        self, partition: PartitionName, nodes: Sequence[int], without: int | None = None
    ) -> int | None:
        """Where one more replica would be best: in the emptiest zone, on the emptiest node."""
        held = self._nodes[partition]
        free = [node for node in nodes if node not in held]
        if not free:
            return None
        return min(free, key=lambda n: (self.in_zone(partition, n, without), self._weight[n], n))

    def may_replace(self, partition: PartitionName, source: int, target: int) -> bool:
        """The zones stay as evenly filled as they are."""
        if target in self._nodes[partition]:
            return False
        there = self.in_zone(partition, target, without=source)
        return there < self.in_zone(partition, source)

    # --- moves ---

    def add(self, partition: PartitionName, node: int) -> None:
        self._put(partition, [*self._nodes[partition], node])

    def remove(self, partition: PartitionName, node: int) -> None:
        self._put(partition, [one for one in self._nodes[partition] if one != node])

    def replace(self, partition: PartitionName, source: int, target: int) -> None:
        """At the same position of the order."""
        nodes = self._nodes[partition]
        self._put(partition, [target if one == source else one for one in nodes])

    def prefer(self, partition: PartitionName, node: int) -> None:
        rest = [one for one in self._nodes[partition] if one != node]
        self._put(partition, [node, *rest])

    def _put(self, partition: PartitionName, nodes: list[int]) -> None:
        before = self._nodes[partition]
        for node in set(before) - set(nodes):
            self._weight[node] -= self._weights[partition]
            del self._on[node][partition]
        for node in set(nodes) - set(before):
            self._weight[node] += self._weights[partition]
            self._on[node][partition] = None
        if before:
            self._led_weight[before[0]] -= self._led_weights[partition]
        if nodes:
            self._led_weight[nodes[0]] += self._led_weights[partition]
        self._nodes[partition] = nodes
