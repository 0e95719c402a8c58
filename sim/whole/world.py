"""Three nodes of real parts on simulated links and disks, and a walk at random through it.

As in the protocol world there is no clock that decides: the dice do, so that every timing is met. A
history is a seed. Links carry the bytes of frames, on two lanes that do not wait for one another;
what a link held when it broke may come late. The coordinator is that of the protocol world.

Losses stay within what replication promises to survive: each set that may be in force keeps a
member whose disk has kept its word.
"""

from __future__ import annotations

import errno
import random
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import NamedTuple

from penstock.broker.logview import LogView
from penstock.broker.ports import Lane
from penstock.broker.roles import Elected, Leading, Stopped
from penstock.kernel import load
from penstock.replica.choice import Candidate, Report, election, hindrance, last_resort
from penstock.replica.frames import FrameBroken, Frames
from penstock.replica.record import Member, Record
from sim.clock import FakeClock
from sim.disk import Fault
from sim.protocol.coordinator import Change, Coordinator, Transaction
from sim.protocol.observer import Breach
from sim.whole.observer import WholeObserver
from sim.whole.walker import Walker

IDENTITY = 1
ELECTION = 0  # the number of a transaction that is no leader's
STEPS = 500
NODES = 3
KERNELS = ("pure", "compiled")
CANARY = 1000  # of so many messages one is lost, where the harness is tested
Event = Callable[["WholeWorld"], None]


class Way(NamedTuple):
    """From one node to another, on one lane: what is under way, and what its receiver has."""

    queue: deque[bytes]
    reader: Frames


