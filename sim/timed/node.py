"""A node of the timed world: what a daemon's turn does with its offices, and nothing beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.cluster.documents import ACTIVE, Membership
from penstock.cluster.documents import Node as LiveNode
from penstock.cluster.elections import Local
from penstock.cluster.keys import PartitionName
from penstock.cluster.participant import Participant
from penstock.cluster.view import Held, Remembered
from penstock.replica.record import Record
from sim.timed.port import Port
from sim.timed.replica import Addressed, Replica

if TYPE_CHECKING:
    from sim.timed.world import World


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
        self.corrupt: frozenset[PartitionName] = frozenset()
        self.life = 0

    def start(self) -> None:
        world = self.world
        self.generation += 1
        self.life = 100 * self.number + self.generation
        self.is_up, self.hangs = True, False
        self.port = Port(world.store)
        self.port.now_ns = world.now_ns
        self.participant = Participant(
            self.number,
            Membership(self.number + 1, self.generation, "", 0, self.life, 0, ACTIVE),
            self._describe,
            self.port,
            self._local,
            self._assign,
            world.now_ns,
            self.remembered,
            self.records,
            world.rules,
        )
        self.view, self.offices = self.participant.view, self.participant.offices
        self.links = self.participant.links
        for replica in self.replicas.values():
            replica.start(self)

    def _describe(self) -> LiveNode:
        return LiveNode(self.life, "host", 1, 2, 3, "0.1.0", "", 0, 0)

    def _local(self, name: PartitionName) -> Local | None:
        return self.replicas[name].local()

    def _assign(self, name: PartitionName, held: Held[Record] | None) -> None:
        self.replicas[name].sit_down()

    def end(self) -> None:
        self.is_up = False

    # --- links ---

    def linked(self, other: int, life: int) -> None:
        self.participant.linked(other, life)
        for replica in self.replicas.values():
            replica.linked(other)

    def unlinked(self, other: int) -> None:
        self.participant.unlinked(other)
        for replica in self.replicas.values():
            replica.unlinked(other)

    def refused(self, other: int, life: int) -> None:
        self.participant.refused(other, life)
        self._speak()

    def send(self, other: int, frame: Any) -> None:
        self.world.send(self.number, other, frame)

    def receive(self, other: int, frame: Any) -> None:
        if isinstance(frame, Addressed):
            self.replicas[frame.name].receive(other, frame.frame)
            self.replicas[frame.name].work()
        else:
            self.participant.receive(other, frame)
            self._speak()

    def _speak(self) -> None:
        out, self.participant.out = self.participant.out, []
        for other, message in out:
            self.send(other, message)

    # --- a turn ---

    def turn(self) -> None:
        now_ns = self.world.now_ns
        self.port.run(now_ns)
        self.participant.found_corrupt(self.corrupt)
        self.participant.tick(now_ns)
        self.remembered, self.records = self.view.remembered, dict(self.view.partitions)
        for replica in self.replicas.values():
            replica.work()
        self.participant.take_moved()
        self.participant.flush()
        self._speak()
