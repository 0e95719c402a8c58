"""Brokers that have joined a cluster, on one clock: metadata, links, and what befalls them."""

import itertools
import random
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from penstock.cluster import keys
from penstock.cluster.coordinator import Put, Settled, Transaction
from penstock.cluster.creation import clearance, creation, deletion, growth
from penstock.cluster.documents import (
    CHANNEL,
    CLUSTER,
    MEMBERSHIP,
    RECORD,
    Channel,
    Cluster,
    Settings,
    Topic,
)
from penstock.cluster.keys import PartitionName
from penstock.cluster.metadata_topics import PARTITIONS
from penstock.cluster.placement import PlacementNode
from penstock.cluster.restoration import restoration, standing_of
from penstock.cluster.view import Remembered, Versioned
from penstock.limits import MS, PEER_SILENCE_NS, SECOND
from penstock.log.ledger import Ledger, LedgerNode
from penstock.replication.frames import Frames
from penstock.replication.leader import Outcome as Verdict
from penstock.replication.record import PartitionRecord, arranged
from sim.brokers.node import PATH, JoinedNode
from sim.brokers.port import AT_ONCE, Passage, Port
from sim.clock import FakeClock
from sim.disk import SimDisk
from sim.store import Backup, Store

STEP_NS = 50 * MS
ROUNDS = 4  # of frames and their answers in a step


class Stuck(RuntimeError):
    """What has to come did not."""


class Snapshot(NamedTuple):
    """Of a node's disk, with what it remembers of the metadata."""

    generation: int
    disk: SimDisk
    remembered: tuple[Remembered, dict[PartitionName, Versioned[PartitionRecord]]] | None


