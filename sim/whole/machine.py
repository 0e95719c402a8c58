"""A node of the whole world: a disk that stays, and processes that come and go on it.

What runs on it is what a daemon runs: the ledger and its promises, the partition's log, `Assigned`
with its roles, `GroupCommit` over the kernel's tail. What is simulated is below and around: disk,
sync threads, links, coordinator.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.assigned import Assigned
from penstock.broker.context import Context
from penstock.broker.followed import Files
from penstock.broker.groupcommit import GroupCommit
from penstock.broker.health import Health
from penstock.broker.office import Office
from penstock.broker.options import BrokerOptions, Durability
from penstock.broker.ownfile import OwnFile
from penstock.broker.ports import Lane
from penstock.broker.promises import Promises
from penstock.broker.station import Station
from penstock.broker.syncpace import SyncPace
from penstock.broker.syncs import Syncs
from penstock.clock import Clock
from penstock.errors import PenstockError, PublishUnknown
from penstock.ids.guid import IdRange
from penstock.log.head import Owner
from penstock.log.ledger import Ledger
from penstock.log.ledgerfile import Node as LedgerNode
from penstock.log.ledgerfile import ReplicaKey
from penstock.log.partition import PartitionLog
from penstock.log.replicafile import ReplicaFile, read_replica, replica_id, write_replica
from penstock.log.settings import LogSettings
from penstock.replica.effects import Propose
from penstock.replica.frames import Frames, Target
from penstock.replica.record import Member, Record
from sim.disk import SimDisk
from sim.threads import Threads

if TYPE_CHECKING:
    from sim.whole.observer import WholeObserver

IDENTITY = "005-18a26f9ac7a69000"
KEY = ReplicaKey(IDENTITY, 0)
OWNER = Owner("orders", 0, IDENTITY)
PATH = "data/0"
SETTINGS = LogSettings(
    segment_bytes_max=3000,
    index_every_bytes=400,
    preallocate_bytes_min=512,
    preallocate_bytes_max=4096,
    cut_kept_bytes_max=4000,
)
TAIL_BYTES_MAX = 1 << 20


class Surroundings(Protocol):
    """The world as a machine and the observer meet it."""

    dice: random.Random
    kernel: SimpleNamespace
    waits: bool  # for the disk
    observer: WholeObserver

    @property
    def clock(self) -> Clock: ...
    @property
    def machines(self) -> Sequence[Machine]: ...

    def new_replica(self) -> int: ...
    def send(self, source: int, target: int, lane: Lane, frames: list[bytes]) -> None: ...
    def unlink_all(self, node: int) -> None: ...
    def record(self) -> Record:
        """The one in force."""
        ...

    def possible_sets(self) -> list[tuple[Member, ...]]:
        """That in force, and those that a transaction on its way may install."""
        ...


class TopicLike:
    """What the one writer of a partition asks of its topic."""

    name = "orders"
    internal = False

    def __init__(self) -> None:
        self.pace = SyncPace(lambda: [], 1 << 40)

    def refresh_refusal(self) -> None:
        """Publishes are offered to whoever serves."""


class Machine(ABC):
    def __init__(self, world: Surroundings, number: int, replica: int) -> None:
        self.world = world
        self.number = number
        self.disk = SimDisk()
        self.clock: Clock = world.clock
        self.life = 0
        self.generation = 0
        self.is_up = False
        self.active = False  # it takes part
        self.memory_lost_generation = 0
        self.lost_memory = False  # since the last start
        self.group: GroupCommit | None = None
        self.disk.mkdir("data")
        self.disk.sync_directory("")
        Ledger.create(self.disk, "data", LedgerNode()).close()
        self.make_replica(replica)

    def make_replica(self, replica: int) -> None:
        """An empty directory of a new replica."""
        PartitionLog.create(self.disk, PATH, SETTINGS, OWNER).close()
        file = ReplicaFile(replica_id=replica_id(replica), identity=IDENTITY, state="copying")
        write_replica(self.disk, PATH, file)
        self.own = OwnFile(self.disk, PATH, file)

    def remove_replica(self) -> None:
        for name in self.disk.listdir(PATH):
            self.disk.unlink(f"{PATH}/{name}")

    @abstractmethod
    def written_generation(self) -> int:
        """What the coordinator has of it, where a start is told."""

    # --- the process ---

    def start(self) -> None:
        world = self.world
        file = read_replica(self.disk, PATH)
        if file is None or file.state == "stopped":
            self.remove_replica()
            self.make_replica(world.new_replica())
            file = read_replica(self.disk, PATH)
        if file is None:
            raise RuntimeError("a replica that was just made is not there")
        self.life += 1
        self.threads, self.health = Threads(), Health()
        self.threads.held = True
        self.syncs = Syncs(self.threads)
        ledger = Ledger.open(self.disk, "data")
        generation = max(ledger.node.generation, self.written_generation()) + 1
        ledger.set_node(ledger.node._replace(generation=generation, life=self.life))
        ledger.sync()
        if self.lost_memory:
            self.memory_lost_generation = generation
        self.log = PartitionLog.open(self.disk, PATH, SETTINGS, 0, OWNER)
        self.promises = Promises(ledger, self.syncs)
        self.own = OwnFile(self.disk, PATH, file)
        self.engine = world.kernel.Engine(1 << 20, 5 << 20, 100)
        self._make_context()
        station = Station(self.number, self.life, generation, self.promises, self)
        files = Files("orders", KEY, self.log, self.own)
        self.assigned = Assigned(
            station, self, files, self.syncs, self.health, world.waits, self._serve, self._cease
        )
        self.generation = generation
        self.is_up, self.active = True, False
        world.observer.started(self)
        self.lost_memory = False

    def _make_context(self) -> None:
        self.topic = TopicLike()
        self.context = Context(
            engine=self.engine,
            disk=self.disk,
            data_path="data",
            options=BrokerOptions(disk_free_bytes_min=0),
            clock=self.clock,
            syncs=self.syncs,
            ids=IdRange(self.number, self.log.last_id),
            health=self.health,
        )

    def end(self) -> None:
        if self.is_up:
            self.engine.close()
            self.world.observer.ended(self.number)
            self.group = None
            self.is_up = self.active = False
        self.world.unlink_all(self.number)

    def kill(self) -> None:
        self.end()
        self.disk.kill()

    def lose_power(self) -> None:
        self.end()
        self.disk.crash(self.world.dice)
        self.lost_memory = True

    # --- what an office serves with ---

    def _serve(self, office: Office) -> GroupCommit:
        topic: Any = self.topic
        tail = self.engine.tail(b"orders", self.log.written_end, TAIL_BYTES_MAX, 0)
        durability: Durability = "disk" if self.world.waits else "os"
        self.group = GroupCommit(
            self.context, "orders", topic, tail, self.log, office, durability, True,
            topic.refresh_refusal,
        )  # fmt: skip
        self.world.observer.serves(self, office)
        return self.group

    def _cease(self, served: Any) -> None:
        self.engine.forget_tail(b"orders", 0)
        self.group = None

    def publish(self, bodies: Sequence[bytes]) -> None:
        group, observer = self.group, self.world.observer
        if group is None or group.stopped:
            return
        told = tuple(bodies)
        observer.asked(self.number, told)

        def done(error: PenstockError | None) -> None:
            if error is None:
                observer.answered(told)
            elif isinstance(error, PublishUnknown):
                observer.unknown(told)
            else:
                observer.refused(told)

        group.publish(list(bodies), 0, done)
        group.write(self.clock.wall_ns())
        self.turn()

    # --- its turns ---

    def turn(self) -> None:
        """What a turn of the daemon does with what has come."""
        self.promises.flush()
        self.syncs.settle()
        self.assigned.turn()
        self.world.observer.look(self)

    def sync(self) -> None:
        """Its sync threads get through what they have."""
        if self.world.waits or self.world.dice.random() < 0.3:
            followed = self.assigned.followed
            if followed is not None and not self.world.waits:
                followed.sync()
            if self.group is not None and not self.world.waits:
                self.group.sync()
        self.threads.run()
        self.turn()

    def receive(self, node: int, target: Target, frame: Any) -> None:
        if self.active and target == self.assigned.target:
            self.assigned.receive(node, frame)
            self.turn()

    def linked(self, node: int) -> None:
        self.assigned.linked(node)
        self.turn()

    def unlinked(self, node: int) -> None:
        if self.is_up:
            self.assigned.unlinked(node)
            self.turn()

    # --- Peers and Records ---

    def send(self, node: int, lane: Lane, frames: Sequence[Any]) -> None:
        reader, sent = Frames(self.number), [b"".join(parts) for parts in frames]
        for data in sent:
            for _, frame in reader.feed(data):
                self.world.observer.sent(self.number, frame)
        self.world.send(self.number, node, lane, sent)

    @abstractmethod
    def propose(self, target: Target, proposal: Propose) -> None: ...

    @abstractmethod
    def read(self, target: Target) -> None: ...

    def state(self) -> str:
        """For people."""
        if not self.is_up:
            return "down"
        log, own = self.log, self.own
        role = type(self.assigned.role).__name__
        return (
            f"{role} r{own.replica} {own.state} e{self.promises.epoch(KEY)} "
            f"{log.start_offset}..{log.written_end} synced {log.synced_end} "
            f"committed {self.assigned.committed}"
        )


Kernel = SimpleNamespace
