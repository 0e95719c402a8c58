"""A node of the timed world: what a daemon's turn does with its offices, and nothing beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.cluster import keys
from penstock.cluster.documents import ACTIVE, Membership
from penstock.cluster.documents import Node as LiveNode
from penstock.cluster.elections import Local, SendReport
from penstock.cluster.keys import PartitionName
from penstock.cluster.offices import Offices
from penstock.cluster.registration import Registration
from penstock.cluster.view import Held, Remembered, View
from penstock.cluster.watching import Phase, Watching
from penstock.limits import MS, VIEW_SLICE_DOCUMENTS
from penstock.replica.record import Record
from penstock.sim.timed.port import Port
from penstock.sim.timed.replica import Addressed, Replica

if TYPE_CHECKING:
    from penstock.sim.timed.world import World

HEARTBEAT_NS = 500 * MS


class Heartbeat(NamedTuple):
    sent_ns: int


class Answer(NamedTuple):
    sent_ns: int  # of the heartbeat


class Refused(NamedTuple):
    """A connection to this life of a node was refused."""

    node: int
    life: int


class Node:
    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.replicas = {name: Replica(name, 1_000 * number + name.number) for name in world.names}
        self.generation = 0
        self.remembered = Remembered()
        self.records: dict[PartitionName, Held[Record]] = {}
        self.is_up = False
        self.hangs = False  # the loop does not turn
        self.life = 0
        self.links: dict[int, int] = {}  # to the life of the other

    def start(self) -> None:
        world = self.world
        self.generation += 1
        self.life = 100 * self.number + self.generation
        self.is_up, self.hangs = True, False
        self.links = {}
        self.port = Port(world.store)
        self.port.now_ns = world.now_ns
        self.view = View(self.remembered, self.records)
        self.watching = Watching(self.port, self.view)
        membership = Membership(self.number + 1, self.generation, "", 0, self.life, 0, ACTIVE)
        self.registration = Registration(
            self.number, self.port, self.view, membership, self._describe
        )
        self.offices = Offices(
            self.number,
            self.life,
            self.generation,
            self.view,
            self.port,
            self._local,
            world.now_ns,
            rules=world.rules,
        )
        self._heartbeat_due_ns = 0
        for replica in self.replicas.values():
            replica.start(self)

    def _describe(self) -> LiveNode:
        return LiveNode(self.life, "host", 1, 2, 3, "0.1.0", "", 0, 0)

    def _local(self, name: PartitionName) -> Local | None:
        return self.replicas[name].local()

    def end(self) -> None:
        self.is_up = False

    # --- links ---

    def linked(self, other: int, life: int) -> None:
        self.links[other] = life
        self.offices.linked(other, life)
        for replica in self.replicas.values():
            replica.linked(other)

    def unlinked(self, other: int) -> None:
        del self.links[other]
        self.offices.unlinked(other)
        for replica in self.replicas.values():
            replica.unlinked(other)

    def refused(self, other: int, life: int) -> None:
        self.offices.refused(self.number, other, life)
        for node in self.links:
            self.send(node, Refused(other, life))

    def send(self, other: int, frame: Any) -> None:
        self.world.send(self.number, other, frame)

    def receive(self, other: int, frame: Any) -> None:
        match frame:
            case Addressed(name, inner):
                self.replicas[name].receive(other, inner)
                self.replicas[name].work()
            case Heartbeat(sent_ns):
                self.send(other, Answer(sent_ns))
            case Answer(sent_ns):
                self.offices.heard.answered(other, sent_ns)
            case Refused(node, life):
                self.offices.refused(other, node, life)
            case SendReport(_, name, epoch, report):
                self.offices.elections.reported(other, name, epoch, report)

    # --- a turn ---

    def turn(self) -> None:
        now_ns = self.world.now_ns
        self.watching.tick(now_ns)
        is_current = self.watching.phase is Phase.WATCHING and not self.view.is_pending
        self.registration.tick(now_ns, is_current)
        self.port.run(now_ns)
        self._look()
        if is_current and self.registration.is_held(now_ns):
            self.offices.followed()
        else:
            self.offices.away()
        self.offices.tick(now_ns)
        self._beat(now_ns)
        self._work()
        self.offices.flush()

    def _look(self) -> None:
        changes = self.view.apply(VIEW_SLICE_DOCUMENTS)
        self.offices.changed(changes)
        for key, _, after in changes:
            if key.startswith(keys.PARTITIONS):
                self.replicas[keys.partition_of(key)].sit_down()
            elif key == keys.node(self.number) and after is None:
                self.registration.key_gone()
        self.remembered, self.records = self.view.remembered, dict(self.view.partitions)

    def _beat(self, now_ns: int) -> None:
        if now_ns < self._heartbeat_due_ns:
            return
        self._heartbeat_due_ns = now_ns + HEARTBEAT_NS
        for other in self.links:
            self.send(other, Heartbeat(now_ns))
        for replica in self.replicas.values():
            if replica.line is not None:
                replica.line.tick(now_ns)

    def _work(self) -> None:
        for replica in self.replicas.values():
            replica.work()
        for effect in self.offices.take_effects():
            self.send(effect.node, effect)
        self.offices.moved.clear()