class WholeWorld:
    def __init__(self, seed: int, kernel: str = "", canary: bool = False) -> None:
        self.dice = dice = random.Random(seed)
        self.kernel: SimpleNamespace = load("pure" if kernel == "pure" else "compiled")
        self.clock = FakeClock()
        self.waits = dice.random() < 0.6
        self.canary = canary
        self.reads: list[tuple[int, int]] = []
        self.late: list[tuple[int, int, Frames, bytes]] = []
        self.links: dict[tuple[int, int, Lane], Way] = {}
        self.bodies = 0
        self._replicas = 100
        self.observer = WholeObserver(self)
        replicas = [self.new_replica() for _ in range(NODES)]
        count = dice.choice((1, 2, 3))
        members = tuple(Member(n, replicas[n], 1) for n in range(count))
        members_min = dice.randint(1, min(count, 2))
        record = Record(IDENTITY, 1, None, members, members_min, tuple(range(NODES)))
        self.coordinator = Coordinator(record, NODES)
        self.coordinator.last += 1
        self.coordinator.revision = self.coordinator.last
        self.coordinator.changes.append(Change(self.coordinator.revision, record))
        self.machines = [Walker(self, n, replicas[n]) for n in range(NODES)]
        for machine in self.machines:
            machine.start()
            machine.register()
        for one in range(NODES):
            for other in range(one):
                self.link(one, other)
        look_all(self)

    def close(self) -> None:
        for machine in self.machines:
            if machine.is_up:
                machine.engine.close()

    def new_replica(self) -> int:
        self._replicas += 1
        return self._replicas

    # --- links ---

    def link(self, one: int, other: int) -> None:
        if (one, other, Lane.LIVE) in self.links or one == other:
            return
        if not (self.machines[one].active and self.machines[other].active):
            return
        for lane in Lane:
            self.links[one, other, lane] = Way(deque(), Frames(one))
            self.links[other, one, lane] = Way(deque(), Frames(other))
        self.machines[one].linked(other)
        self.machines[other].linked(one)

    def unlink(self, one: int, other: int) -> None:
        if (one, other, Lane.LIVE) not in self.links:
            return
        for source, target in ((one, other), (other, one)):
            for lane in Lane:
                queue, reader = self.links.pop((source, target, lane))
                self.late = [(source, target, reader, data) for data in queue] or self.late
        self.machines[one].unlinked(other)
        self.machines[other].unlinked(one)

    def unlink_all(self, node: int) -> None:
        for other in range(NODES):
            self.unlink(node, other)

    def send(self, source: int, target: int, lane: Lane, frames: list[bytes]) -> None:
        way = self.links.get((source, target, lane))
        if way is not None:
            way.queue.extend(frames)

    def deliver_one(self) -> bool:
        waiting = [key for key, way in self.links.items() if way.queue]
        if not waiting:
            return False
        source, target, lane = self.dice.choice(waiting)
        queue, reader = self.links[source, target, lane]
        self.hand(source, target, reader, queue.popleft())
        return True

    def hand(self, source: int, target: int, reader: Frames, data: bytes) -> None:
        """`reader` is the link's: what it has of a payload in pieces ends with it."""
        for about, frame in reader.feed(data):
            self.machines[target].receive(source, about, frame)

    # --- the coordinator ---

    def record(self) -> Record:
        return self.coordinator.record

    def possible_sets(self) -> list[tuple[Member, ...]]:
        coordinator = self.coordinator
        pending = (one for one in coordinator.pending if coordinator.may_install(one))
        return [coordinator.record.members, *(one.record.members for one in pending)]

    def submit(
        self,
        machine: Walker,
        number: int,
        record: Record,
        revision: int,
        generations: tuple[tuple[int, int], ...],
    ) -> None:
        transaction = Transaction(
            machine.number, machine.life, number, record, revision, generations
        )
        self.coordinator.submit(transaction)

    def look_at(self, machine: Walker, count: int) -> None:
        """The next changes that this node reads."""
        for change in self.coordinator.changes[machine.place : machine.place + count]:
            machine.place += 1
            if change.entry is not None:
                machine.lives[change.node] = change.entry.life
            if change.record is not None and machine.active:
                machine.assigned.assign(change.revision, change.record)
                machine.turn()

    def elect(self, machine: Walker, unreachable: frozenset[int], last: bool = False) -> None:
        assigned, record = machine.assigned, machine.assigned.record
        if record is None or assigned.office is not None or machine.electing:
            return
        stopped = isinstance(assigned.role, Stopped)
        candidate = Candidate(
            assigned.seat, machine.generation, machine.entry.generation,
            machine.entry.memory_lost_generation, self.waits, stopped,
        )  # fmt: skip
        if hindrance(record, candidate) is not None and not (last and self._is_last(machine)):
            return
        machine.electing = True
        self.submit(
            machine, ELECTION, election(record, assigned.seat, unreachable), assigned.revision, ()
        )

    def _is_last(self, machine: Walker) -> bool:
        """All members have lost memory, and this one may have the most."""
        record = self.coordinator.record
        if machine.assigned.record != record or isinstance(machine.assigned.role, Stopped):
            return False
        reports = []
        for other in self.machines:
            entry = record.member_on(other.number)
            if entry is None or not other.active or isinstance(other.assigned.role, Stopped):
                continue
            is_there = entry.replica == other.own.replica
            extent = LogView(other.log).extent() if is_there else None
            reports.append(Report(entry, other.entry.memory_lost_generation, extent))
        chosen = last_resort(record, reports)
        return chosen is not None and chosen.node == machine.number

    # --- the walk ---

    def draw(self) -> Iterator[Event]:
        weights = [weight * self.dice.choice(scales) for weight, scales in WEIGHTS.values()]
        yield from self.dice.choices(list(WEIGHTS), weights, k=STEPS)

    def happened(self, step: int, event: str) -> None:
        """It is over. Whoever wants to see how things stand then overrides this."""

    def step(self, event: Event) -> None:
        self.clock.pass_ns(self.dice.randrange(1_000_000))
        event(self)
        self.check()

    def check(self) -> None:
        applied = self.coordinator.applied
        if applied:
            for before, after in applied:
                self.observer.growths += bool(set(after.members) - set(before.members))
                self.observer.shrinks += len(after.members) < len(before.members)
            applied.clear()
            self.observer.check_sets()

    def any_machine(self) -> Walker:
        return self.machines[int(self.dice.random() * NODES)]

    def serving(self) -> Walker | None:
        found = [machine for machine in self.machines if machine.group is not None]
        return self.dice.choice(found) if found else None

    def new_bodies(self, count: int) -> list[bytes]:
        made = []
        for _ in range(count):
            self.bodies += 1
            made.append(b"%d %s" % (self.bodies, b"." * self.dice.choice((10, 10, 300))))
        return made


# --- events ---


def deliver(world: WholeWorld) -> None:
    for _ in range(1 + int(world.dice.random() * 6)):
        if not world.deliver_one():
            return


def deliver_late(world: WholeWorld) -> None:
    if world.late:
        source, target, reader, data = world.late.pop(0)
        if (source, target, Lane.LIVE) not in world.links:
            return
        try:
            world.hand(source, target, reader, data)
        except FrameBroken:  # a piece before it was lost: that link is of no use
            world.late.clear()


def publish(world: WholeWorld) -> None:
    machine = world.serving()
    if machine is not None:
        bodies = world.new_bodies(1 + int(world.dice.random() * 3))
        if world.canary and world.dice.random() < len(bodies) / CANARY:
            world.observer.answered(tuple(bodies))  # and nothing of it is stored
        else:
            machine.publish(bodies)


def sync(world: WholeWorld) -> None:
    machine = world.any_machine()
    if machine.is_up:
        machine.sync()


def sync_all(world: WholeWorld) -> None:
    for machine in world.machines:
        if machine.is_up:
            machine.sync()


