"""Three brokers that a cluster places replicas on, over links and a coordinator that a test has in
its hand: frames and proposals go when the test runs them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock import limits
from penstock.broker.channels.channel import Channel
from penstock.broker.partition.idempotent import Stamp
from penstock.broker.partition.leader import Leader
from penstock.broker.ports import PeerLane
from penstock.broker.replicas.clustered_topic import ClusterChannel
from penstock.broker.replicas.context import EpochLedger, ReplicationContext, identity_number
from penstock.broker.topics.topic_file import ChannelEntry, TopicFile
from penstock.errors import PenstockError
from penstock.log.ledger import Ledger, LedgerNode
from penstock.replication.authority import Evidence
from penstock.replication.effects import Propose
from penstock.replication.frames import Frames, Target
from penstock.replication.leader import Outcome as Settled
from penstock.replication.record import LeaderId, Member, PartitionRecord, elected
from replication.received import received
from sim.clock import FakeClock
from sim.disk import SimDisk

from ..world import Consumer, Outcome, World

IDENTITY = "005-18a26f9ac7a69000"
ORDERS = TopicFile("orders", IDENTITY, 1, hash_partitions=1, replicated=True)
BILLING = ClusterChannel(ChannelEntry("billing", 1, 5), 1)
PATH = Path("/data")
NODES = 3
QUIET_TURNS = 4  # in which sync threads would have ended, and what follows from that been sent


def target(partition: int = 0) -> Target:
    return Target(identity_number(IDENTITY), partition)


def replica_on(node: int) -> int:
    return 100 + node


class Known(NamedTuple):
    """A record, and the revision at which it was written."""

    revision: int
    record: PartitionRecord


class Node(World):
    """One process on a disk that stays."""

    def __init__(self, cluster: Cluster, number: int, disk: SimDisk, incarnation: int) -> None:
        self.cluster = cluster
        self.number = number
        self.is_up = False
        self.started: list[tuple[int, int]] = []  # partition and channel, as they were confirmed
        super().__init__(
            PATH, [], disk=disk, clock=cluster.clock, node_id=number,
            retain_age_ns=cluster.retain_age_ns, segment_bytes_max=cluster.segment_bytes_max,
        )  # fmt: skip
        ledger = Ledger.open(disk, str(PATH))
        self.incarnation, self.generation = incarnation, ledger.node.generation + 1
        ledger.set_node(ledger.node._replace(generation=self.generation, incarnation=incarnation))
        ledger.sync()
        self.evidence = Evidence()
        epoch_ledger = EpochLedger(ledger, self.broker.context.syncs)
        replication = ReplicationContext(
            number, incarnation, self.generation, epoch_ledger, self, self.evidence
        )
        self.replica_host = self.broker.join(replication, self)
        self.broker.open()
        self.is_up = True

    # --- Peers and Records ---

    def send(self, node: int, lane: PeerLane, frames: Sequence[Any]) -> None:
        data = b"".join(b"".join(parts) for parts in frames)
        self.cluster.sent.append((self.number, node, data))

    def propose(self, target: Target, proposal: Propose) -> None:
        self.cluster.asked.append((self, target, proposal))

    def read(self, target: Target) -> None:
        self.cluster.asked.append((self, target, None))

    # --- what a test does ---

    def turn(self) -> None:
        super().turn()
        self.broker.synced()
        self.replica_host.turn()
        self.broker.validate()

    @property
    def topic(self) -> Any:
        return self.broker.topics["orders"]

    def leader(self, partition: int = 0) -> Leader:
        leader = self.replica_host.leader(target(partition))
        assert leader is not None, self.role(partition)
        return leader

    def role(self, partition: int = 0) -> str:
        replicated = self.replica_host.replica(target(partition))
        return replicated.assignment.role if replicated is not None else "none"

    def put(self, *bodies: bytes, due_ns: int = 0) -> Outcome:
        """A publish that is not waited for."""
        outcome = Outcome()
        self.topic.publish(list(bodies), due_ns, outcome)
        self.turn()
        return outcome

    def put_stamped(self, sequence: int, *bodies: bytes) -> list[PenstockError | None]:
        answers: list[PenstockError | None] = []
        stamp = Stamp(77, 1, sequence)
        self.topic.publish_stamped(
            stamp, list(bodies), 0, lambda error, where: answers.append(error)
        )
        self.turn()
        return answers

    def consume(self, name: str = "billing", rdy: int = 100) -> Consumer:
        channel: Channel = self.topic.find_channel(name)
        return Consumer(self, channel, rdy)

    def rot(self, word: bytes) -> tuple[str, int]:
        """One bit of it, in the only segment. Where that is."""
        segment: str = self.topic.replicas[0].log.segments[0].path
        place = self.disk.content(segment).index(word)
        self.disk.flip(segment, place, 0)
        return segment, place

    def bodies(self, partition: int = 0) -> bytes:
        replicated = self.replica_host.replica(target(partition))
        assert replicated is not None
        log = replicated.replica.log
        return b"".join(bytes(data) for _, data in log.batches(log.start_offset))


class Cluster:
    def __init__(
        self,
        clustered: TopicFile = ORDERS,
        channels: Sequence[ClusterChannel] = (BILLING,),
        retain_age_ns: int = 1 << 60,
        segment_bytes_max: int = 1 << 20,
    ) -> None:
        self.clustered = clustered
        self.channels = list(channels)
        self.retain_age_ns = retain_age_ns
        self.segment_bytes_max = segment_bytes_max
        self.clock = FakeClock()
        self.sent: list[tuple[int, int, bytes]] = []
        self.asked: list[tuple[Node, Target, Propose | None]] = []
        self.cut: set[int] = set()  # nodes without links
        self.known: dict[Target, Known] = {}
        self._revision = 100
        self._incarnations = 500
        self.nodes = [self._new_node(number) for number in range(NODES)]

    def _new_node(self, number: int) -> Node:
        disk = SimDisk()
        disk.mkdir(str(PATH))
        disk.sync_directory("/")
        Ledger.create(disk, str(PATH), LedgerNode()).close()
        return self._start(number, disk)

    def _start(self, number: int, disk: SimDisk) -> Node:
        self._incarnations += 1
        return Node(self, number, disk, self._incarnations)

    # --- what the layer above would do ---

    def place(self, leaders: Sequence[int], on: Sequence[int] = range(NODES)) -> None:
        """A partition for each of these leaders, with replicas on those nodes."""
        for partition, leader in enumerate(leaders):
            for node in on:
                self.nodes[node].replica_host.host(
                    self.clustered, partition, replica_on(node), "in_sync"
                )
            members = tuple(Member(n, replica_on(n), self.nodes[n].generation) for n in on)
            leader_id = LeaderId(leader, self.nodes[leader].incarnation, replica_on(leader))
            record = PartitionRecord(
                target().identity, 1, leader_id, members, min(2, len(on)), tuple(on)
            )
            self.write(target(partition), record)
        self.announce_channels()
        for node in self.nodes:
            self.link(node)
        self.run()

    def announce_channels(self) -> None:
        for node in self.up():
            if "orders" in node.broker.topics:
                started = node.started
                node.replica_host.adopt_channels(
                    ORDERS, self.channels, lambda part, n, to=started: to.append((part, n))
                )  # fmt: skip

    def write(self, at: Target, record: PartitionRecord) -> None:
        """A record that is in force, for all to see."""
        self._revision += 1
        self.known[at] = Known(self._revision, record)
        for node in self.up():
            node.replica_host.assign(at, self._revision, record)

    def elect(self, number: int, partition: int = 0, gone: Sequence[int] = ()) -> None:
        at = target(partition)
        before, node = self.known[at].record, self.nodes[number]
        left_out = tuple(member for member in before.members if member.node in gone)
        self.write(
            at, elected(before, LeaderId(number, node.incarnation, replica_on(number)), left_out)
        )
        self.run()

    def link(self, node: Node) -> None:
        for other in self.up():
            if other is not node:
                other.replica_host.linked(node.number)
                node.replica_host.linked(other.number)

    def unlink(self, node: Node) -> None:
        self.sent = [one for one in self.sent if node.number not in one[:2]]
        for other in self.up():
            if other is not node:
                other.replica_host.unlinked(node.number)
                if node.is_up:
                    node.replica_host.unlinked(other.number)

    def up(self) -> list[Node]:
        return [node for node in getattr(self, "nodes", []) if node.is_up]

    def kill(self, number: int) -> None:
        node = self.nodes[number]
        node.is_up = False
        self.unlink(node)
        node.engine.close()
        node.disk.kill()

    def start(self, number: int) -> Node:
        node = self.nodes[number] = self._start(number, self.nodes[number].disk)
        for at, known in self.known.items():
            node.replica_host.assign(at, known.revision, known.record)
        self.announce_channels()
        self.link(node)
        self.run()
        return node

    # --- time ---

    def run(self, turns: int = 60) -> None:
        """Until nothing moves."""
        quiet = 0
        for _ in range(turns):
            for node in self.up():
                node.turn()
            sent, self.sent = self.sent, []
            asked, self.asked = self.asked, []
            quiet = 0 if sent or asked else quiet + 1
            if quiet == QUIET_TURNS:
                return
            for one in sent:
                self._deliver(*one)
            for node, at, proposal in asked:
                self._answer(node, at, proposal)
        raise AssertionError("it does not come to rest")

    def _deliver(self, source: int, to: int, data: bytes) -> None:
        node = self.nodes[to]
        if node.is_up and not self.cut & {source, to}:
            for at, frame in received(Frames(source), data):
                node.replica_host.receive(source, at, frame)

    def _answer(self, node: Node, at: Target, proposal: Propose | None) -> None:
        known, replicated = self.known[at], node.replica_host.replica(at)
        leadership = replicated.leadership if replicated is not None else None
        if proposal is None:
            if leadership is not None:
                leadership.machine.read(known.revision, known.record)
                node.replica_host.worked(at)
            return
        is_done = proposal.revision == known.revision
        if is_done:
            self._revision += 1
            self.known[at] = Known(self._revision, proposal.record)
        if leadership is not None:
            outcome = (Settled.DONE, self._revision) if is_done else (Settled.REFUSED, 0)
            leadership.machine.outcome(proposal.number, *outcome)
            node.replica_host.worked(at)
        if is_done:
            self.write(at, proposal.record)

    def pass_ns(self, ns: int) -> None:
        """Time goes by, with the housekeeping of each node."""
        self.clock.pass_ns(ns)
        for node in self.up():
            node.turn()
            node.replica_host.announce_committed()
            node.broker.housekeeping()
            while node.broker.delays.slice():
                node.turn()
        self.run()

    def pass_seconds(self, count: int) -> None:
        for _ in range(count):
            self.pass_ns(limits.SECOND)

    def publish(self, number: int, *bodies: bytes, due_ns: int = 0) -> None:
        """One that is answered OK."""
        outcome = self.nodes[number].put(*bodies, due_ns=due_ns)
        self.run()
        assert outcome.answers == [None]
