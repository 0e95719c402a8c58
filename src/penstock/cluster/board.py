"""The board on which placement tries its moves: who has which replica, and what that weighs.

It keeps sums, so that a move costs little, and knows no wishes: those are placement's. Weights are
whole numbers, so that sums are exact: a rest of rounding would look like a reason to move.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from penstock.cluster.keys import PartitionName


class Board:
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

    def crowd(self, partition: PartitionName, node: int, without: int | None = None) -> int:
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
        return min(free, key=lambda n: (self.crowd(partition, n, without), self._weight[n], n))

    def may_replace(self, partition: PartitionName, source: int, target: int) -> bool:
        """The zones stay as evenly filled as they are."""
        if target in self._nodes[partition]:
            return False
        there = self.crowd(partition, target, without=source)
        return there < self.crowd(partition, source)

    # --- moves ---

    def add(self, partition: PartitionName, node: int) -> None:
        self._put(partition, [*self._nodes[partition], node])

    def remove(self, partition: PartitionName, node: int) -> None:
        self._put(partition, [one for one in self._nodes[partition] if one != node])

    def replace(self, partition: PartitionName, source: int, target: int) -> None:
        """In the same place of the order."""
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
