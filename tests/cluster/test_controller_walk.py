"""Two controllers over nodes that come and go, with leases that run out and slow transactions.

Once a controller has changed anything, no earlier one does (I2); each change that is applied is a
legal one (I12); and when nothing fails any more, each partition is where it should be (L-c).
"""

from __future__ import annotations

import random

import pytest

from penstock.cluster import keys
from penstock.cluster.controller import (
    Campaign,
    Controller,
    NodeSeen,
    PartitionSeen,
    Propose,
    Situation,
    transaction_of,
)
from penstock.cluster.coordinator import CreatedIs, Put, Transaction
from penstock.cluster.documents import RECORD
from penstock.cluster.keys import PartitionName
from penstock.cluster.moves import MOVE
from penstock.cluster.placement import Standing
from penstock.limits import NODE_LEASE_NS, NODE_REPLACE_NS, NODE_STEADY_NS, SECOND
from penstock.replica.leading import Outcome
from penstock.replica.record import (
    Member,
    Record,
    Seat,
    broken_rule,
    elected,
    regrouped,
    successor,
    superfluous,
)
from sim.store import Store

STEPS = 150
CALM_STEP_NS = 4 * SECOND  # less than a lease lasts
CALM_STEPS = (NODE_REPLACE_NS + 10 * NODE_STEADY_NS) // CALM_STEP_NS
SLOW_NS_MAX = 60 * SECOND


class Process:
    def __init__(self, life: int) -> None:
        self.life, self.controller = life, Controller(life)
        self.lease = self.hangs_until_ns = 0


class World:
    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.store, self.now_ns = Store(), 1000 * SECOND
        self.nodes = {n: NodeSeen("", Standing.SERVES, 1, 0, 10 + n) for n in range(1, 7)}
        self.replicas = dice.randint(1, 3)
        self.names = [PartitionName("t", number) for number in range(dice.randint(1, 3))]
        for name in self.names:
            wanted = dice.sample(list(self.nodes), self.replicas)
            members, first = tuple(map(_member, wanted)), wanted[0]
            seat, least = Seat(first, 10 + first, 100 + first), (len(wanted) + 1) // 2
            self.put(name, Record(7, 5, seat, members, least, tuple(wanted)))
        self.lives = 100
        self.processes = [Process(1), Process(2)]
        self.sent: list[tuple[int, Propose]] = []  # when it arrives
        self.newest = self.late = 0

    def put(self, name: PartitionName, one: Record) -> None:
        self.store.transact(Transaction((), (Put(keys.partition(*name), RECORD.encode(one)),)))

    def partition(self, name: PartitionName) -> PartitionSeen:
        entry = self.store.entries[keys.partition(*name)]
        move = self.store.entries.get(keys.move(*name))
        record = RECORD.decode(entry.key, entry.value)
        found = None if move is None else MOVE.decode(move.key, move.value)
        revision = 0 if move is None else move.revision
        return PartitionSeen(record, entry.revision, self.replicas, True, 0, found, revision)

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
        life, created = (None, 0) if key is None else (int(key.value), key.created)
        partitions = {name: self.partition(name) for name in self.names}
        process.controller.tick(Situation(life, created, dict(self.nodes), partitions), self.now_ns)
        effects, process.controller.out = process.controller.out, []
        for effect in effects:
            if isinstance(effect, Campaign):
                process.lease = self.store.grant(NODE_LEASE_NS, self.now_ns)
                create = Put(keys.CONTROLLER, str(process.life).encode(), process.lease)
                self.store.transact(Transaction((CreatedIs(keys.CONTROLLER, 0),), (create,)))
                continue
            if fails and self.dice.random() < 0.1:
                process.hangs_until_ns = self.now_ns + self.dice.randrange(SLOW_NS_MAX)
            way_ns = self.dice.randrange(self.dice.choice((2 * SECOND, SLOW_NS_MAX)))
            self.sent.append((self.now_ns + way_ns, effect))

    def lead(self, name: PartitionName) -> None:
        """What the leader does, and where there is none nobody."""
        one = before = self.partition(name).record
        there = {number for number, seen in self.nodes.items() if seen.life is not None}
        if one.leader is None or self.nodes[one.leader.node].life != one.leader.life:
            return
        for number in one.wanted:
            if one.member_on(number) is None and number in there and self.dice.random() < 0.5:
                one = regrouped(one, added=(_member(number),))
        dead = tuple(m for m in one.members if m.node not in there)
        gone = (*dead, *(_member(number) for number in superfluous(one)))
        if len(one.members) - len(set(gone)) >= one.members_min:
            one = regrouped(one, gone=gone)
        heir = successor(one, there)
        if heir is not None:
            one = elected(one, Seat(heir, self.nodes[heir].life or 0, 100 + heir))
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
        return {number for number, seen in self.nodes.items() if seen.life is None}

    def trouble(self) -> None:
        number, what = self.dice.choice(list(self.nodes)), self.dice.random()
        if what < 0.05:  # it goes, or it is back: no more than one is missing for long
            self.lives += 1
            life = None if not self.missing() else self.lives
            self.nodes[number] = self.nodes[number]._replace(life=life)
        elif what < 0.08:
            hung = self.dice.choice(self.processes)
            hung.hangs_until_ns = self.now_ns + self.dice.randrange(SLOW_NS_MAX)
        elif what < 0.14:
            self.replicas = self.dice.randint(1, 3)
        elif what < 0.20:
            serves = self.nodes[number].standing is Standing.SERVES
            standing = Standing.DRAINING if serves else Standing.SERVES
            self.nodes[number] = self.nodes[number]._replace(standing=standing)

    def calm(self) -> None:
        for number, seen in self.nodes.items():
            life = 10 + number if number in sorted(self.missing())[1:] else seen.life
            self.nodes[number] = seen._replace(life=life, standing=Standing.SERVES)
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


def _member(number: int) -> Member:
    return Member(number, 100 + number, 1)


def play(seed: int) -> World:
    world = World(seed)
    for _ in range(STEPS):
        world.step(world.dice.choice((SECOND // 2, SECOND, 2 * SECOND)))
        world.trouble()
    return world


def test_a_controller_that_was_replaced_changes_nothing() -> None:
    assert sum(play(seed).late for seed in range(20)) > 2  # else nothing was shown


@pytest.mark.long
def test_nor_does_it_in_many_histories() -> None:
    for seed in range(40, 400):
        play(seed)


def test_after_all_failures_everything_is_where_it_should_be() -> None:
    for seed in range(8):
        play(seed).calm()
