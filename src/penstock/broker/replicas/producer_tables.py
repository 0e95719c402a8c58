"""A learner receives its leader's table of producers: it cannot fold batches that retention has
removed.

| the leader | the learner |
|---|---|
| finds log and journal of a replica level: sends its table | waits until its log is synced so far |
| | installs it durably, continues from its end, and reports that |
| on that report the replica may become a member | |

Each session starts this again, and drops the frames of others. If the learner's disk refuses the
table, it retries at the next housekeeping. A member needs no table: it has folded all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.health import Trouble
from penstock.broker.ports import PeerLane
from penstock.broker.replicas.context import ReplicationContext, target_of
from penstock.errors import StorageError
from penstock.replication.frames import encode
from penstock.replication.side_frames import HasTable, SendTable

if TYPE_CHECKING:
    from penstock.broker.context import Context
    from penstock.broker.partition.replica import Replica
    from penstock.log.ledger import ReplicaKey


class ProducerTableSender:
    """For one leadership."""

    def __init__(
        self, replication: ReplicationContext, key: ReplicaKey, epoch: int, replica: Replica
    ) -> None:
        self._replication = replication
        self._target = target_of(key)
        self._epoch = epoch
        self._replica = replica
        self._sent: dict[int, int] = {}  # the session of each node
        self._held: dict[int, int] = {}

    def ship(self, node: int, session: int, committed: int) -> None:
        """Once to a replica whose log and journal have caught up in this session."""
        if self._sent.get(node) == session:
            return
        self._sent[node] = session
        table = self._replica.producers.snapshot(committed)
        frame = SendTable(session, self._epoch, committed, table)
        self._replication.peers.send(node, PeerLane.BULK, encode(self._target, frame))

    def receive(self, node: int, frame: HasTable) -> None:
        if frame.epoch == self._epoch:
            self._held[node] = frame.session

    def has(self, node: int, session: int) -> bool:
        return self._held.get(node) == session


class ProducerTableReceiver:
    """For a replica that does not lead."""

    def __init__(
        self, context: Context, replication: ReplicationContext, key: ReplicaKey, replica: Replica
    ) -> None:
        self._context = context
        self._replication = replication
        self._target = target_of(key)
        self._replica = replica
        self._came: tuple[int, SendTable] | None = None  # the node, and what it sent

    @property
    def waits(self) -> bool:
        """A table has arrived, and is not installed."""
        return self._came is not None

    def came(self, node: int, frame: SendTable) -> None:
        self._came = node, frame

    def take(self, session: int, own: int) -> None:
        """Install it, if the log reaches its end. `own`: the replica's id."""
        if self._came is None:
            return
        node, frame = self._came
        replica = self._replica
        if frame.session != session:
            self._came = None
            return
        if replica.log.synced_end < frame.end or replica.producers.busy:
            return
        try:
            replica.producers.install(bytes(frame.table))
        except StorageError as error:
            self._context.health.report(replica.label, Trouble.PRODUCERS, error.reason)
            return
        self._came = None
        self._context.health.clear(replica.label, Trouble.PRODUCERS)
        answer = HasTable(session, frame.epoch, own, frame.end)
        self._replication.peers.send(node, PeerLane.LIVE, encode(self._target, answer))
