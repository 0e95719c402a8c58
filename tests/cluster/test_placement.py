"""Placement: each wish by an example, then all of them over clusters at random."""

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from cases import each
from penstock.cluster.keys import PartitionName
from penstock.cluster.placement import (
    NodeStanding,
    PlacementNode,
    PlacementPartition,
    PlacementPlan,
    Reason,
    Short,
    described,
    plan,
)
from penstock.errors import ConfigError
from penstock.limits import MIB

T0, T1, T2 = (PartitionName("t", number) for number in range(3))
THREE = [PlacementNode(1), PlacementNode(2), PlacementNode(3)]


def held(
    name: PartitionName, *wanted: int, replicas: int = 0, kept: float = 0.0
) -> PlacementPartition:
    return PlacementPartition(name, replicas or len(wanted), wanted, wanted, kept)


def after(drawn: PlacementPlan, name: PartitionName) -> tuple[int, ...]:
    return next(change.after for change in drawn.changes if change.partition == name)


def carried_out(
    partitions: Iterable[PlacementPartition], drawn: PlacementPlan
) -> list[PlacementPartition]:
    new = {change.partition: change.after for change in drawn.changes}
    return [
        one._replace(wanted=nodes, members=nodes)
        for one in partitions
        for nodes in [new.get(one.partition, one.wanted)]
    ]


class TestEnough:
    def test_where_no_node_is_free_a_replica_stays_and_it_is_said(self) -> None:
        nodes = [PlacementNode(1), PlacementNode(2, standing=NodeStanding.DRAINING)]
        drawn = plan(nodes, [held(T0, 1, 2)])
        assert drawn == PlacementPlan((), (Short(T0, 1),))
        assert described(drawn) == ["t/0: 1 more nodes are needed", "nothing to do"]

    def test_a_node_in_maintenance_keeps_what_it_has_and_leads_nothing(self) -> None:
        nodes = [
            PlacementNode(1, standing=NodeStanding.MAINTENANCE),
            PlacementNode(2),
            PlacementNode(3),
        ]
        drawn = plan(nodes, [held(T0, 1, 2), PlacementPartition(T1, 2, ())])
        assert after(drawn, T0) == (2, 1)
        assert 1 not in after(drawn, T1)
        assert drawn.changes[0].reason is Reason.LEADERS


class TestBalance:
    def test_nodes_that_differ_by_noise_are_left_alone(self) -> None:
        there = [
            held(PartitionName("t", number), 1 + number % 2, kept=100.0 * MIB * (1 + number % 2))
            for number in range(40)
        ]
        assert plan([PlacementNode(1), PlacementNode(2)], there).moves > 0
        close = [
            one._replace(bytes_kept=MIB * (1000.0 + 40 * (one.wanted[0] - 1))) for one in there
        ]
        assert plan([PlacementNode(1), PlacementNode(2)], close) == PlacementPlan(())

    def test_nor_while_something_is_about_to_get_more_replicas(self) -> None:
        names = [PartitionName("t", number) for number in range(12)]
        there = [held(name, 1 + number % 2) for number, name in enumerate(names)]
        there[0] = there[0]._replace(replicas=2)
        drawn = plan(THREE, there)
        assert [change.reason for change in drawn.changes] == [Reason.RAISED]
        assert drawn.held_back == "t/0 is to be made whole first (more replicas)"

    def test_leaders_are_spread_by_what_they_carry(self) -> None:
        busy = held(T0, 1, 2, 3)._replace(led_bytes_per_s=100.0 * MIB)
        calm = [held(T1, 1, 2, 3), held(T2, 1, 2, 3)]
        drawn = plan(THREE, [busy, *calm])
        assert drawn.moves == 0
        assert [change.partition for change in drawn.changes] == [T0]
        drawn = plan(THREE, [held(name, 1, 2, 3) for name in (T0, T1, T2)])
        assert len({change.after[0] for change in drawn.changes} | {1}) == 3

    def test_steps_of_one_plan_are_bounded(self) -> None:
        names = [PartitionName("t", number) for number in range(12)]
        drawn = plan(THREE, [held(name, 1) for name in names], steps_max=3)
        assert drawn.moves == 3


def test_what_a_person_reads() -> None:
    nodes = [PlacementNode(1, standing=NodeStanding.DRAINING), PlacementNode(2), PlacementNode(3)]
    drawn = plan(nodes, [held(T0, 1, 2, kept=5.0 * MIB), PlacementPartition(T1, 1, ())])
    assert described(drawn) == [
        "t/0: 1, 2 -> 3, 2 (its node is drained)",
        "t/1: nothing -> 2 (new partition)",
        "2 replicas, 5 MiB to copy",
    ]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (held(T0, 1, 1), r"nodes of t/0: \(1, 1\) is not valid: a node has one replica at most"),
        (PlacementPartition(T0, 0, ()), "replicas of t/0: 0 is not valid: it has to be 1 at least"),
    ],
)
def test_input_that_can_not_be(wrong: PlacementPartition, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        plan(THREE, [wrong])


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
        PlacementNode(number, dice.choice(zones), dice.choice(kinds), dice.random() < 0.1)
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
                dice.choice([0.0, dice.random() * 1e10]),
                dice.random() * 1e8,
            )
        )
    return nodes, partitions


@each("first", range(0, 1000, 100))
def test_all_wishes_hold_over_clusters_at_random(first: int) -> None:
    """And whoever follows a plan gets an empty one, and the same cluster gives the same plan."""
    for seed in range(first, first + 100):
        nodes, partitions = cluster(seed)
        drawn = plan(nodes, partitions)
        for one in carried_out(partitions, drawn):
            check_replicas(seed, nodes, one)
        check_only_in_peace(seed, partitions, drawn)
        dice = random.Random(seed)
        shuffled = dice.sample(nodes, len(nodes)), dice.sample(partitions, len(partitions))
        assert plan(*shuffled) == drawn, seed
        partitions = carried_out(partitions, drawn)
        partitions = carried_out(partitions, plan(nodes, partitions))  # held back at first
        assert plan(nodes, partitions).changes == (), seed


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


def check_only_in_peace(
    seed: int, partitions: list[PlacementPartition], drawn: PlacementPlan
) -> None:
    if any(one.wanted and not one.is_whole for one in partitions):
        assert drawn.held_back is not None, seed
        assert Reason.BALANCE not in {change.reason for change in drawn.changes}, seed


def least_moves(counts: list[int]) -> int:
    """Until no two nodes differ by more than one replica."""
    share, rest = divmod(sum(counts), len(counts))
    fullest_first = sorted(counts, reverse=True)
    targets = [share + (index < rest) for index in range(len(counts))]
    return sum(max(have - want, 0) for have, want in zip(fullest_first, targets, strict=True))


@each("first", range(0, 400, 100))
def test_no_more_is_moved_than_has_to_be(first: int) -> None:
    """Of replicas that weigh the same, on nodes that are a zone each."""
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
        drawn = plan([PlacementNode(node) for node in nodes], partitions, tolerance=0.0)
        assert drawn.moves == least_moves([counts[node] for node in nodes]), seed