def settle(world: WholeWorld) -> None:
    machine = world.any_machine()
    if machine.is_up:
        machine.assigned.settle()
        machine.turn()


def fail_sync(world: WholeWorld) -> None:
    machine = world.any_machine()
    if machine.active and world.observer.may_lose(machine.number):
        world.observer.forsake(machine.number, machine.own.replica)
        fault = machine.disk.inject(Fault("sync", path_part=".log"))
        machine.sync()
        if fault in machine.disk.faults:
            machine.disk.faults.remove(fault)


def fill_disk(world: WholeWorld) -> None:
    """The next write finds no room, or a part of it."""
    machine = world.any_machine()
    if machine.active:
        written = world.dice.random()
        machine.disk.inject(Fault("write", errno.ENOSPC, ".log", written=written))


def make_room(world: WholeWorld) -> None:
    for machine in world.machines:
        machine.disk.faults.clear()


def look(world: WholeWorld) -> None:
    machine = world.any_machine()
    if machine.active:
        world.look_at(machine, 1 + int(world.dice.random() * 3))


def look_all(world: WholeWorld) -> None:
    for machine in world.machines:
        if machine.active:
            world.look_at(machine, 1 << 30)


def apply_transaction(world: WholeWorld) -> None:
    pending = world.coordinator.pending
    if pending:
        place = int(world.dice.random() * len(pending))
        world.coordinator.apply(place, world.dice.random() < 0.75)


def lose_transaction(world: WholeWorld) -> None:
    pending = world.coordinator.pending
    if pending:
        place = int(world.dice.random() * len(pending))
        if world.dice.random() < 0.7:
            world.coordinator.give_up(place)
        else:
            world.coordinator.forget(place)


def answer(world: WholeWorld) -> None:
    answers = world.coordinator.answers
    if not answers:
        return
    one = answers.pop(int(world.dice.random() * len(answers)))
    machine = world.machines[one.node]
    if not machine.active or machine.life != one.life:
        return
    if one.number == ELECTION:
        machine.electing = False
    elif machine.assigned.office is not None:
        machine.assigned.office.outcome(one.number, one.outcome, one.revision)
        machine.turn()


def read(world: WholeWorld) -> None:
    if not world.reads:
        return
    number, life = world.reads.pop(0)
    machine = world.machines[number]
    if machine.active and machine.life == life and machine.assigned.office is not None:
        coordinator = world.coordinator
        machine.assigned.office.read(coordinator.revision, coordinator.record)
        machine.turn()


def elect(world: WholeWorld) -> None:
    machine = world.any_machine()
    if not machine.active or machine.assigned.record is None:
        return
    leader = machine.assigned.record.leader
    if leader is not None:
        lives = (machine.number, leader.node, Lane.LIVE) in world.links
        if lives and machine.lives.get(leader.node) == leader.life and world.dice.random() < 0.95:
            return
    linked = {b for a, b, _ in world.links if a == machine.number} | {machine.number}
    world.elect(machine, frozenset(range(NODES)) - linked, last=True)


def shrink(world: WholeWorld) -> None:
    machine = world.serving()
    if machine is not None and machine.assigned.office is not None:
        office = machine.assigned.office
        office.withdraw(office.line.late_members())
        others = [m.node for m in office.line.record.members if m.node != machine.number]
        if others:
            office.drop((world.dice.choice(others),))
            machine.turn()


def resign(world: WholeWorld) -> None:
    machine = world.serving()
    if machine is not None and machine.assigned.office is not None:
        office = machine.assigned.office
        office.line.resign("asked to")
        office.work()
        office.on_change()
        machine.turn()


def cut_link(world: WholeWorld) -> None:
    world.unlink(world.any_machine().number, world.any_machine().number)


def mend_link(world: WholeWorld) -> None:
    world.link(world.any_machine().number, world.any_machine().number)


def kill(world: WholeWorld) -> None:
    machine = world.any_machine()
    if machine.is_up:
        machine.kill()
        if world.dice.random() < 0.5:
            machine.start()


def lose_power(world: WholeWorld) -> None:
    machine = world.any_machine()
    if not machine.is_up:
        return
    if not world.waits:
        if not world.observer.may_lose(machine.number):
            return
        written = world.coordinator.entries[machine.number].generation
        generation = max(machine.generation, written)
        world.observer.forsake(machine.number, machine.own.replica, generation)
    machine.lose_power()
    if world.dice.random() < 0.6:
        machine.start()


def start(world: WholeWorld) -> None:
    machine = world.any_machine()
    if not machine.is_up:
        machine.start()


def register(world: WholeWorld) -> None:
    machine = world.any_machine()
    if machine.is_up and not machine.active:
        machine.register()
        world.observer.check_sets()


