"""A node of the whole world on a clock: a machine, and its part in the cluster.

A turn brings the coordinator's answers, has the offices draw their conclusions, and does what the
machines want. What comes while the process hangs waits until it goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.broker.logview import LogView
from penstock.broker.office import Office
from penstock.broker.ports import Lane
from penstock.broker.roles import Stopped
from penstock.cluster.documents import ACTIVE, Membership
from penstock.cluster.documents import Node as LiveNode
from penstock.cluster.elections import Local
from penstock.cluster.keys import PartitionName
from penstock.cluster.participant import Participant
from penstock.cluster.registration import Registering
from penstock.cluster.view import Held, Remembered
from penstock.limits import MS, SECOND
from penstock.replica.effects import Hello, Propose
from penstock.replica.frames import Target
from penstock.replica.record import Record
from sim.clock import START_WALL_NS
from sim.timed.port import Port
from sim.whole.machine import Machine

if TYPE_CHECKING:
    from sim.schedule import Schedule
    from sim.whole.clocked import ClockedWorld

NAME = PartitionName("orders", 0)
TICK_NS = 50 * MS
SYNC_PAUSE_NS = 2 * SECOND  # of a topic that does not wait for the disk


class NodeClock:
    """The world's time; what its operator has set the wall clock to."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.wall_step_ns = 0

    def mono_ns(self) -> int:
        return self._schedule.now_ns

    def wall_ns(self) -> int:
        return START_WALL_NS + self._schedule.now_ns + self.wall_step_ns


