"""Offices on a clock: each kind of trouble ends, and each rule is missed when it is taken away."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cluster import keys
from penstock.cluster.coordinator import Put, RevisionIs, Transaction
from penstock.cluster.documents import RECORD
from penstock.cluster.rules import ALL
from penstock.limits import SECOND
from penstock.replica.record import Member, arranged
from sim.timed.scenarios import (
    SCENARIOS,
    SWITCHES,
    Scenario,
    Switch,
    find,
    is_whole,
    play,
    restart,
    within,
)
from sim.timed.world import Promise, World

SEEDS = 20


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_it_ends_well(scenario: Scenario) -> None:
    assert find(scenario, SEEDS) is None


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda one: one.off)
def test_a_missing_rule_is_noticed(switch: Switch) -> None:
    found = switch.find()
    assert found is not None, f"{switch.seeds_max} histories do without {switch.off}"


def test_every_rule_has_a_switch() -> None:
    assert sorted(switch.off for switch in SWITCHES) == sorted(ALL._fields)


def test_a_seed_is_the_same_history() -> None:
    first, second = (play(restart, 7).changes for _ in range(2))
    assert first == second
    assert first != play(restart, 8).changes


def test_a_world_without_a_leader_is_not_whole() -> None:
    world = World(1)
    assert not is_whole(world)
    with pytest.raises(Promise, match="not whole after 0 s"):
        within(world, 0, is_whole, "not whole")


def test_records_that_go_wrong_are_noticed() -> None:
    world = World(1)
    world.run(12)
    name = world.names[0]
    at_ns, record = world.changes[name][-1]
    stranger = record._replace(members=(*record.members, Member(9, 9, 9)))
    world.changes[name].append((at_ns, stranger._replace(epoch=record.epoch + 5)))
    world.kill(0)
    with pytest.raises(Promise, match="follows epoch"):
        world.run(20)


def test_a_sequence_that_is_committed_twice_is_noticed() -> None:
    world = World(1)
    world.run(12)
    name = world.names[0]
    world.truth[name][0] += 1
    with pytest.raises(Promise, match="another sequence"):
        world.run(1)


def test_leaders_know_that_their_offices_are_in_force() -> None:
    """Their members answer heartbeats; who is cut off from all loses authority, then deliveries."""
    world = World(3)
    world.run(15)
    permits = lines_permits(world)
    assert permits
    assert all(one.acts for one in permits)
    for one in range(3):
        world.nodes[one].port.is_cut = True
        for other in range(one):
            world.cut(one, other)
    world.run(3)
    assert not any(one.acts for one in lines_permits(world))


def lines_permits(world: World) -> list[Any]:
    return [
        replica.line.permits
        for node in world.nodes
        for replica in node.replicas.values()
        if replica.line is not None
    ]


def test_an_orderly_hand_over_takes_less_than_half_a_second() -> None:
    world = World(4)
    world.run(15)
    name = world.names[0]
    leader = world.leader(name)
    assert leader is not None
    other = (leader.number + 1) % 3
    begun_ns = world.now_ns
    within(world, 1, lambda _: leader.offices.hand_over(name, other), "not handed over")
    within(world, 1, lambda _: world.leader(name) is world.nodes[other], "not taken over")
    assert world.now_ns - begun_ns < SECOND // 2
    committed = len(world.truth[name])
    world.run(2)
    assert len(world.truth[name]) > committed + 10


def test_what_the_controller_wants_is_done_by_the_leader() -> None:
    """Another order of preference moves the office; who is not wanted leaves the set."""
    world = World(5)
    world.run(15)
    name = world.names[0]
    leader = world.leader(name)
    assert leader is not None
    others = tuple(number for number in range(3) if number != leader.number)
    held = leader.view.partitions[name]
    wanted = arranged(held.document, others, 2)
    key = keys.partition(*name)
    put = Put(key, RECORD.encode(wanted))
    world.store.transact(Transaction((RevisionIs(key, held.revision),), (put,)))

    def is_done(world: World) -> bool:
        record = world.record(name)
        heir = world.leader(name)
        members = {member.node for member in record.members}
        return heir is not None and heir.number == others[0] and members == set(others)

    within(world, 20, is_done, "not moved")