class JoinedCluster:
    """`passage`: how long each call to the coordinator takes. `validated_every`: a node is
    validated once in so many of its turns."""

    def __init__(
        self,
        kernel: ModuleType,
        nodes: int = 3,
        passage: Callable[[], Passage] = lambda: AT_ONCE,
        validated_every: int = 1,
    ) -> None:
        self.kernel = kernel
        self.passage = passage
        self.validated_every = validated_every
        self.slow: set[int] = set()  # nodes to which the coordinator's answers do not come
        self.away: set[int] = set()  # nodes that do not reach it
        self.hung: dict[int, int] = {}  # processes that stand still, and since when
        self._unheard: list[tuple[int, int]] = []  # links that they have lost meanwhile
        self.clock = FakeClock()  # the true time; each machine's shows it until it is set
        self.clocks = [FakeClock(beside=self.clock) for _ in range(nodes)]
        self.dice = random.Random(1)
        self.store = Store()
        self.late: list[Port] = []  # of processes that have ended: calls that may still arrive
        self.sent: list[tuple[int, int, bytes]] = []
        self.said: list[tuple[int, int, Any]] = []
        self.cut: set[frozenset[int]] = set()
        self.linked: set[frozenset[int]] = set()
        self.remembered: dict[
            int, tuple[Remembered, dict[PartitionName, Versioned[PartitionRecord]]]
        ] = {}
        self.new_replica: Callable[[], int] = itertools.count(1000).__next__
        self._incarnations = itertools.count(500)
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
        return JoinedNode(self, number, disk, next(self._incarnations))

    def close(self) -> None:
        for node in self.up():
            node.engine.close()

    # --- metadata ---

    def _put(self, key: str, value: bytes) -> None:
        self.store.transact(Transaction((), (Put(key, value),)))

    def do(self, transaction: Transaction) -> Settled:
        settled = self.store.transact(transaction)
        if settled.outcome is not Verdict.DONE:
            raise Stuck(f"the coordinator says {settled.outcome.name}: {settled.found!r}")
        return settled

    @property
    def placement_nodes(self) -> list[PlacementNode]:
        return [placement_node(node) for node in self.up()]

    def make(self, name: str, partitions: int = 1, replicas: int = 3, **settings: Any) -> None:
        topic = self.wanted(partitions, replicas, **settings)
        view = self.up()[0].view
        self.do(creation(view, name, topic, self.placement_nodes, self.new_replica))
        self.until(lambda: all(self.leader(name, n) for n in range(partitions)))

    def wanted(self, partitions: int, replicas: int = 3, **settings: Any) -> Topic:
        identity = next(self._identities)
        return Topic(identity, replicas, partitions, False, as_pairs(settings), False, ())

    def grow(self, name: str, partitions: int) -> None:
        transaction = growth(
            self.up()[0].view, name, partitions, self.placement_nodes, self.new_replica
        )
        if transaction is None:
            raise Stuck(f"{name} has {partitions} partitions already")
        self.do(transaction)
        self.until(lambda: all(self.leader(name, n) for n in range(partitions)))

    def delete(self, name: str) -> None:
        self.do(deletion(self.up()[0].view, name))
        self.run(1)
        while (transaction := clearance(self.up()[0].view, name)) is not None:
            self.do(transaction)
            self.run(1)

    def make_channel(self, topic: str, name: str, **settings: Any) -> None:
        self.put_channel(self.up()[0].view.topics[topic].document.identity, topic, name, **settings)
        self.until(lambda: all(self.has_channel(node, topic, name) for node in self.up()))

    def put_channel(self, identity: int, topic: str, name: str, **settings: Any) -> None:
        there = keys.PARTITIONS + topic + "/"
        settings = {PARTITIONS: len(list(self.store.entries_of(there))), **settings}
        document = Channel(identity, next(self._channels), False, as_pairs(settings), False)
        self._put(keys.channel(topic, name), CHANNEL.encode(document))

    def has_channel(self, node: JoinedNode, topic: str, channel: str) -> bool:
        found = node.broker.topics.get(topic)
        return found is None or channel in found.channels

    def want(self, name: str, partition: int, nodes: tuple[int, ...]) -> None:
        """As the controller would: its transaction compares nothing here, as no other one runs."""
        record = self.record(name, partition)
        wanted = arranged(record, nodes, record.members_min)
        self._put(keys.partition(name, partition), RECORD.encode(wanted))

    def restore_metadata(self, backup: Backup, more: Mapping[str, bytes] | None = None) -> None:
        """As `cluster.restoration` does: revisions begin again, with the records that nodes know,
        and the restoration is counted last."""
        records = dict(self.up()[0].view.partitions)
        self.store.restore(backup)
        for key, value in (more or {}).items():
            self._put(key, value)
        for name, held in records.items():
            self._put(keys.partition(*name), RECORD.encode(held.document))
        self._put(keys.CLUSTER, CLUSTER.encode(Cluster(1, 1, 1, 1)))

    def restore_from_memories(self, backup: Backup) -> None:
        """By the plan of `cluster.restoration`; the coordinator's process begins again for that."""
        self.store.restore(backup)
        for node in self.up():
            node.coordinator.break_watch()
        plan = restoration(
            standing_of(self.store.entries.values()), [node.memory() for node in self.up()]
        )
        for transaction in plan.transactions:
            self.do(transaction)

    # --- leaders ---

    def leader(self, name: str, partition: int = 0) -> JoinedNode | None:
        """In leadership, by the record in force."""
        entry = self.store.entries.get(keys.partition(name, partition))
        found = PartitionName(name, partition)
        for node in self.up():
            leader = node.leader(found)
            if leader is not None and entry is not None and not leader.leadership.machine.over:
                held = node.view.partitions[found]
                if held.revision == entry.revision:
                    return node
        return None

    def led_by(self, name: str, partition: int = 0) -> JoinedNode:
        leader = self.leader(name, partition)
        if leader is None:
            raise Stuck(f"{name}:{partition} has no leader")
        return leader

    def record(self, name: str, partition: int = 0) -> PartitionRecord:
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
        self.hung.pop(number, None)
        self._unheard = [one for one in self._unheard if one[0] != number]
        node.coordinator.close()
        self.late.append(node.coordinator)
        for other in self.up():
            self._unlink(number, other.number)
            other.cluster_node.refused(number, node.incarnation)
        node.engine.close()
        node.disk.crash(self.dice) if power else node.disk.kill()

    def start(self, number: int) -> JoinedNode:
        node = self.nodes[number] = self._start(number, self.nodes[number].disk)
        return node

    def wipe(self, number: int) -> JoinedNode:
        """The same node on an empty disk that knows its generation."""
        disk = SimDisk()
        disk.mkdir(str(PATH))
        disk.sync_directory("/")
        Ledger.create(disk, str(PATH), LedgerNode(generation=self._generation(number))).close()
        self.remembered.pop(number, None)
        node = self.nodes[number] = self._start(number, disk)
        return node

    def _generation(self, number: int) -> int:
        """The highest that was written down."""
        entry = self.store.entries.get(keys.member(number))
        known = MEMBERSHIP.decode(entry.key, entry.value).generation if entry is not None else 0
        return max(known, self.nodes[number].generation)

    def snapshot(self, number: int) -> Snapshot:
        node = self.nodes[number]
        return Snapshot(node.generation, node.disk.copy(), self.remembered.get(number))

    def roll_back(self, number: int, snapshot: Snapshot) -> JoinedNode:
        """The machine is set back, with all that it had on its disk then."""
        self.remembered.pop(number, None)
        if snapshot.remembered is not None:
            self.remembered[number] = snapshot.remembered
        node = self.nodes[number] = self._start(number, snapshot.disk.copy())
        return node

    def is_refused(self, node: JoinedNode) -> bool:
        """The coordinator knows a later generation of it."""
        return bool(node.cluster_node.participant.registration.reason)

    def _unlink(self, one: int, other: int) -> None:
        pair = frozenset((one, other))
        if pair not in self.linked:
            return
        self.linked.discard(pair)
        self.sent = [frame for frame in self.sent if frozenset(frame[:2]) != pair]
        self.said = [message for message in self.said if frozenset(message[:2]) != pair]
        for here, there in ((one, other), (other, one)):
            if here in self.hung:
                self._unheard.append((here, there))
            elif self.nodes[here].is_up:
                self.nodes[here].cluster_node.unlinked(there)

    def cut_off(self, number: int) -> None:
        for other in range(len(self.nodes)):
            if other != number:
                self.cut.add(frozenset((number, other)))
                self._unlink(number, other)

    def cut_between(self, one: int, other: int) -> None:
        self.cut.add(frozenset((one, other)))
        self._unlink(one, other)

    def heal(self) -> None:
        self.cut.clear()

    def hang(self, number: int) -> None:
        self.hung[number] = self.clock.since_ns

    def wake(self, number: int) -> None:
        self.hung.pop(number, None)
        for here, there in self._unheard:
            if here == number and self.nodes[here].is_up:
                self.nodes[here].cluster_node.unlinked(there)
        self._unheard = [one for one in self._unheard if one[0] != number]

    def _give_up_hung(self) -> None:
        """The others receive nothing of it."""
        for number, since_ns in self.hung.items():
            if self.clock.since_ns - since_ns > PEER_SILENCE_NS:
                for other in range(len(self.nodes)):
                    self._unlink(number, other)

    def running(self) -> list[JoinedNode]:
        return [node for node in self.up() if node.number not in self.hung]

    # --- time ---

    def _link(self) -> None:
        for one, other in itertools.combinations(self.running(), 2):
            pair = frozenset((one.number, other.number))
            known = _knows(one, other) and _knows(other, one)
            if pair not in self.linked and pair not in self.cut and known:
                self.linked.add(pair)
                one.cluster_node.linked(other.number, other.incarnation)
                other.cluster_node.linked(one.number, one.incarnation)

    def step(self) -> None:
        self.clock.pass_ns(STEP_NS)
        self.store.run_out(self.clock.mono_ns())
        for port in self.late:
            port.run(self.clock.mono_ns())
        self.late = [port for port in self.late if any(port.pending())]
        self._give_up_hung()
        self._link()
        for node in self.running():
            node.step()
        for _ in range(ROUNDS):
            if not self._deliver():
                break
            for node in self.running():
                node.turn()
        if self.clock.since_ns % SECOND < STEP_NS:
            for node in self.running():
                node.broker.housekeeping()

    def _deliver(self) -> bool:
        """False: there was nothing. What is for a process that stands still waits for it."""
        hung = self.hung
        sent, self.sent = self.sent, [one for one in self.sent if one[1] in hung]
        said, self.said = self.said, [one for one in self.said if one[1] in hung]
        if hung:
            sent = [one for one in sent if one[1] not in hung]
            said = [one for one in said if one[1] not in hung]
        for source, to, data in sent:
            if frozenset((source, to)) in self.linked:
                decoder = Frames(source)
                decoder.space()[: len(data)] = data
                for target, frame in decoder.filled(len(data)):
                    self.nodes[to].cluster_node.receive(source, target, frame)
                decoder.space()[: len(data)] = bytes(len(data))  # as the next bytes would
        for source, to, message in said:
            if frozenset((source, to)) in self.linked:
                self.nodes[to].cluster_node.receive_message(source, message)
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
        raise Stuck(f"not within {seconds} s")

    def publish(self, topic: str, *bodies: bytes, partition: int = 0, due_ns: int = 0) -> None:
        """One that is answered OK."""
        outcome = self.led_by(topic, partition).put(topic, *bodies, due_ns=due_ns)
        self.until(lambda: outcome.answers)
        if not outcome.stored:
            raise Stuck(f"the publish to {topic} was answered {outcome.answers!r}")


def _knows(one: JoinedNode, other: JoinedNode) -> bool:
    """A link is of two lives: one that is not registered has none."""
    held = one.view.nodes.get(other.number)
    return held is not None and held.document.incarnation == other.incarnation


def placement_node(node: JoinedNode) -> PlacementNode:
    return PlacementNode(node.number, f"zone {node.number}")


def as_pairs(settings: dict[str, Any]) -> Settings:
    return tuple(sorted({"created_ns": 5, **settings}.items()))
