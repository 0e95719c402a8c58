"""A broker that has joined a cluster: a process on a disk that stays, links without sockets, and a
coordinator in memory. What it does, it does by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.broker.partition.leader import Leader
from penstock.broker.ports import PeerLane
from penstock.broker.replicas.replicated_partition import ReplicatedPartition
from penstock.cluster.documents import ACTIVE, Membership, NodeDocument
from penstock.cluster.keys import PartitionName
from penstock.cluster.node import ClusterNode
from penstock.cluster.restoration import Memory
from penstock.cluster.view import Remembered, View
from penstock.log.ledger import Ledger
from sim.brokers.clients import MESSAGE_TIMEOUT_NS, Consumer, Outcome
from sim.brokers.port import Port
from sim.brokers.process import Process
from sim.disk import SimDisk

if TYPE_CHECKING:
    from sim.brokers.cluster import JoinedCluster

PATH = Path("/data")


class JoinedNode(Process):
    """A process on a disk that stays."""

    def __init__(
        self, cluster: JoinedCluster, number: int, disk: SimDisk, incarnation: int
    ) -> None:
        self.cluster = cluster
        self.number, self.incarnation = number, incarnation
        self.is_up = False
        self._turns = 0
        super().__init__(PATH, cluster.kernel, disk, cluster.clocks[number], node_id=number)
        ledger = Ledger.open(disk, str(PATH))
        self.generation = ledger.node.generation + 1
        ledger.set_node(ledger.node._replace(generation=self.generation, incarnation=incarnation))
        ledger.sync()
        self.coordinator = Port(cluster.store, cluster.passage)
        self.coordinator.now_ns = cluster.clock.mono_ns()
        remembered, records = cluster.remembered.get(number, (Remembered(), {}))
        self.cluster_node = ClusterNode(
            self.broker, number,
            Membership(number + 1, self.generation, "", 0, incarnation, 0, ACTIVE),
            lambda: NodeDocument(
                incarnation, "a", 1, 2, "a", 3, "0.1.0", f"zone {number}", 1 << 40, 0
            ),
            self.coordinator, self, ledger, self._send, cluster.new_replica,
            cluster.clock.mono_ns(), remembered, records,
        )  # fmt: skip
        self.broker.open()
        self.is_up = True

    # --- Peers, and messages ---

    def send(self, node: int, lane: PeerLane, frames: Sequence[Any]) -> None:
        data = b"".join(bytes(part) for frame in frames for part in frame)  # pieces in their order
        self.cluster.sent.append((self.number, node, data))

    def _send(self, node: int, message: Any) -> None:
        self.cluster.said.append((self.number, node, message))

    # --- a step ---

    def step(self) -> None:
        self.coordinator.is_cut = self.number in self.cluster.away
        if self.number not in self.cluster.slow:
            self.coordinator.run(self.clock.mono_ns())
        self.cluster_node.tick(self.clock.mono_ns())
        self.turn()
        view = self.cluster_node.participant.view
        self.cluster.remembered[self.number] = view.remembered, dict(view.partitions)

    def turn(self) -> None:
        super().turn()
        self.broker.synced()
        if self.is_up:
            self.cluster_node.turn()

    def validate(self) -> None:
        """It looks at everything, so a long history does it now and then."""
        self._turns += 1
        if self._turns % self.cluster.validated_every == 0:
            self.broker.validate()

    # --- clients ---

    @property
    def view(self) -> View:
        return self.cluster_node.participant.view

    def memory(self) -> Memory:
        """What it remembers of the metadata."""
        view = self.view
        topics = {name: held.document for name, held in view.topics.items()}
        return Memory(
            self.number, view.remembered, dict(view.partitions), topics, dict(view.channels)
        )

    def replicated(self, topic: str, number: int) -> ReplicatedPartition | None:
        return self.cluster_node.reconciler.replicated(PartitionName(topic, number))

    def leader(self, name: PartitionName) -> Leader | None:
        replicated = self.cluster_node.reconciler.replicated(name)
        return replicated.replica.led if replicated is not None else None

    def put(self, topic: str, *bodies: bytes, due_ns: int = 0) -> Outcome:
        outcome = Outcome()
        self.broker.topics[topic].publish(list(bodies), due_ns, outcome)
        self.turn()
        return outcome

    def consume(
        self, topic: str, channel: str, rdy: int = 100, timeout_ns: int = MESSAGE_TIMEOUT_NS
    ) -> Consumer:
        return Consumer(self, self.broker.topics[topic].find_channel(channel), rdy, timeout_ns)