def wipe(world: WholeWorld) -> None:
    """Another, empty disk."""
    machine = world.any_machine()
    if machine.is_up and world.observer.may_lose(machine.number):
        world.observer.forsake(machine.number, machine.own.replica)
        replace_disk(world, machine)


def replace_disk(world: WholeWorld, machine: Walker) -> None:
    machine.end()
    life = machine.life
    other = Walker(world, machine.number, world.new_replica())
    other.life = life
    other.entry = machine.entry
    world.machines[machine.number] = other
    world.observer.wiped(machine.number)


WEIGHTS: dict[Event, tuple[float, tuple[float, ...]]] = {
    deliver: (50, (1,)),
    deliver_late: (1, (0, 1, 4)),
    publish: (30, (1, 2)),
    sync: (20, (1,)),
    sync_all: (5, (0.3, 1)),
    settle: (2, (1,)),
    fail_sync: (0.6, (0, 0, 1, 3)),
    fill_disk: (0.6, (0, 0, 1, 3)),
    make_room: (2, (1,)),
    look: (5, (1,)),
    look_all: (10, (0.3, 1)),
    apply_transaction: (14, (1,)),
    lose_transaction: (1, (0, 1, 2)),
    answer: (12, (1,)),
    read: (4, (1,)),
    elect: (12, (1, 2)),
    shrink: (1, (0, 1, 3)),
    resign: (0.3, (0, 1, 3)),
    cut_link: (1.5, (0, 1, 3)),
    mend_link: (12, (1,)),
    kill: (1, (0, 1, 3)),
    lose_power: (1, (0, 1, 3)),
    start: (8, (1,)),
    register: (12, (1,)),
    wipe: (0.4, (0, 0, 1, 2)),
}


# --- the calm end ---

ROUNDS_MAX = 60


def calm(world: WholeWorld) -> Walker:
    """Nothing fails any more: the partition has to be whole again. Returns who leads."""
    missing = "L-a: no replica is in office"
    for _ in range(ROUNDS_MAX):
        restore(world)
        exchange(world)
        world.check()
        leader, missing = found(world)
        if leader is not None and not missing:
            return leader
    raise Breach(missing[:3], f"{missing[5:]} after {ROUNDS_MAX} calm rounds")


def restore(world: WholeWorld) -> None:
    world.late.clear()
    make_room(world)
    for machine in world.machines:
        if machine.is_up and isinstance(machine.assigned.role, Stopped):
            world.observer.forsake(machine.number, machine.own.replica)
            machine.kill()
        if not machine.is_up:
            machine.start()
        if not machine.active:
            machine.register()
        machine.assigned.settle()
    for one in range(NODES):
        for other in range(one):
            world.link(one, other)


def exchange(world: WholeWorld) -> None:
    coordinator = world.coordinator
    while coordinator.pending:
        coordinator.apply(0, answered=True)
        world.check()
    while coordinator.answers:
        answer(world)
    while world.reads:
        read(world)
    look_all(world)
    sync_all(world)  # promises become durable
    if world.serving() is None:
        elect_calmly(world)
    publish(world)
    for _ in range(100):
        sync_all(world)
        if not world.deliver_one():
            wait_no_longer(world)
            return
        while world.deliver_one():
            pass
    raise Breach("L-f", "frames go to and fro without an end")


def wait_no_longer(world: WholeWorld) -> None:
    """What offices do after a timeout: a learner may have dropped rows while its disk was full."""
    for machine in world.machines:
        office = machine.assigned.office
        if office is not None:
            office.withdraw(office.line.late_members())
            machine.turn()


def elect_calmly(world: WholeWorld) -> None:
    record = world.coordinator.record
    leader = record.leader
    if leader is not None:
        machine = world.machines[leader.node]
        is_there = machine.life == leader.life and machine.own.replica == leader.replica
        if is_there and isinstance(machine.assigned.role, Elected | Leading):
            return
    for machine in world.machines:
        world.elect(machine, frozenset(), last=True)
        if machine.electing:
            return


def found(world: WholeWorld) -> tuple[Walker | None, str]:
    """Who leads, and what is missing."""
    record = world.coordinator.record
    for machine in world.machines:
        office = machine.assigned.office
        if machine.group is not None and office and office.line.record == record:
            break
    else:
        return None, "L-a: no replica is in office"
    if machine.log.written_end == 0 or world.observer.end < machine.log.written_end:
        return machine, "L-b: a publish is not committed"
    members = {(m.node, m.replica, m.generation) for m in record.members}
    for other in world.machines:
        if (other.number, other.own.replica, other.generation) not in members:
            return machine, f"L-c: node {other.number} is no member"
        if other.log.written_end != machine.log.written_end:
            return machine, f"L-c: node {other.number} is behind"
    return machine, ""
