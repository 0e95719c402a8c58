"""The controller: its leadership, what it elects, moves and plans."""

import random
from typing import Any

from cases import seeds
from penstock.cluster import keys
from penstock.cluster.controller import (
    Controller,
    Duty,
    NodeSeen,
    PartitionChange,
    PartitionSeen,
    Propose,
    Situation,
    transaction_of,
)
from penstock.cluster.coordinator import CreatedIs, Put, Transaction
from penstock.cluster.documents import RECORD
from penstock.cluster.keys import PartitionName
from penstock.cluster.moves import MOVE, PartitionMove
from penstock.cluster.placement import NodeStanding
from penstock.limits import (
    CONTROLLER_SETTLE_NS,
    ELECT_AFTER_NS,
    NODE_LEASE_NS,
    NODE_REPLACE_NS,
    NODE_STEADY_NS,
    SECOND,
)
from penstock.replication.leader import Outcome
from penstock.replication.record import (
    LeaderId,
    Member,
    PartitionRecord,
    elected,
    regrouped,
    successor,
    superfluous,
)
from sim.protocol.record_rules import broken_rule
from sim.store import Store

T0 = PartitionName("t", 0)


def node(number: int, **fields: Any) -> NodeSeen:
    return NodeSeen("", NodeStanding.SERVES, 1, 0, 10 + number)._replace(**fields)


def member(number: int) -> Member:
    return Member(number, 100 + number, 1)


def record(
    leader: int | None, members: tuple[int, ...], wanted: tuple[int, ...]
) -> PartitionRecord:
    leader_id = None if leader is None else LeaderId(leader, 10 + leader, 100 + leader)
    least = (len(wanted) + 1) // 2
    return PartitionRecord(7, 5, leader_id, tuple(map(member, members)), least, wanted)


def seen(one: PartitionRecord, **fields: Any) -> PartitionSeen:
    return PartitionSeen(one, 30, len(one.wanted), True)._replace(**fields)


def situation(
    nodes: dict[int, NodeSeen], partitions: dict[PartitionName, PartitionSeen], **fields: Any
) -> Situation:
    return Situation(77, 9, nodes, partitions)._replace(**fields)


def taken(controller: Controller) -> list[Any]:
    out, controller.out = controller.out, []
    return out


def changes(controller: Controller) -> list[PartitionChange]:
    return [change for propose in taken(controller) for change in propose.changes]


CALM = {T0: seen(record(1, (1, 2, 3), (1, 2, 3)))}
NODES = {number: node(number) for number in (1, 2, 3)}


def acting(now: Situation) -> tuple[Controller, int]:
    """A controller that has settled, and seen the nodes for long enough."""
    controller = Controller(77)
    controller.tick(now, 0)
    now_ns = CONTROLLER_SETTLE_NS + NODE_STEADY_NS
    controller.tick(now, now_ns)
    assert controller.duty is Duty.ACTING
    taken(controller)
    return controller, now_ns


class TestOffice:
    def test_a_new_controller_waits_before_it_acts(self) -> None:
        controller = Controller(77)
        gone = situation({1: node(1), 2: node(2)}, CALM)
        for now_ns in range(0, CONTROLLER_SETTLE_NS, SECOND):
            controller.tick(gone, now_ns)
        assert (controller.duty, taken(controller)) == (Duty.SETTLING, [])

    def test_transactions_compare_the_creation_of_the_controllers_key(self) -> None:
        change = PartitionChange(T0, CALM[T0], CALM[T0].record)
        transaction = transaction_of(Propose(9, (change,)))
        assert CreatedIs(keys.CONTROLLER, 9) in transaction.compares
        store = Store()
        store.put(keys.CONTROLLER, b"66")
        store.put(keys.partition(*T0), RECORD.encode(CALM[T0].record))
        revision = store.revision
        late = PartitionChange(T0, CALM[T0]._replace(revision=revision), CALM[T0].record)
        assert store.transact(transaction_of(Propose(9, (late,)))).outcome is Outcome.REFUSED
        assert store.transact(transaction_of(Propose(2, (late,)))).outcome is Outcome.DONE


