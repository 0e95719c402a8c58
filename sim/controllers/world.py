"""Two controllers over nodes that come and go, with leases that run out and slow transactions.

- *I2*: once a controller has changed anything, no earlier one does.
- *I12*: each change that is applied is a legal one, and what is wanted follows the move that stands
  beside the record.
- *Calm*: when nothing fails any more, each partition is where it should be.

The machine is the real one (`Controller`), over the coordinator's store. A process hangs for up to
a minute: it keeps what it saw before, its lease runs out, and the other one gets the key. What it
had sent is on its way all the while, and may arrive much later, in any order. Leaders do what
leaders do, at once.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, NamedTuple, TypeVar

from penstock.cluster import keys
from penstock.cluster.controller import (
    ALL,
    Campaign,
    Controller,
    ControllerGuards,
    GiveUp,
    NodeSeen,
    PartitionSeen,
    Propose,
    Situation,
    transaction_of,
)
from penstock.cluster.coordinator import CreatedIs, Entry, Put, Transaction
from penstock.cluster.documents import RECORD
from penstock.cluster.jsonform import Form
from penstock.cluster.keys import PartitionName
from penstock.cluster.moves import MOVE, Move
from penstock.cluster.placement import Standing
from penstock.cluster.store import Store
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

STEPS = 150
CALM_STEP_NS = 4 * SECOND  # less than a lease lasts
CALM_STEPS = (NODE_REPLACE_NS + 10 * NODE_STEADY_NS) // CALM_STEP_NS
HANG_NS_MAX = 60 * SECOND
SLOW_NS_MAX = 60 * SECOND
T = TypeVar("T")


class Broken(AssertionError):
    """A promise was not kept."""


class Sent(NamedTuple):
    """A transaction on its way to the coordinator."""

    effect: Propose | GiveUp
    there_ns: int


class Process:
    """A controller, what it has seen, and the lease under which it stands in the key."""

    def __init__(self, life: int) -> None:
        self.life = life
        self.controller = Controller(life)
        self.lease = 0
        self.hangs_until_ns = 0


class World:
    def __init__(self, seed: int, guards: ControllerGuards = ALL) -> None:
        self.seed = seed
        self.guards = guards
        self.dice = dice = random.Random(seed)
        self.store = Store()
        self.now_ns = 1000 * SECOND
        self.nodes = {number: _node(number) for number in range(1, dice.randint(5, 8))}
        self.replicas = dice.randint(1, 3)
        self.names = [PartitionName("t", number) for number in range(dice.randint(1, 4))]
        for name in self.names:
            self.put(name, _first_record(dice.sample(list(self.nodes), self.replicas)))
        self.lives = 100
        self.processes = [Process(1), Process(2)]
        self.sent: list[Sent] = []
        self.newest = 0  # the key, by when it was made, of who has changed anything last
        self.fails = True  # else all that happens is calm
        self.seen: Counter[str] = Counter()
        self._decoded: dict[tuple[str, int], Any] = {}

    # --- the coordinator ---

    def put(self, name: PartitionName, one: Record) -> None:
        self.store.transact(Transaction((), (Put(keys.partition(*name), RECORD.encode(one)),)))

    def partition(self, name: PartitionName) -> PartitionSeen:
        entry = self.store.entries[keys.partition(*name)]
        move = self.store.entries.get(keys.move(*name))
        return PartitionSeen(
            self.decoded(entry, RECORD),
            entry.revision,
            self.replicas,
            True,
            0,
            None if move is None else self.decoded(move, MOVE),
            0 if move is None else move.revision,
        )

    def decoded(self, entry: Entry, form: Form[T]) -> T:
        """Each document once: that is most of a history's cost."""
        place = entry.key, entry.revision
        if place not in self._decoded:
            self._decoded[place] = form.decode(entry.key, entry.value)
        found: T = self._decoded[place]
        return found

    def look(self) -> Situation:
        key = self.store.entries.get(keys.CONTROLLER)
        return Situation(
            None if key is None else int(key.value),
            0 if key is None else key.created,
            dict(self.nodes),
            {name: self.partition(name) for name in self.names},
        )

    def arrive(self) -> None:
        """Of what has come to the coordinator, in any order."""
        there = [one for one in self.sent if one.there_ns <= self.now_ns]
        self.sent = [one for one in self.sent if one.there_ns > self.now_ns]
        self.dice.shuffle(there)
        for one in there:
            self.apply(one.effect)

    def apply(self, effect: Propose | GiveUp) -> None:
        before = {name: self.partition(name) for name in self.names}
        settled = self.store.transact(transaction_of(effect, self.guards))
        if settled.outcome is not Outcome.DONE:
            self.seen["refused"] += 1
            self.seen["late"] += effect.controller_created < self.newest
            return
        self.seen["applied"] += 1
        if effect.controller_created < self.newest:
            raise Broken("I2: a controller that was replaced has changed something")
        self.newest = effect.controller_created
        for name, one in before.items():
            self.check(name, one)

    def check(self, name: PartitionName, before: PartitionSeen) -> None:
        now = self.partition(name).record
        rule = broken_rule(before.record, now)
        if rule is not None:
            raise Broken(f"I12: {name}: {rule}")
        if now.wanted != before.record.wanted and not _follows(before.move, now):
            raise Broken(f"I12: {name}: {now.wanted} are wanted, and {before.move} is the move")

    # --- controllers ---

    def control(self, process: Process) -> None:
        if self.now_ns < process.hangs_until_ns:
            return
        if process.lease:
            self.store.keep(process.lease, self.now_ns)
        process.controller.tick(self.look(), self.now_ns)
        effects, process.controller.out = process.controller.out, []
        for effect in effects:
            if isinstance(effect, Campaign):
                self.campaign(process)
            elif self.dice.random() < 0.95:  # else it is lost
                self.send(process, effect)

    def send(self, process: Process, effect: Propose | GiveUp) -> None:
        """Sometimes the process hangs with it, or its machine is cut off."""
        if self.fails and self.dice.random() < 0.1:
            process.hangs_until_ns = self.now_ns + self.dice.randrange(HANG_NS_MAX)
        self.sent.append(Sent(effect, self.now_ns + self.way_ns()))

    def campaign(self, process: Process) -> None:
        process.lease = self.store.grant(NODE_LEASE_NS, self.now_ns)
        create = Put(keys.CONTROLLER, str(process.life).encode(), process.lease)
        free = CreatedIs(keys.CONTROLLER, 0)
        if self.store.transact(Transaction((free,), (create,))).outcome is Outcome.DONE:
            self.seen["offices"] += 1

    def way_ns(self) -> int:
        if self.dice.random() < 0.5:
            return self.dice.randrange(2 * SECOND)
        return self.dice.randrange(SLOW_NS_MAX)

    # --- the nodes ---

    def lead(self, name: PartitionName) -> None:
        """What the leader, and where there is none what the members do."""
        one = self.partition(name).record
        leader = one.leader
        if leader is None or self.nodes[leader.node].life != leader.life:
            return
        there = {number for number, seen in self.nodes.items() if seen.life is not None}
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
        if one != self.partition(name).record:
            self.put(name, one)

    def missing(self) -> list[int]:
        return [number for number, seen in self.nodes.items() if seen.life is None]

    # --- what happens ---

    def trouble(self) -> None:
        what = self.dice.random()
        if what < 0.05:
            self.fail_node()
        elif what < 0.08:
            self.hang()
        elif what < 0.14:
            self.replicas = self.dice.randint(1, 3)
        elif what < 0.20:
            self.drain_or_not()

    def fail_node(self) -> None:
        """It goes, or it is back: no more than one is missing for long."""
        number = self.dice.choice(list(self.nodes))
        self.lives += 1
        life = None if not self.missing() else self.lives
        self.nodes[number] = self.nodes[number]._replace(life=life)

    def hang(self) -> None:
        process = self.dice.choice(self.processes)
        process.hangs_until_ns = self.now_ns + self.dice.randrange(HANG_NS_MAX)

    def drain_or_not(self) -> None:
        number = self.dice.choice(list(self.nodes))
        is_served = self.nodes[number].standing is Standing.SERVES
        standing = Standing.DRAINING if is_served and len(self.nodes) > 5 else Standing.SERVES
        self.nodes[number] = self.nodes[number]._replace(standing=standing)

    def step(self, ns: int) -> None:
        self.now_ns += ns
        self.store.run_out(self.now_ns)
        for process in self.processes:
            self.control(process)
        self.arrive()
        for name in self.names:
            self.lead(name)

    def play(self, is_calm_after: bool = False) -> None:
        for _ in range(STEPS):
            self.step(self.dice.choice((SECOND // 2, SECOND, 2 * SECOND)))
            self.trouble()
        if is_calm_after:
            self.calm()

    # --- the end ---

    def calm(self) -> None:
        self.fails = False
        for process in self.processes:
            process.hangs_until_ns = 0
        for number, seen in self.nodes.items():
            is_back = number in self.missing()[1:]
            life = 10 + number if is_back else seen.life
            self.nodes[number] = seen._replace(life=life, standing=Standing.SERVES)
        for _ in range(CALM_STEPS):
            self.step(CALM_STEP_NS)
        for name in self.names:
            self.check_place(name)

    def check_place(self, name: PartitionName) -> None:
        one = self.partition(name)
        nodes = {member.node for member in one.record.members}
        missing = set(self.missing())
        if nodes <= missing:  # there is nothing to copy from: an operator decides
            self.seen["waits for an operator"] += 1
            return
        least = (self.replicas + 1) // 2
        is_there = nodes == set(one.record.wanted) and not nodes & missing
        is_full = len(nodes) == self.replicas and one.record.members_min == least
        if one.move is not None or not is_there or not is_full:
            raise Broken(f"L-c: {name} is {one}, and {missing} are missing")
        self.seen["in place"] += 1


def _follows(move: Move | None, record: Record) -> bool:
    return move is not None and record.wanted in (move.wide, move.target)


def _node(number: int) -> NodeSeen:
    return NodeSeen("", Standing.SERVES, 1, 0, 10 + number)


def _member(number: int) -> Member:
    return Member(number, 100 + number, 1)


def _first_record(wanted: list[int]) -> Record:
    first = wanted[0]
    members = tuple(map(_member, wanted))
    least = (len(wanted) + 1) // 2
    return Record(7, 5, Seat(first, 10 + first, 100 + first), members, least, tuple(wanted))
