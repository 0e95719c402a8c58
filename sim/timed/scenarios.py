"""Trouble on a clock, and what must follow: one scenario for each rule of `penstock.cluster.rules`.

| scenario | what must follow |
|---|---|
| `outage` | the coordinator is away for longer than a lease: no election, then or afterwards |
| `restart` | a process is back before its lease runs out: its partitions have leaders within 3 s |
| `kill` | a process ends: other members lead within 3 s |
| `barren` | a leader is cut off from its followers alone: others lead, and commit, within 15 s |
| `hang` | a loop hangs: others lead within 15 s |
| `flapping` | a follower that is slow again and again is not added again and again |
| `rotten` | one node's logs are corrupt: those that are sound lead within 15 s, after a kill too |
| `storm` | all of it, at random times, for a minute: nothing but what follows |
| `firewall` | one node's attempts to connect are refused, by a firewall: nobody is replaced |

After each of them all partitions are whole again: led by who is wanted first, committing, with all
that is wanted in the set, and for ten seconds no record changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.cluster.rules import ALL, Rules
from penstock.limits import SECOND
from sim.timed.world import Promise, World

Scenario = Callable[[World], None]
WHOLE_S = 150.0  # until all is whole again: who was dropped waits before it counts, and leads
SETTLING_S = 3.0  # a member that was cut off for a moment may yet be dropped
STILL_S = 10.0


def play(scenario: Scenario, seed: int, rules: Rules = ALL) -> World:
    """Raises Promise."""
    world = World(seed, rules)
    become_whole(world, 30)
    scenario(world)
    become_whole(world, WHOLE_S)
    return world


def find(scenario: Scenario, seeds: int, rules: Rules = ALL) -> tuple[int, str] | None:
    """The first seed whose history breaks a promise, and how."""
    for seed in range(seeds):
        try:
            play(scenario, seed, rules)
        except Promise as broken:
            return seed, str(broken)
    return None


def become_whole(world: World, seconds: float) -> None:
    _ease(world)
    world.run(SETTLING_S)
    within(world, seconds, is_whole, "not whole")
    begun_ns, committed = world.now_ns, _committed(world)
    world.run(STILL_S)
    if world.changes_since(begun_ns):
        raise Promise("records change, and nothing is wrong")
    if not all(after > before for before, after in zip(committed, _committed(world), strict=True)):
        raise Promise("nothing is committed, and nothing is wrong")


def is_whole(world: World) -> bool:
    for name in world.names:
        record = world.record(name)
        members = {(member.node, member.generation) for member in record.members}
        if members != {(node.number, node.generation) for node in world.nodes}:
            return False
        leader = world.leader(name)
        if leader is None or leader.number != record.wanted[0]:
            return False
    return True


def _committed(world: World) -> list[int]:
    return [len(world.truth[name]) for name in world.names]


def within(world: World, seconds: float, holds: Callable[[World], bool], otherwise: str) -> None:
    deadline_ns = world.now_ns + int(seconds * SECOND)
    while not holds(world):
        if world.now_ns >= deadline_ns:
            raise Promise(f"{otherwise} after {seconds:g} s")
        world.step()


def others_commit(number: int) -> Callable[[World], bool]:
    """All partitions have leaders on other nodes, that have committed something of theirs."""

    def holds(world: World) -> bool:
        for name in world.names:
            leader = world.leader(name)
            if leader is None or leader.number == number:
                return False
            line = leader.replicas[name].line
            if line is None or line.committed <= line.start_end:
                return False
        return True

    return holds


def _leader_of_first(world: World) -> int:
    leader = world.leader(world.names[0])
    if leader is None:
        raise Promise("nobody leads, and nothing is wrong")
    return leader.number


def _wait(world: World) -> None:
    world.run(world.dice.random() * 3)


# --- scenarios ---


def outage(world: World) -> None:
    """The coordinator comes back to one node after the other, to a leader last; and the first one
    has lost its link to it."""
    _wait(world)
    begun_ns = world.now_ns
    for node in world.nodes:
        node.port.is_cut = True
    world.run(20)
    leader = _leader_of_first(world)
    order = [node for node in world.nodes if node.number != leader]
    world.dice.shuffle(order)
    world.cut(leader, order[0].number)
    for node in (*order, world.nodes[leader]):
        node.port.is_cut = False
        world.run(0.5 + world.dice.random())
    if world.elections_since(begun_ns):
        raise Promise("an election after an outage of the coordinator")


def restart(world: World) -> None:
    _wait(world)
    number = _leader_of_first(world)
    world.kill(number)
    world.run(0.2)
    world.nodes[number].start()
    within(world, 4, _all_led, "a leader's process was started again, and nobody leads")


def _all_led(world: World) -> bool:
    return all(world.leader(name) is not None for name in world.names)


def kill(world: World) -> None:
    _wait(world)
    number = _leader_of_first(world)
    world.kill(number)
    within(world, 4, others_commit(number), "a process ended, and nothing is committed")


def barren(world: World) -> None:
    _wait(world)
    number = _leader_of_first(world)
    for node in world.nodes:
        if node.number != number:
            world.cut(number, node.number)
    within(world, 15, others_commit(number), "a leader without followers stays")


def hang(world: World) -> None:
    """Its links break, as its heartbeats are missed."""
    _wait(world)
    number = _leader_of_first(world)
    world.nodes[number].hangs = True
    world.run(2)
    for node in world.nodes:
        if node.number != number:
            world.cut(number, node.number)
    within(world, 15, others_commit(number), "a leader that hangs stays")


def flapping(world: World) -> None:
    """Its frames take longer than the timeout, until it is dropped."""
    number = (_leader_of_first(world) + 1) % len(world.nodes)
    begun_ns = world.now_ns
    for _ in range(8):
        world.slow[number] = 3 * SECOND
        world.run(6)
        world.slow.clear()
        world.run(4)
    changes = world.changes_since(begun_ns)
    if changes > 12 * len(world.names):
        raise Promise(f"{changes} changes of records by a follower that flaps")


def firewall(world: World) -> None:
    """A link is cut, and one side finds its attempts refused."""
    _wait(world)
    begun_ns = world.now_ns
    number = _leader_of_first(world)
    other = world.nodes[(number + 1) % len(world.nodes)]
    world.cut(number, other.number)
    for _ in range(3):
        other.offices.refused(other.number, number, world.nodes[number].life)
        world.run(0.5)
    if world.elections_since(begun_ns):
        raise Promise("one node's word was enough to replace another")


def rotten(world: World) -> None:
    """It has led all that prefers it; then another leader ends, whose next in order it is."""
    _wait(world)
    number = _leader_of_first(world)
    world.nodes[number].corrupt = frozenset(world.names)
    within(world, 15, others_lead(number), "a corrupt replica leads, and others are sound")
    other = (number - 1) % len(world.nodes)
    world.kill(other)
    within(world, 4, _all_led, "a process ended, and no node leads")
    world.run(SETTLING_S)
    if not others_lead(number)(world):
        raise Promise("a corrupt replica was elected, and another was sound")


def others_lead(number: int) -> Callable[[World], bool]:
    """All partitions have leaders on other nodes."""

    def holds(world: World) -> bool:
        leaders = [world.leader(name) for name in world.names]
        return all(one is not None and one.number != number for one in leaders)

    return holds


def storm(world: World) -> None:
    dice = world.dice
    for _ in range(30):
        node, other = dice.sample(world.nodes, 2)
        match dice.randrange(8):
            case 0 | 1:
                world.cut(node.number, other.number)
            case 2:
                world.kill(node.number)
            case 3:
                node.port.is_cut = True
            case 4:
                node.hangs = True
            case 5:
                world.slow[node.number] = dice.randrange(3 * SECOND)
            case _:
                _ease(world)
        world.run(dice.random() * 4)


def _ease(world: World) -> None:
    """Most of the trouble goes."""
    world.mend()
    world.slow.clear()
    for node in world.nodes:
        node.hangs = False
        node.corrupt = frozenset()
        if not node.is_up:
            node.start()


class Switch(NamedTuple):
    off: str
    scenario: Scenario
    seeds_max: int

    def find(self) -> tuple[int, str] | None:
        return find(self.scenario, self.seeds_max, ALL._replace(**{self.off: False}))


SWITCHES = (
    Switch("absence_waits", outage, 10),
    Switch("lives_compared", restart, 10),
    Switch("refusals_witnessed", firewall, 10),
    Switch("barren_office_given_up", barren, 10),
    Switch("readmission_waits", flapping, 10),
    Switch("lease_kept_by_loop", hang, 10),
    Switch("sound_first", rotten, 10),
)
SCENARIOS: tuple[Scenario, ...] = (
    outage,
    restart,
    kill,
    barren,
    hang,
    flapping,
    firewall,
    rotten,
    storm,
)