class Node(Machine):
    def __init__(self, world: ClockedWorld, number: int, replica: int) -> None:
        self.among = world
        self.remembered = Remembered()  # these two are durable
        self.records: dict[PartitionName, Held[Record]] = {}
        self.hangs = False
        self.inbox: deque[Callable[[], None]] = deque()  # what came while it hung
        self.first_generation = 0  # of a machine that takes an id over: as it was given
        self.answers_refusals = True  # a machine that has lost its power says nothing
        self.refused_start = ""
        self.port = Port(world.store)
        super().__init__(world, number, replica)
        self.clock = self.own_clock = NodeClock(world.schedule)

    def written_generation(self) -> int:
        return self.first_generation

    def start(self) -> None:
        super().start()
        world = self.among
        self.active, self.hangs, self.answers_refusals = True, False, True
        self.inbox.clear()
        self._office: Office | None = None
        self._end = self._committed = 0
        self._sync_is_due = False
        self._synced_ns = world.schedule.now_ns
        self.port = Port(world.store, world.passage)
        self.port.now_ns = world.schedule.now_ns
        self.port.is_cut = self.number in world.cut_off
        self.participant = Participant(
            self.number,
            self._membership(),
            self._describe,
            self.port,
            self._local,
            self._assign,
            world.schedule.now_ns,
            self.remembered,
            self.records,
        )
        for name, held in self.records.items():
            self._assign(name, held)
        world.every(self, TICK_NS, self.tick)

    def _membership(self) -> Membership:
        lost = self.memory_lost_generation
        return Membership(self.number + 1, self.generation, "", lost, self.life, 0, ACTIVE)

    def _describe(self) -> LiveNode:
        return LiveNode(self.life, "host", 1, 2, 3, "0.1.0", "", 0, 0)

    def _local(self, name: PartitionName) -> Local | None:
        assigned = self.assigned
        extent = LogView(self.log).extent()
        stopped = isinstance(assigned.role, Stopped)
        return Local(
            self.own.replica, stopped, self.world.waits, extent, assigned.office is not None
        )

    def _assign(self, name: PartitionName, held: Held[Record] | None) -> None:
        if held is not None:
            self.world.observer.acts_on(self.number, held.document)
            restorations = self.participant.view.restorations
            self.assigned.assign(held.revision, held.document, restorations)

    def end(self) -> None:
        if self.is_up:
            self.port.close()
            self.among.ghosts.append(self.port)
        super().end()

    def lose_power(self) -> None:
        super().lose_power()
        self.answers_refusals = False

    # --- what comes: at once, or when it goes on ---

    def when_awake(self, happens: Callable[[], None]) -> None:
        if self.hangs:
            self.inbox.append(happens)
        else:
            happens()

    def wake(self) -> None:
        self.hangs = False
        while self.inbox and self.is_up:
            self.inbox.popleft()()

    def linked_to(self, node: int, life: int) -> None:
        self.participant.linked(node, life)
        self.linked(node)

    def unlinked(self, node: int) -> None:
        if self.is_up:
            self.participant.unlinked(node)
        super().unlinked(node)

    def refused_by(self, node: int, life: int) -> None:
        self.participant.refused(node, life)
        self._speak()

    def receive(self, node: int, target: Target, frame: Any) -> None:
        super().receive(node, target, frame)
        followed = self.assigned.followed
        if isinstance(frame, Hello) and followed is not None and followed.leader == node:
            self.participant.offices.elections.in_office(NAME, frame.epoch)

    def hear(self, node: int, message: Any) -> None:
        self.participant.receive(node, message)
        self._speak()

    def _speak(self) -> None:
        out, self.participant.out = self.participant.out, []
        for node, message in out:
            self.among.say(self.number, node, message)

    # --- turns ---

    def tick(self) -> None:
        if not self.is_up or self.hangs:
            return
        now_ns = self.clock.mono_ns()
        participant = self.participant
        self.port.run(now_ns)
        participant.tick(now_ns)
        self.remembered = participant.view.remembered
        self.records = dict(participant.view.partitions)
        for _ in participant.take_moved():
            if self.assigned.office is not None:
                self.assigned.office.moved()
        self.assigned.settle()
        self._sync_by_time(now_ns)
        self.turn()
        if participant.registration.phase is Registering.REFUSED:
            self.refused_start = participant.registration.reason

    def turn(self) -> None:
        super().turn()
        self._report()
        self.participant.flush()
        self._speak()
        if self.threads.waiting and not self._sync_is_due:
            self._sync_is_due = True
            self.among.soon_synced(self)

    def _report(self) -> None:
        """What the offices have to know of the one that is held here."""
        offices, office = self.participant.offices, self.assigned.office
        now_ns = self.clock.mono_ns()
        if office is not self._office:
            if self._office is not None:
                offices.left_office(NAME)
            self._office, self._end, self._committed = office, 0, 0
            if office is not None:
                office.line.heard = offices.heard
                office.line.confirmed(now_ns)
                offices.took_office(NAME, office.line)
                self._end, self._committed = office.line.end, office.line.committed
        if office is None:
            return
        line = office.line
        if line.end > self._end:
            self._end = line.end
            offices.members.wrote(NAME, now_ns)
        if line.committed > self._committed:
            self._committed = line.committed
            if line.committed == line.end:
                offices.members.committed(NAME)

    def _sync_by_time(self, now_ns: int) -> None:
        if self.world.waits or now_ns - self._synced_ns < SYNC_PAUSE_NS:
            return
        self._synced_ns = now_ns
        if self.assigned.followed is not None:
            self.assigned.followed.sync()
        if self.group is not None:
            self.group.sync()

    def threads_end(self) -> None:
        """What the sync threads had is done."""
        self._sync_is_due = False
        self.threads.run()
        self.turn()

    # --- Peers and Records ---

    def send(self, node: int, lane: Lane, frames: Any) -> None:
        if self.is_up:
            super().send(node, lane, frames)

    def propose(self, target: Target, proposal: Propose) -> None:
        office = self.assigned.office
        if office is not None:
            self.participant.offices.propose(NAME, office.line, proposal)

    def read(self, target: Target) -> None:
        self.participant.offices.read(NAME)

    def state(self) -> str:
        return f"{super().state()}{', hangs' if self.is_up and self.hangs else ''}"
