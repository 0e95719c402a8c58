"""The placement of replicas: a plan made of values, without carrying anything out.

A plan names, for each partition that should change, the nodes that should have a replica, in order
of preference; the first is the one that should lead. What is wanted, in falling order:

1. **No node twice.** A partition has at most one replica on a node.
2. **Enough.** Each has as many as its topic asks for, on nodes that stay. Replicas leave nodes that
   are lost or drained; where no other node is free, they stay there. A node in maintenance keeps
   what it has and gets nothing new.
3. **Zones.** Replicas are spread over the zones as evenly as their nodes allow. A node that names
   no zone is one by itself.
4. **Balance.** Replicas are spread evenly over nodes, then leaderships.

**Fewest moves.** Steps 2 and 3 move what has to be moved, once, to where balance wants it. Step 4
takes from the fullest node and gives to the emptiest, and a move has to bring the two closer
together, which is the least number there is. Nodes that differ by less than a share of the mean are
balanced.

**Only in peace.** Nothing is moved for balance while a partition lacks members: first what is lost
is made whole, with the disks and the network to itself.

The same cluster gives the same plan, and a cluster that follows its plan gives an empty one.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import chain
from typing import NamedTuple

from penstock import limits
from penstock.cluster.keys import PartitionName


class NodeStanding(IntEnum):
    """In the order in which superfluous replicas are removed."""

    LOST = 1  # as draining, and nothing can be read from it
    DRAINING = 2  # for good: its replicas move away
    MAINTENANCE = 3  # for a while: leads nothing, gets nothing new, keeps what it has
    SERVES = 4


class PlacementNode(NamedTuple):
    """A node, as far as placement needs it."""

    number: int
    zone: str = ""
    standing: NodeStanding = NodeStanding.SERVES
    is_steady: bool = True  # else it has only just come, and gets nothing new

    @property
    def stays(self) -> bool:
        return self.standing in (NodeStanding.SERVES, NodeStanding.MAINTENANCE)

    @property
    def serves(self) -> bool:
        return self.standing is NodeStanding.SERVES

    @property
    def takes(self) -> bool:
        return self.serves and self.is_steady


class PlacementPartition(NamedTuple):
    """A partition: its replicas, and the number that its topic wants."""

    partition: PartitionName
    replicas: int  # asked for
    wanted: tuple[int, ...]  # nodes, in order of preference; none yet: it is new
    members: tuple[int, ...] = ()  # nodes of the in-sync set

    @property
    def is_whole(self) -> bool:
        return set(self.wanted) <= set(self.members)


def plan(
    nodes: Iterable[PlacementNode], partitions: Iterable[PlacementPartition]
) -> dict[PartitionName, tuple[int, ...]]:
    """The new nodes of partitions that should change."""
    drawing = _Drawing(sorted(nodes), sorted(partitions))
    drawing.repair()
    drawing.spread_zones()
    if drawing.is_in_peace:
        drawing.balance()
    drawing.move_leaders_off()
    if drawing.is_in_peace:
        drawing.balance_leaders()
    return drawing.result()


def choose_nodes(
    nodes: Iterable[PlacementNode], there: Collection[tuple[int, ...]], count: int, replicas: int
) -> list[tuple[int, ...]]:
    """Nodes for this many new partitions beside others (`there`: their nodes), in order of
    preference. The one that leads the fewest comes first: a new partition has no load yet. Unlike
    `plan` it is cheap: a client waits for it."""
    zones = {
        node.number: node.zone or f"node {node.number}" for node in sorted(nodes) if node.takes
    }
    held = Counter(chain.from_iterable(there))
    led = Counter(wanted[0] for wanted in there if wanted)
    placed = []
    for _ in range(count):
        chosen, in_zone = list[int](), Counter[str]()
        while len(chosen) < min(replicas, len(zones)):
            free = [node for node in zones if node not in chosen]
            node = min(free, key=lambda one: (in_zone[zones[one]], held[one], one))
            chosen.append(node)
            in_zone[zones[node]] += 1
        held.update(chosen)
        chosen.sort(key=lambda one: led[one])
        led.update(chosen[:1])
        placed.append(tuple(chosen))
    return placed


class _Drawing:
    def __init__(self, nodes: list[PlacementNode], partitions: list[PlacementPartition]) -> None:
        self.nodes = {node.number: node for node in nodes}
        self.partitions = partitions
        for held in partitions:
            for number in held.wanted:  # one that is not listed has left for good
                self.nodes.setdefault(number, PlacementNode(number, standing=NodeStanding.LOST))
        zones = {n: node.zone or f"node {n}" for n, node in self.nodes.items()}
        self.layout = ReplicaLayout(zones, {held.partition: held.wanted for held in partitions})
        self.takers = [n for n, node in self.nodes.items() if node.takes]
        self.servers = [n for n, node in self.nodes.items() if node.serves]
        # What only begins with this plan counts too: see `repair`.
        self.is_in_peace = all(held.is_whole for held in partitions)

    # --- enough, on nodes that stay ---

    def repair(self) -> None:
        for held in self.partitions:
            while len(self.layout.nodes[held.partition]) > held.replicas:
                self.layout.remove(held.partition, self._most_superfluous(held.partition))
            self._leave_nodes(held.partition)
            while len(self.layout.nodes[held.partition]) < held.replicas:
                node = self.layout.best(held.partition, self.takers)
                if node is None:
                    break
                self.layout.add(held.partition, node)
                if held.wanted:
                    self.is_in_peace = False

    def _leave_nodes(self, partition: PartitionName) -> None:
        for number in self.layout.nodes[partition]:
            node = self.nodes[number]
            if node.stays:
                continue
            other = self.layout.best(partition, self.takers, without=number)
            if other is not None:
                self.layout.replace(partition, number, other)
                if node.standing is NodeStanding.LOST:
                    self.is_in_peace = False

    def _most_superfluous(self, partition: PartitionName) -> int:
        """Lost before drained before intact, of the fullest zone, on the fullest node; the most
        preferred last among equals."""
        nodes = self.layout.nodes[partition]

        def value(node: int) -> tuple[int, int, int, int]:
            in_zone, standing = self.layout.in_zone(partition, node), self.nodes[node].standing
            return standing, -in_zone, -self.layout.count_on(node), -nodes.index(node)

        return min(nodes, key=value)

    # --- zones ---

    def spread_zones(self) -> None:
        """Move a replica to a zone that has at least two fewer."""
        for held in self.partitions:
            while True:
                step = self._zone_step(held.partition)
                if step is None:
                    break
                self.layout.replace(held.partition, *step)

    def _zone_step(self, partition: PartitionName) -> tuple[int, int] | None:
        target = self.layout.best(partition, self.takers)
        if target is None:
            return None
        room = self.layout.in_zone(partition, target) + 2
        sources = [
            node
            for node in self.layout.nodes[partition]
            if self.nodes[node].serves and self.layout.in_zone(partition, node) >= room
        ]
        if not sources:
            return None
        source = max(sources, key=lambda node: self._eagerness(partition, node))
        return source, target

    def _eagerness(self, partition: PartitionName, node: int) -> tuple[int, bool, int, int]:
        is_follower = self.layout.nodes[partition][0] != node
        in_zone = self.layout.in_zone(partition, node)
        return in_zone, is_follower, self.layout.count_on(node), -node

    # --- balance ---

    def balance(self) -> None:
        """Move replicas from the fullest node to the emptiest; then from others, where zones forbid
        that."""
        count, slack = self.layout.count_on, _slack(self.layout.count_on, self.takers)
        for _ in range(limits.PLACEMENT_STEPS_MAX):
            rising = sorted(self.takers, key=lambda node: (count(node), node))
            falling = sorted(self.servers, key=lambda node: (-count(node), node))
            step = _first_step(falling, rising, count, slack, self._to_move)
            if step is None:
                return
            self.layout.replace(*step)

    def _to_move(self, source: int, target: int) -> PartitionName | None:
        """Prefer a replica that only follows: then the leader need not change."""
        for is_led in (False, True):
            for partition in self.layout.on[source]:
                if (self.layout.nodes[partition][0] == source) is is_led and (
                    self.layout.may_replace(partition, source, target)
                ):
                    return partition
        return None

    # --- leaders ---

    def move_leaders_off(self) -> None:
        for held in self.partitions:
            nodes = self.layout.nodes[held.partition]
            able = [node for node in nodes if self.nodes[node].serves]
            if able and nodes[0] not in able:
                node = min(able, key=lambda n: (self.layout.led_count(n), n))
                self.layout.prefer(held.partition, node)

    def balance_leaders(self) -> None:
        count, slack = self.layout.led_count, _slack(self.layout.led_count, self.servers)
        for _ in range(limits.PLACEMENT_STEPS_MAX):
            rising = sorted(self.servers, key=lambda node: (count(node), node))
            step = _first_step(rising[::-1], rising, count, slack, self._to_lead)
            if step is None:
                return
            partition, _, target = step
            self.layout.prefer(partition, target)

    def _to_lead(self, source: int, target: int) -> PartitionName | None:
        for partition in self.layout.on[source]:
            nodes = self.layout.nodes[partition]
            if nodes[0] == source and target in nodes:
                return partition
        return None

    # --- results ---

    def result(self) -> dict[PartitionName, tuple[int, ...]]:
        return {
            held.partition: nodes
            for held in self.partitions
            if (nodes := self.layout.nodes[held.partition]) != held.wanted
        }


def _slack(count: Callable[[int], int], nodes: Collection[int]) -> float:
    """The tolerated difference between two nodes; a difference of one cannot be evened out."""
    mean = sum(map(count, nodes)) / max(len(nodes), 1)
    return max(limits.PLACEMENT_TOLERANCE * mean, 1)


def _first_step(
    sources: Iterable[int],
    rising: Iterable[int],
    count: Callable[[int], int],
    slack: float,
    choose: Callable[[int, int], PartitionName | None],
) -> tuple[PartitionName, int, int] | None:
    """The first move from a node to one of the emptier ones."""
    for source in sources:
        for target in rising:
            if count(source) - count(target) <= slack:
                break
            partition = choose(source, target)
            if partition is not None:
                return partition, source, target
    return None


class ReplicaLayout:
    """Which node has which replica, while placement tries moves. It ignores preferences."""

    def __init__(
        self, zones: Mapping[int, str], nodes: Mapping[PartitionName, tuple[int, ...]]
    ) -> None:
        self._zones = zones
        self.nodes: dict[PartitionName, tuple[int, ...]] = dict.fromkeys(nodes, ())
        self.on: dict[int, dict[PartitionName, None]] = {node: {} for node in zones}
        self._led: Counter[int] = Counter()
        for partition, held in nodes.items():
            self._put(partition, held)

    def count_on(self, node: int) -> int:
        return len(self.on[node])

    def led_count(self, node: int) -> int:
        return self._led[node]

    def in_zone(self, partition: PartitionName, node: int, without: int | None = None) -> int:
        zone = self._zones[node]
        held = self.nodes[partition]
        return sum(self._zones[one] == zone for one in held if one != without)

    def best(
        self, partition: PartitionName, nodes: Sequence[int], without: int | None = None
    ) -> int | None:
        """The best node for one more replica: in the emptiest zone, the emptiest node."""
        held = self.nodes[partition]
        free = [node for node in nodes if node not in held]
        if not free:
            return None
        return min(free, key=lambda n: (self.in_zone(partition, n, without), self.count_on(n), n))

    def may_replace(self, partition: PartitionName, source: int, target: int) -> bool:
        """True if the zones stay as evenly filled as they are."""
        if target in self.nodes[partition]:
            return False
        there = self.in_zone(partition, target, without=source)
        return there < self.in_zone(partition, source)

    # --- moves ---

    def add(self, partition: PartitionName, node: int) -> None:
        self._put(partition, (*self.nodes[partition], node))

    def remove(self, partition: PartitionName, node: int) -> None:
        self._put(partition, tuple(one for one in self.nodes[partition] if one != node))

    def replace(self, partition: PartitionName, source: int, target: int) -> None:
        """Replace at the same position of the order."""
        nodes = self.nodes[partition]
        self._put(partition, tuple(target if one == source else one for one in nodes))

    def prefer(self, partition: PartitionName, node: int) -> None:
        rest = (one for one in self.nodes[partition] if one != node)
        self._put(partition, (node, *rest))

    def _put(self, partition: PartitionName, nodes: tuple[int, ...]) -> None:
        before = self.nodes[partition]
        for node in set(before) - set(nodes):
            del self.on[node][partition]
        for node in set(nodes) - set(before):
            self.on[node][partition] = None
        self._led.subtract(before[:1])
        self._led.update(nodes[:1])
        self.nodes[partition] = nodes