class TestElections:
    def elect(self, after: Situation) -> list[PartitionChange]:
        controller, now_ns = acting(situation(NODES, CALM))
        controller.tick(after, now_ns)
        controller.tick(after, now_ns + ELECT_AFTER_NS - 1)
        assert changes(controller) == []
        controller.tick(after, now_ns + ELECT_AFTER_NS)
        return changes(controller)

    def test_a_leader_whose_node_is_missing_is_replaced_and_left_out(self) -> None:
        gone = situation({**NODES, 1: node(1, incarnation=None)}, CALM)
        (change,) = self.elect(gone)
        assert change.record == elected(CALM[T0].record, LeaderId(2, 12, 102), (member(1),))

    def test_a_node_that_answers_is_not_missing(self) -> None:
        """Its key has gone with the coordinator's trouble."""
        gone = situation({**NODES, 1: node(1, incarnation=None)}, CALM, reachable={1})
        assert self.elect(gone) == []

    def test_an_ineligible_replica_is_not_elected(self) -> None:
        suspect = node(2, generation=2, memory_lost_generation=2)
        nodes = {1: node(1, incarnation=None), 2: suspect, 3: node(3)}
        one = seen(record(None, (1, 2, 3), (1, 2, 3)), waits=False)
        (change,) = self.elect(situation(nodes, {T0: one}))
        assert change.record is not None
        assert change.record.leader == LeaderId(3, 13, 103)

    def test_a_recent_proposal_is_not_repeated(self) -> None:
        controller, now_ns = acting(situation(NODES, CALM))
        gone = situation({**NODES, 1: node(1, incarnation=None)}, CALM)
        counts = []
        for tenths in range(0, 80, 5):
            controller.tick(gone, now_ns + tenths * SECOND // 10)
            counts.append(len(taken(controller)))
        assert counts == [0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]


class TestReplacing:
    def lose(self, missing: set[int], count: int) -> list[PartitionChange]:
        nodes = {number: node(number) for number in range(1, count + 1)}
        controller, now_ns = acting(situation(nodes, CALM))
        left = {n: node(n, incarnation=None) if n in missing else one for n, one in nodes.items()}
        after = situation(left, {T0: seen(record(1, (1, 2), (1, 2, 3)))})
        controller.tick(after, now_ns)
        controller.tick(after, now_ns + NODE_REPLACE_NS - 1)
        assert changes(controller) == []
        controller.tick(after, now_ns + NODE_REPLACE_NS)
        return changes(controller)

    def test_a_lost_node_is_replaced_after_a_while(self) -> None:
        (change,) = self.lose({3}, 4)
        assert change.move == PartitionMove(T0, (1, 2, 3), (1, 2, 4), 2, 2)

    def test_no_replacement_while_more_than_a_fifth_is_missing(self) -> None:
        assert self.lose({3, 4}, 9) == []
        assert len(self.lose({3, 4}, 10)) == 1


class TestPlans:
    def test_a_drained_node_is_left_at_once(self) -> None:
        nodes = {number: node(number) for number in range(1, 5)}
        controller, now_ns = acting(situation(nodes, CALM))
        nodes[2] = node(2, standing=NodeStanding.DRAINING)
        controller.tick(situation(nodes, CALM), now_ns + 1)
        (change,) = changes(controller)
        assert change.move == PartitionMove(T0, (1, 2, 3), (1, 4, 3), 2, 2)
        moving = {T0: CALM[T0]._replace(move=change.move, move_revision=31)}
        controller.tick(situation(nodes, moving), now_ns + 2)
        (change,) = changes(controller)
        assert change.record == CALM[T0].record._replace(wanted=(1, 4, 3, 2))


# --- two controllers over nodes that come and go ---


STEPS = 150
CALM_STEP_NS = 4 * SECOND  # less than a lease lasts
CALM_STEPS = (NODE_REPLACE_NS + 10 * NODE_STEADY_NS) // CALM_STEP_NS
SLOW_NS_MAX = 60 * SECOND


class Process:
    def __init__(self, incarnation: int) -> None:
        self.incarnation, self.controller = incarnation, Controller(incarnation)
        self.lease = self.hangs_until_ns = 0


class World:
    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.store, self.now_ns = Store(), 1000 * SECOND
        self.nodes = {number: node(number) for number in range(1, 7)}
        self.replicas = dice.randint(1, 3)
        self.names = [PartitionName("t", number) for number in range(dice.randint(1, 3))]
        for name in self.names:
            wanted = tuple(dice.sample(list(self.nodes), self.replicas))
            self.put(name, record(wanted[0], wanted, wanted))
        self.incarnations = 100
        self.processes = [Process(1), Process(2)]
        self.sent: list[tuple[int, Propose]] = []  # when it arrives
        self.newest = self.late = 0

    def put(self, name: PartitionName, one: PartitionRecord) -> None:
        self.store.put(keys.partition(*name), RECORD.encode(one))

    def partition(self, name: PartitionName) -> PartitionSeen:
        entry = self.store.entries[keys.partition(*name)]
        move = self.store.entries.get(keys.move(*name))
        record = RECORD.decode(entry.key, entry.value)
        found = None if move is None else MOVE.decode(move.key, move.value)
        revision = 0 if move is None else move.revision
        return PartitionSeen(record, entry.revision, self.replicas, True, found, revision)

    def apply(self, effect: Propose) -> None:
        before = {name: self.partition(name) for name in self.names}
        if self.store.transact(transaction_of(effect)).outcome is not Outcome.DONE:
            self.late += effect.controller_created < self.newest
            return
        assert effect.controller_created >= self.newest, "I2: a controller that was replaced"
        self.newest = effect.controller_created
        for name, seen in before.items():
            now = self.partition(name).record
            assert broken_rule(seen.record, now) is None, "I12"
            if now.wanted != seen.record.wanted:
                assert seen.move is not None, "I12"
                assert now.wanted in (seen.move.wide, seen.move.target), "I12"

    def control(self, process: Process, fails: bool) -> None:
        if self.now_ns < process.hangs_until_ns:
            return
        if process.lease:
            self.store.keep(process.lease, self.now_ns)
        key = self.store.entries.get(keys.CONTROLLER)
        incarnation, created = (None, 0) if key is None else (int(key.value), key.created)
        partitions = {name: self.partition(name) for name in self.names}
        process.controller.tick(
            Situation(incarnation, created, dict(self.nodes), partitions), self.now_ns
        )
        if key is None:
            process.lease = self.store.grant(NODE_LEASE_NS, self.now_ns)
            create = Put(keys.CONTROLLER, str(process.incarnation).encode(), process.lease)
            self.store.transact(Transaction((CreatedIs(keys.CONTROLLER, 0),), (create,)))
        for effect in taken(process.controller):
            if fails and self.dice.random() < 0.1:
                process.hangs_until_ns = self.now_ns + self.dice.randrange(SLOW_NS_MAX)
            way_ns = self.dice.randrange(self.dice.choice((2 * SECOND, SLOW_NS_MAX)))
            self.sent.append((self.now_ns + way_ns, effect))

    def lead(self, name: PartitionName) -> None:
        """What the leader does, and where there is none nobody."""
        one = before = self.partition(name).record
        there = {number for number, seen in self.nodes.items() if seen.incarnation is not None}
        if one.leader is None or self.nodes[one.leader.node].incarnation != one.leader.incarnation:
            return
        for number in one.wanted:
            if one.member_on(number) is None and number in there and self.dice.random() < 0.5:
                one = regrouped(one, added=(member(number),))
        dead = tuple(m for m in one.members if m.node not in there)
        gone = (*dead, *(member(number) for number in superfluous(one)))
        if len(one.members) - len(set(gone)) >= one.members_min:
            one = regrouped(one, gone=gone)
        heir = successor(one, there)
        if heir is not None:
            one = elected(one, LeaderId(heir, self.nodes[heir].incarnation or 0, 100 + heir))
        if one != before:
            self.put(name, one)

    def step(self, ns: int, fails: bool = True) -> None:
        self.now_ns += ns
        self.store.run_out(self.now_ns)
        for process in self.processes:
            self.control(process, fails)
        there = [effect for at_ns, effect in self.sent if at_ns <= self.now_ns]
        self.sent = [one for one in self.sent if one[0] > self.now_ns]
        self.dice.shuffle(there)
        for effect in there:
            self.apply(effect)
        for name in self.names:
            self.lead(name)

    def missing(self) -> set[int]:
        return {number for number, seen in self.nodes.items() if seen.incarnation is None}

    def trouble(self) -> None:
        number, what = self.dice.choice(list(self.nodes)), self.dice.random()
        if what < 0.05:  # it goes, or it is back: no more than one is missing for long
            self.incarnations += 1
            incarnation = None if not self.missing() else self.incarnations
            self.nodes[number] = self.nodes[number]._replace(incarnation=incarnation)
        elif what < 0.08:
            hung = self.dice.choice(self.processes)
            hung.hangs_until_ns = self.now_ns + self.dice.randrange(SLOW_NS_MAX)
        elif what < 0.14:
            self.replicas = self.dice.randint(1, 3)
        elif what < 0.20:
            serves = self.nodes[number].standing is NodeStanding.SERVES
            standing = NodeStanding.DRAINING if serves else NodeStanding.SERVES
            self.nodes[number] = self.nodes[number]._replace(standing=standing)

    def calm(self) -> None:
        for number, seen in self.nodes.items():
            incarnation = 10 + number if number in sorted(self.missing())[1:] else seen.incarnation
            self.nodes[number] = seen._replace(
                incarnation=incarnation, standing=NodeStanding.SERVES
            )
        for _ in range(CALM_STEPS):
            self.step(CALM_STEP_NS, fails=False)
        for name in self.names:
            one, missing = self.partition(name), self.missing()
            nodes = {member.node for member in one.record.members}
            if nodes <= missing:
                continue  # there is nothing to copy from: an operator decides
            assert one.move is None, "L-c"
            assert nodes == set(one.record.wanted), "L-c"
            assert len(nodes) == self.replicas, "L-c"
            assert not nodes & missing, "L-c"


def play(seed: int) -> World:
    world = World(seed)
    for _ in range(STEPS):
        world.step(world.dice.choice((SECOND // 2, SECOND, 2 * SECOND)))
        world.trouble()
    return world


def test_a_controller_that_was_replaced_changes_nothing() -> None:
    assert sum(play(seed).late for seed in seeds(20, 400)) > 2  # else nothing was shown


def test_the_placement_recovers_from_all_failures() -> None:
    for seed in range(8):
        play(seed).calm()
