"""Placement: each wish by an example, then all of them over clusters at random."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from cases import each
from penstock import limits
from penstock.cluster.keys import PartitionName
from penstock.cluster.placement import (
    NodeStanding,
    PlacementNode,
    PlacementPartition,
    choose_nodes,
    plan,
)

Plan = Mapping[PartitionName, tuple[int, ...]]
T0, T1, T2 = (PartitionName("t", number) for number in range(3))
THREE = [PlacementNode(1), PlacementNode(2), PlacementNode(3)]


def held(name: PartitionName, *wanted: int) -> PlacementPartition:
    return PlacementPartition(name, len(wanted), wanted, wanted)


def carried_out(partitions: Iterable[PlacementPartition], drawn: Plan) -> list[PlacementPartition]:
    return [
        one._replace(wanted=nodes, members=nodes)
        for one in partitions
        for nodes in [drawn.get(one.partition, one.wanted)]
    ]


def moves(partitions: Iterable[PlacementPartition], drawn: Plan) -> int:
    """Replicas that are copied."""
    before = {one.partition: set(one.wanted) for one in partitions}
    return sum(len(set(after) - before[name]) for name, after in drawn.items())


class TestEnough:
    def test_where_no_node_is_free_a_replica_stays(self) -> None:
        nodes = [PlacementNode(1), PlacementNode(2, standing=NodeStanding.DRAINING)]
        assert plan(nodes, [held(T0, 1, 2)]) == {}

    def test_a_node_in_maintenance_keeps_what_it_has_and_leads_nothing(self) -> None:
        nodes = [
            PlacementNode(1, standing=NodeStanding.MAINTENANCE),
            PlacementNode(2),
            PlacementNode(3),
        ]
        drawn = plan(nodes, [held(T0, 1, 2), PlacementPartition(T1, 2, ())])
        assert drawn[T0] == (2, 1)
        assert 1 not in drawn[T1]


class TestNewPartitions:
    def test_they_go_to_the_emptiest_nodes_and_the_one_that_leads_least_comes_first(self) -> None:
        there = [(1, 2), (1, 3)]
        assert choose_nodes(THREE, there, 3, 2) == [(2, 3), (2, 1), (3, 1)]

    def test_replicas_are_in_as_many_zones_as_there_are_and_fewer_where_nodes_lack(self) -> None:
        nodes = [PlacementNode(1, "a"), PlacementNode(2, "a"), PlacementNode(3, "b")]
        nodes.append(PlacementNode(4, "c", NodeStanding.MAINTENANCE))
        assert choose_nodes(nodes, [(3,), (3,)], 1, 2) == [(1, 3)]
        assert choose_nodes(nodes, [], 1, 5) == [(1, 3, 2)]
        assert choose_nodes(nodes[3:], [], 1, 1) == [()]


class TestBalance:
    @each(("fuller", "moved"), [(26, 2), (22, 0)])
    def test_nodes_that_differ_by_little_are_left_alone(self, fuller: int, moved: int) -> None:
        names = [PartitionName("t", number) for number in range(40 if moved else 42)]
        there = [held(name, 1 if name.number < fuller else 2) for name in names]
        drawn = plan([PlacementNode(1), PlacementNode(2)], there)
        assert moves(there, drawn) >= moved
        assert bool(drawn) is bool(moved)

    @each(("change", "changed"), [({"replicas": 2}, {T0}), ({"members": ()}, set())])
    def test_nothing_is_balanced_while_replicas_are_missing(
        self, change: dict[str, Any], changed: set[PartitionName]
    ) -> None:
        names = [PartitionName("t", number) for number in range(12)]
        there = [held(name, 1 + number % 2) for number, name in enumerate(names)]
        there[0] = there[0]._replace(**change)
        assert plan(THREE, there).keys() == changed

    def test_leaders_are_spread(self) -> None:
        there = [held(name, 1, 2, 3) for name in (T0, T1, T2)]
        drawn = plan(THREE, there)
        assert moves(there, drawn) == 0
        assert {nodes[0] for nodes in drawn.values()} == {2, 3}

    def test_steps_of_one_plan_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "PLACEMENT_STEPS_MAX", 3)
        there = [held(PartitionName("t", number), 1) for number in range(12)]
        assert moves(there, plan(THREE, there)) == 3


# --- over clusters at random ---


def cluster(seed: int) -> tuple[list[PlacementNode], list[PlacementPartition]]:
    dice = random.Random(seed)
    zones = dice.choice([[""], ["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d"]])
    kinds = [NodeStanding.SERVES] * 8 + [
        NodeStanding.MAINTENANCE,
        NodeStanding.DRAINING,
        NodeStanding.LOST,
    ]
    nodes = [
        PlacementNode(number, dice.choice(zones), dice.choice(kinds), dice.random() > 0.1)
        for number in range(1, dice.randint(2, 9))
    ]
    numbers = [node.number for node in nodes]
    partitions = []
    for number in range(dice.randint(1, 30)):
        wanted = tuple(dice.sample(numbers, dice.randint(0, min(4, len(numbers)))))
        whole = dice.random() < 0.9
        partitions.append(
            PlacementPartition(
                PartitionName("t", number),
                dice.randint(1, 4),
                wanted,
                wanted if whole else wanted[:-1],
            )
        )
    return nodes, partitions


@each("first", range(0, 1000, 100))
def test_the_rules_hold_over_random_clusters(first: int) -> None:
    """And whoever follows a plan gets an empty one, and the same cluster gives the same plan."""
    for seed in range(first, first + 100):
        nodes, partitions = cluster(seed)
        drawn = plan(nodes, partitions)
        for one in carried_out(partitions, drawn):
            check_replicas(seed, nodes, one)
        dice = random.Random(seed)
        shuffled = dice.sample(nodes, len(nodes)), dice.sample(partitions, len(partitions))
        assert plan(*shuffled) == drawn, seed
        partitions = carried_out(partitions, drawn)
        partitions = carried_out(partitions, plan(nodes, partitions))  # held back at first
        assert plan(nodes, partitions) == {}, seed


def check_replicas(seed: int, nodes: list[PlacementNode], one: PlacementPartition) -> None:
    by_node = {node.number: node for node in nodes}
    takers = [node for node in nodes if node.takes]
    kept = [by_node[node] for node in one.wanted]
    assert len(set(one.wanted)) == len(one.wanted), seed
    assert len(one.wanted) <= one.replicas or not takers, seed
    outside = [node for node in takers if node not in kept]
    if outside:
        assert len(one.wanted) == one.replicas, seed
        assert all(node.stays for node in kept), seed
    if kept and any(node.standing is NodeStanding.SERVES for node in kept):
        assert kept[0].standing is NodeStanding.SERVES, seed
    crowds = Counter(zone_of(node) for node in kept)
    movable = {zone_of(node) for node in kept if node.standing is NodeStanding.SERVES}
    fullest = max((crowds[zone] for zone in movable), default=0)
    for node in outside:
        assert crowds[zone_of(node)] >= fullest - 1, f"seed {seed}: {one} leaves {node} out"


def zone_of(node: PlacementNode) -> str:
    return node.zone or f"node {node.number}"


def least_moves(counts: list[int]) -> int:
    """Until no two nodes differ by more than one replica."""
    share, rest = divmod(sum(counts), len(counts))
    fullest_first = sorted(counts, reverse=True)
    targets = [share + (index < rest) for index in range(len(counts))]
    return sum(max(have - want, 0) for have, want in zip(fullest_first, targets, strict=True))


@each("first", range(0, 400, 100))
def test_no_more_is_moved_than_has_to_be(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On nodes that are a zone each."""
    monkeypatch.setattr(limits, "PLACEMENT_TOLERANCE", 0.0)
    for seed in range(first, first + 100):
        dice = random.Random(seed)
        nodes = range(1, dice.randint(3, 9))
        copies = dice.randint(1, min(3, len(nodes)))
        favoured = list(nodes)[: dice.randint(copies, len(nodes))]
        partitions = [
            held(PartitionName("t", number), *dice.sample(favoured, copies))
            for number in range(dice.randint(1, 40))
        ]
        counts = Counter(node for one in partitions for node in one.wanted)
        drawn = plan([PlacementNode(node) for node in nodes], partitions)
        assert moves(partitions, drawn) == least_moves([counts[node] for node in nodes]), seed
