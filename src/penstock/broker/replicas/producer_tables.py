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
from penstock.errors import StorageError
from penstock.replication.frames import encode
from penstock.replication.side_frames import HasTable, SendTable

if TYPE_CHECKING:
    from penstock.broker.replicas.replicated_partition import ReplicatedPartition


class ProducerTables:
    """Of one replica: what it sends in a leadership, and receives without one."""

    def __init__(self, owner: ReplicatedPartition) -> None:
        self._owner = owner
        self._epoch = 0  # of the leadership
        self._sent: dict[int, int] = {}  # the session of each node
        self._held: dict[int, int] = {}
        self._came: tuple[int, SendTable] | None = None  # the node, and what it sent

    def receive(self, node: int, frame: SendTable | HasTable) -> None:
        if isinstance(frame, SendTable):
            self._came = node, frame
        elif frame.epoch == self._epoch:
            self._held[node] = frame.session

    # --- a leadership ---

    def lead(self, epoch: int) -> None:
        self._epoch, self._sent, self._held = epoch, {}, {}

    def has(self, node: int, session: int, committed: int) -> bool:
        """A replica whose log and journal have caught up in this session. Else it is sent, once."""
        if self._held.get(node) == session:
            return True
        if self._sent.get(node) != session:
            self._sent[node] = session
            table = self._owner.replica.producers.snapshot(committed)
            self._send(node, PeerLane.BULK, SendTable(session, self._epoch, committed, table))
        return False

    def _send(self, node: int, lane: PeerLane, frame: SendTable | HasTable) -> None:
        self._owner.replication.peers.send(node, lane, encode(self._owner.target, frame))

    # --- a replica that does not lead ---

    @property
    def waits(self) -> bool:
        """A table has arrived, and is not installed."""
        return self._came is not None

    def take(self) -> None:
        """Install what has arrived, if the log reaches its end."""
        if self._came is None:
            return
        node, frame = self._came
        replica, follower = self._owner.replica, self._owner.assignment.follower
        if follower is None or frame.session != follower.machine.session:
            self._came = None
            return
        if replica.log.synced_end < frame.end or replica.producers.busy:
            return
        health = self._owner.context.health
        try:
            replica.producers.install(bytes(frame.table))
        except StorageError as error:
            health.report(replica.label, Trouble.PRODUCERS, error.reason)
            return
        self._came = None
        health.clear(replica.label, Trouble.PRODUCERS)
        answer = HasTable(frame.session, frame.epoch, self._owner.own.replica, frame.end)
        self._send(node, PeerLane.LIVE, answer)
