"""Three brokers that have joined a cluster, on one clock: the coordinator in memory, links without
sockets, disks that stay. What the nodes do, they do by themselves."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.world import Consumer, Outcome, World
from penstock.broker.leader import Leader
from penstock.broker.ports import Lane
from penstock.cluster import keys
from penstock.cluster.coordinator import Put, Settled, Transaction
from penstock.cluster.creation import Wanted, clearance, creation, deletion, growth
from penstock.cluster.documents import (
    ACTIVE,
    CHANNEL,
    CLUSTER,
    RECORD,
    SETTING,
    Channel,
    Cluster,
    Membership,
    Node,
    Setting,
    Settings,
)
from penstock.cluster.joined import ALL_GUARDS, Joined, JoinedGuards
from penstock.cluster.keys import PartitionName
from penstock.cluster.memory import MemoryCoordinator
from penstock.cluster.placement import Place
from penstock.cluster.store import Backup, Store
from penstock.cluster.view import Held, Remembered, View
from penstock.limits import MS, SECOND
from penstock.log.ledger import Ledger
from penstock.log.ledgerfile import Node as LedgerNode
from penstock.replica.frames import Frames
from penstock.replica.leading import Outcome as Verdict
from penstock.replica.record import Record, arranged
from penstock.sim.clock import FakeClock
from penstock.sim.disk import SimDisk

PATH = Path("/data")
STEP_NS = 50 * MS
ROUNDS = 4  # of frames and their answers in a step


class JoinedNode(World):
    """A process on a disk that stays."""

    def __init__(self, cluster: JoinedCluster, number: int, disk: SimDisk, life: int) -> None:
        self.cluster = cluster
        self.number, self.life = number, life
        self.is_up = False
        super().__init__(PATH, cluster.kernel, [], disk=disk, clock=cluster.clock, node_id=number)
        ledger = Ledger.open(disk, str(PATH))
        self.generation = ledger.node.generation + 1
        ledger.set_node(LedgerNode(generation=self.generation, life=life))
        ledger.sync()
        self.coordinator = MemoryCoordinator(cluster.store, cluster.clock.mono_ns)
        remembered, records = cluster.remembered.get(number, (Remembered(), {}))
        self.joined = Joined(
            self.broker, number, Membership(number + 1, self.generation, "", 0, life, 0, ACTIVE),
            lambda: Node(life, "127.0.0.1", 1, 2, 3, "0.1.0", f"zone {number}", 1 << 40, 0),
            self.coordinator, self, ledger, self._say, cluster.new_replica,
            cluster.clock.mono_ns(), remembered, records, guards=cluster.guards,
        )  # fmt: skip
        self.broker.open()
        self.is_up = True

    # --- Peers, and messages ---

    def send(self, node: int, lane: Lane, frames: Sequence[Any]) -> None:
        for frame in frames:
            data = b"".join(bytes(part) for part in frame)
            self.cluster.sent.append((self.number, node, data))

    def _say(self, node: int, message: Any) -> None:
        self.cluster.said.append((self.number, node, message))

    # --- a step ---

    def step(self) -> None:
        if self.number not in self.cluster.slow:
            self.coordinator.run()
        self.joined.tick(self.clock.mono_ns())
        self.turn()
        view = self.joined.participant.view
        self.cluster.remembered[self.number] = view.remembered, dict(view.partitions)

    def turn(self) -> None:
        super().turn()
        self.broker.synced()
        if self.is_up:
            self.joined.turn()
            self.broker.validate()

    # --- what a test does ---

    @property
    def view(self) -> View:
        return self.joined.participant.view

    def leader(self, name: PartitionName) -> Leader | None:
        target = self.joined._targets.get(name)
        return self.joined.hosting.leader(target) if target is not None else None

    def put(self, topic: str, *bodies: bytes, due_ns: int = 0) -> Outcome:
        outcome = Outcome()
        self.broker.topics[topic].publish(list(bodies), due_ns, outcome)
        self.turn()
        return outcome

    def consume(self, topic: str, channel: str, rdy: int = 100) -> Consumer:
        return Consumer(self, self.broker.topics[topic].find_channel(channel), rdy)


class JoinedCluster:
    def __init__(
        self, kernel: SimpleNamespace, nodes: int = 3, guards: JoinedGuards = ALL_GUARDS
    ) -> None:
        self.kernel = kernel
        self.guards = guards
        self.slow: set[int] = set()  # nodes to which the coordinator's answers do not come
        self.clock = FakeClock()
        self.dice = random.Random(1)
        self.store = Store()
        self.sent: list[tuple[int, int, bytes]] = []
        self.said: list[tuple[int, int, Any]] = []
        self.cut: set[frozenset[int]] = set()
        self.linked: set[frozenset[int]] = set()
        self.remembered: dict[int, tuple[Remembered, dict[PartitionName, Held[Record]]]] = {}
        self.new_replica: Callable[[], int] = itertools.count(1000).__next__
        self._lives = itertools.count(500)
        self._identities = itertools.count(0xA1)
        self._channels = itertools.count(1)
        self._put(keys.CLUSTER, CLUSTER.encode(Cluster(1, 1, 1, 0)))
        self.nodes = [self._start(number, self._new_disk()) for number in range(nodes)]
        self.until(lambda: all(len(node.view.nodes) == nodes for node in self.nodes))

    def _new_disk(self) -> SimDisk:
        disk = SimDisk()
        disk.mkdir(str(PATH))
        disk.sync_directory("/")
        Ledger.create(disk, str(PATH), LedgerNode()).close()
        return disk

    def _start(self, number: int, disk: SimDisk) -> JoinedNode:
        return JoinedNode(self, number, disk, next(self._lives))

    def close(self) -> None:
        for node in self.up():
            node.engine.close()

    # --- metadata ---

    def _put(self, key: str, value: bytes) -> None:
        self.store.transact(Transaction((), (Put(key, value),)))

    def do(self, transaction: Transaction) -> Settled:
        settled = self.store.transact(transaction)
        assert settled.outcome is Verdict.DONE
        return settled

    @property
    def places(self) -> list[Place]:
        return [Place(node.number, f"zone {node.number}") for node in self.up()]

    def make(self, name: str, partitions: int = 1, replicas: int = 3, **settings: Any) -> None:
        wanted = Wanted(name, next(self._identities), partitions, replicas, as_pairs(settings))
        view = self.up()[0].view
        self.do(creation(view, wanted, self.places, self.new_replica))
        self.until(lambda: all(self.leader(name, n) for n in range(partitions)))

    def grow(self, name: str, partitions: int) -> None:
        transaction = growth(self.up()[0].view, name, partitions, self.places, self.new_replica)
        assert transaction is not None
        self.do(transaction)
        self.until(lambda: all(self.leader(name, n) for n in range(partitions)))

    def delete(self, name: str) -> None:
        self.do(deletion(self.up()[0].view, name))
        self.run(1)
        while (transaction := clearance(self.up()[0].view, name)) is not None:
            self.do(transaction)
            self.run(1)

    def make_channel(self, topic: str, name: str, **settings: Any) -> None:
        identity = self.up()[0].view.topics[topic].document.identity
        document = Channel(identity, next(self._channels), False, as_pairs(settings), False)
        self._put(keys.channel(topic, name), CHANNEL.encode(document))
        self.until(lambda: all(self._has(node, topic, name) for node in self.up()))

    def _has(self, node: JoinedNode, topic: str, channel: str) -> bool:
        found = node.broker.topics.get(topic)
        return found is None or channel in found.channels

    def want(self, name: str, partition: int, nodes: tuple[int, ...]) -> None:
        """As the controller would: its transaction compares nothing here, as no other one runs."""
        record = self.record(name, partition)
        wanted = arranged(record, nodes, record.members_min)
        self._put(keys.partition(name, partition), RECORD.encode(wanted))

    def make_setting(self, name: str) -> None:
        self._put(keys.setting(name), SETTING.encode(Setting("x")))

    def restore_metadata(self, backup: Backup, more: Mapping[str, bytes] | None = None) -> None:
        """As `restore-metadata` does: revisions begin again, with the records that nodes know."""
        records = dict(self.up()[0].view.partitions)
        self.store.restore(backup)
        self._put(keys.CLUSTER, CLUSTER.encode(Cluster(1, 1, 1, 1)))
        for key, value in (more or {}).items():
            self._put(key, value)
        for name, held in records.items():
            self._put(keys.partition(*name), RECORD.encode(held.document))

    # --- who leads ---

    def leader(self, name: str, partition: int = 0) -> JoinedNode | None:
        """In office, by the record in force."""
        entry = self.store.entries.get(keys.partition(name, partition))
        found = PartitionName(name, partition)
        for node in self.up():
            leader = node.leader(found)
            if leader is not None and entry is not None and not leader.office.line.over:
                held = node.view.partitions[found]
                if held.revision == entry.revision:
                    return node
        return None

    def led_by(self, name: str, partition: int = 0) -> JoinedNode:
        leader = self.leader(name, partition)
        assert leader is not None
        return leader

    def record(self, name: str, partition: int = 0) -> Record:
        return self.up()[0].view.partitions[PartitionName(name, partition)].document

    def is_whole(self, name: str, partition: int = 0) -> bool:
        record = self.record(name, partition)
        return {member.node for member in record.members} == set(record.wanted)

    # --- trouble ---

    def up(self) -> list[JoinedNode]:
        return [node for node in getattr(self, "nodes", []) if node.is_up]

    def kill(self, number: int, power: bool = False) -> None:
        node = self.nodes[number]
        node.is_up = False
        for other in self.up():
            self._unlink(number, other.number)
            other.joined.refused(number, node.life)
        node.engine.close()
        node.disk.crash(self.dice) if power else node.disk.kill()

    def start(self, number: int) -> JoinedNode:
        node = self.nodes[number] = self._start(number, self.nodes[number].disk)
        return node

    def wipe(self, number: int) -> JoinedNode:
        """The same node on an empty disk that knows its generation."""
        before = self.nodes[number]
        disk = SimDisk()
        disk.mkdir(str(PATH))
        disk.sync_directory("/")
        Ledger.create(disk, str(PATH), LedgerNode(generation=before.generation)).close()
        self.remembered.pop(number, None)
        node = self.nodes[number] = self._start(number, disk)
        return node

    def _unlink(self, one: int, other: int) -> None:
        pair = frozenset((one, other))
        if pair not in self.linked:
            return
        self.linked.discard(pair)
        self.sent = [frame for frame in self.sent if frozenset(frame[:2]) != pair]
        for here, there in ((one, other), (other, one)):
            if self.nodes[here].is_up:
                self.nodes[here].joined.unlinked(there)

    def cut_off(self, number: int) -> None:
        for other in range(len(self.nodes)):
            if other != number:
                self.cut.add(frozenset((number, other)))
                self._unlink(number, other)

    def heal(self) -> None:
        self.cut.clear()

    # --- time ---

    def _link(self) -> None:
        for one, other in itertools.combinations(self.up(), 2):
            pair = frozenset((one.number, other.number))
            known = one.number in other.view.nodes and other.number in one.view.nodes
            if pair not in self.linked and pair not in self.cut and known:
                self.linked.add(pair)
                one.joined.linked(other.number, other.life)
                other.joined.linked(one.number, one.life)

    def step(self) -> None:
        self.clock.pass_ns(STEP_NS)
        self.store.run_out(self.clock.mono_ns())
        self._link()
        for node in self.up():
            node.step()
        for _ in range(ROUNDS):
            if not self._deliver():
                break
            for node in self.up():
                node.turn()
        if self.clock.since_ns % SECOND < STEP_NS:
            for node in self.up():
                node.broker.housekeeping()

    def _deliver(self) -> bool:
        """False: there was nothing."""
        sent, self.sent = self.sent, []
        said, self.said = self.said, []
        for source, to, data in sent:
            if frozenset((source, to)) in self.linked:
                for target, frame in Frames(source).feed(data):
                    self.nodes[to].joined.receive(source, target, frame)
        for source, to, message in said:
            if frozenset((source, to)) in self.linked:
                self.nodes[to].joined.hear(source, message)
        return bool(sent or said)

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds * SECOND / STEP_NS)):
            self.step()

    def until(self, holds: Callable[[], object], seconds: float = 30) -> float:
        """Returns how long it took."""
        begun_ns = self.clock.since_ns
        for _ in range(int(seconds * SECOND / STEP_NS)):
            if holds():
                return (self.clock.since_ns - begun_ns) / SECOND
            self.step()
        raise AssertionError(f"not within {seconds} s")

    def publish(self, topic: str, *bodies: bytes, partition: int = 0, due_ns: int = 0) -> None:
        """One that is answered OK."""
        outcome = self.led_by(topic, partition).put(topic, *bodies, due_ns=due_ns)
        self.until(lambda: outcome.told)
        assert outcome.told == [None]


def as_pairs(settings: dict[str, Any]) -> Settings:
    return tuple(sorted({"created_ns": 5, **settings}.items()))
