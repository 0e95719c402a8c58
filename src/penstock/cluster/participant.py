"""A node's part in the cluster: the machines of one process, and the order of the steps of a turn.

| first | because |
|---|---|
| the watch, and a slice of the view | who leads follows from records alone |
| the registration | a node acts on what it knows now, and only while its lease lasts |
| the leaderships draw their conclusions | from the view, the links, and time |
| heartbeats, and a question to the coordinator | authority counts from when they were sent |
| proposals go out | in few transactions: `flush`, when partitions were worked on |

The shell brings the coordinator's answers before it calls `look` and `conclude`, opens and closes
links, carries `out` to other nodes and `receive`s what they say. It assigns the records that `look`
returns to its replicas, works on those of `moved`, and reports leaderships that begin and end.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from penstock.cluster import keys
from penstock.cluster.coordinator import Coordinator, Failed, Reading
from penstock.cluster.documents import Membership, NodeDocument
from penstock.cluster.elections import Local
from penstock.cluster.keys import PartitionName
from penstock.cluster.messages import (
    Corrupt,
    Heartbeat,
    HeartbeatAnswer,
    Leaving,
    Message,
    Refused,
    SendReport,
)
from penstock.cluster.proposals import Proposals
from penstock.cluster.registration import Registration
from penstock.cluster.view import Remembered, Versioned, View, ViewChange
from penstock.cluster.watch import Phase, Watching
from penstock.limits import (
    CORRUPT_NAMED_MAX,
    PEER_HEARTBEAT_NS,
    REPLICA_TIMEOUT_NS,
    VIEW_SLICE_DOCUMENTS,
)
from penstock.replication.election import MemberReport
from penstock.replication.record import PartitionRecord

_HEARTBEATS = 10  # of a node, whose clocks are compared: some five seconds


class Participant:
    def __init__(
        self,
        own: int,
        membership: Membership,
        describe: Callable[[], NodeDocument],
        coordinator: Coordinator,
        local: Callable[[PartitionName], Local | None],
        mono_ns: int,
        remembered: Remembered = Remembered(),  # noqa: B008
        records: Mapping[PartitionName, Versioned[PartitionRecord]] | None = None,
        replica_timeout_ns: int = REPLICA_TIMEOUT_NS,
    ) -> None:
        self.own = own
        self.view = View(remembered, records)
        self.watching = Watching(coordinator, self.view)
        self.registration = Registration(own, coordinator, self.view, membership, describe)
        self.proposals = Proposals(
            own,
            membership.incarnation,
            membership.generation,
            self.view,
            coordinator,
            local,
            mono_ns,
            replica_timeout_ns,
        )
        self.wall_ns = 0  # told by the shell before each tick
        # How far those of linked nodes are ahead of this one, by their last heartbeats. One that
        # was late makes a clock look behind, so the highest counts.
        self._clocks_ns: dict[int, deque[int]] = {}
        self.links = self.proposals.failure_detector.links
        self.out: list[tuple[int, Message]] = []
        self._coordinator = coordinator
        self._heartbeat_due_ns = mono_ns
        self._read_sent_ns: int | None = None  # when the coordinator was asked how far it is
        self._answered: tuple[int, int] | None = None  # when that was, and its revision

    # --- links ---

    def linked(self, node: int, incarnation: int) -> None:
        self.proposals.linked(node, incarnation)
        if self.proposals.corrupt_replicas.corrupt:
            self._send_corrupt((node,))

    def unlinked(self, node: int) -> None:
        self._clocks_ns.pop(node, None)
        self.proposals.unlinked(node)

    @property
    def clock_ahead_ns(self) -> int:
        """How far this node's clock is ahead of most others; negative: behind. 0 when the others
        disagree: one of them is wrong, and reports that itself."""
        ahead = sorted(-max(offsets_ns) for offsets_ns in self._clocks_ns.values())
        middles = ahead[(len(ahead) - 1) // 2 : len(ahead) // 2 + 1]
        if not middles or middles[0] <= 0 <= middles[-1]:
            return 0
        return min(middles, key=abs)

    def refused(self, node: int, incarnation: int) -> None:
        """An attempt of this node to connect was refused."""
        self.proposals.refused(self.own, node, incarnation)
        self.out.extend((other, Refused(node, incarnation)) for other in self.links)

    def receive(self, node: int, message: Message) -> None:
        match message:
            case Heartbeat(sent_ns, wall_ns):
                offsets_ns = self._clocks_ns.setdefault(node, deque(maxlen=_HEARTBEATS))
                offsets_ns.append(wall_ns - self.wall_ns)
                self.out.append((node, HeartbeatAnswer(sent_ns)))
            case HeartbeatAnswer(sent_ns):
                self.proposals.evidence.answered(node, sent_ns)
            case Refused(other, incarnation):
                self.proposals.refused(node, other, incarnation)
            case SendReport(topic, partition, epoch, entry, lost, extent):
                report = MemberReport(entry, lost, extent)
                name = PartitionName(topic, partition)
                self.proposals.elections.reported(node, name, epoch, report)
            case Corrupt(names, failed):
                self.proposals.corrupt_replicas.reported(node, names, failed)
            case Leaving():
                self.proposals.leaving(node)

    def leave(self) -> None:
        """This process is about to stop."""
        self.proposals.elections.is_leaving = True
        self.out.extend((node, Leaving()) for node in self.links)

    # --- corrupt logs ---

    def found_corrupt(
        self, names: frozenset[PartitionName], failed: frozenset[PartitionName] = frozenset()
    ) -> None:
        """All replicas of this node whose logs are corrupt now, and those of them that acknowledge
        nothing."""
        corrupt_replicas = self.proposals.corrupt_replicas
        if (names, failed) != (corrupt_replicas.corrupt, corrupt_replicas.failed):
            corrupt_replicas.corrupt, corrupt_replicas.failed = names, failed
            self._send_corrupt(self.links)

    def _send_corrupt(self, nodes: Iterable[int]) -> None:
        corrupt_replicas = self.proposals.corrupt_replicas
        names = tuple(sorted(corrupt_replicas.corrupt)[:CORRUPT_NAMED_MAX])
        failed = tuple(sorted(corrupt_replicas.failed)[:CORRUPT_NAMED_MAX])
        self.out.extend((node, Corrupt(names, failed)) for node in nodes)

    # --- a turn ---

    def look(self, mono_ns: int) -> list[ViewChange]:
        """Apply a slice of the changes from the coordinator. The shell may carry them out before
        conclusions are drawn: a new partition has a replica then, which may be elected."""
        self.watching.tick(mono_ns)
        changes = self.view.apply(VIEW_SLICE_DOCUMENTS)
        self.proposals.changed(changes)
        if any(key == self.registration.key and after is None for key, _, after in changes):
            self.registration.key_gone()
        return changes

    def conclude(self, mono_ns: int) -> None:
        is_current = self.watching.phase is Phase.WATCHING and not self.view.is_pending
        self.registration.tick(mono_ns, is_current)
        self.proposals.tick(mono_ns, is_current and self.registration.is_held(mono_ns))
        self._confirm()
        self._beat(mono_ns)

    def _beat(self, mono_ns: int) -> None:
        if mono_ns < self._heartbeat_due_ns:
            return
        self._heartbeat_due_ns = mono_ns + PEER_HEARTBEAT_NS
        self.out.extend((node, Heartbeat(mono_ns, self.wall_ns)) for node in self.links)
        self._read_revision(mono_ns)

    # --- authority from the coordinator ---

    def _read_revision(self, mono_ns: int) -> None:
        """A leadership without other members learns only this way that it is in force."""
        if self._read_sent_ns is None and self.proposals.machines:
            self._read_sent_ns = mono_ns
            self._coordinator.read(keys.CLUSTER, self._was_read)

    def _was_read(self, answer: Reading | Failed) -> None:
        sent_ns, self._read_sent_ns = self._read_sent_ns, None
        if isinstance(answer, Reading) and sent_ns is not None:
            self._answered = sent_ns, answer.revision

    def _confirm(self) -> None:
        """The view has reached the coordinator's revision: no other record was in force then."""
        if self._answered is None:
            return
        sent_ns, revision = self._answered
        if self.view.revision >= revision and not self.view.frozen:
            self._answered = None
            self.proposals.evidence.confirmed(sent_ns)

    def flush(self) -> None:
        """Proposals of the leaderships go to the coordinator, their reports to `out`."""
        self.proposals.batches.flush()
        elections = self.proposals.elections
        self.out += elections.out
        elections.out = []

    def take_moved(self) -> set[PartitionName]:
        """Partitions whose machines want something done."""
        moved = set(self.proposals.moved)
        self.proposals.moved.clear()
        return moved
