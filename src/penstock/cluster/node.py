"""A broker in a cluster: the metadata becomes replicas, channels and roles on this node.

What clients make, change and delete here goes to the coordinator first (`client_changes`). Leaders
are asked where a channel starts (`channel_creation`).

**Order.** The coordinator's answers, links and frames come at any time, and each is passed on at
once. `tick` draws conclusions ten times a second, `turn` ends what a turn of the node has begun:
leaderships that began or ended are reported, and what was proposed goes out. Appends and their
acknowledgements begin nothing of that, so most turns of a busy node need none. Nothing here is
called from within a turn of the kernel.
"""

import logging
from collections.abc import Callable, Mapping
from itertools import islice

from penstock.broker.broker import Broker
from penstock.broker.ports import Peers
from penstock.broker.replicas.context import EpochLedger, ReplicationContext, identity_number
from penstock.broker.replicas.replica_host import STEADY_FRAMES, ReplicaHost
from penstock.cluster import keys
from penstock.cluster.attempts import Attempts
from penstock.cluster.channel_creation import ChannelCreations, StartRequests
from penstock.cluster.client_changes import ClientChanges
from penstock.cluster.coordinator import Coordinator
from penstock.cluster.documents import Membership, NodeDocument
from penstock.cluster.elections import Local
from penstock.cluster.keys import ChannelName, PartitionName
from penstock.cluster.messages import (
    Drained,
    DrainRequest,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    Renewed,
    StartHeld,
    StartRequest,
)
from penstock.cluster.participant import Participant
from penstock.cluster.reconciler import Reconciler, SendMessage
from penstock.cluster.rehash import Rehashes
from penstock.cluster.view import Remembered, Versioned
from penstock.errors import StorageError
from penstock.limits import (
    FULL_DISK_NS,
    PEER_HEARTBEAT_NS,
    REPLICA_GREET_NS,
    REPLICA_GREETINGS,
    REPLICA_TIMEOUT_NS,
)
from penstock.log.ledger import Ledger
from penstock.replication.authority import Isolation
from penstock.replication.effects import Hello, Propose, Refuse
from penstock.replication.frames import Frame, Target
from penstock.replication.leader import PartitionLeader
from penstock.replication.record import PartitionRecord

_log = logging.getLogger("penstock.cluster")
CORRUPT_ROUNDS = 10  # a look at all replicas for corrupt ones, of looks at those in use


class ClusterNode:
    """`send` sends a message to a node; `new_replica` draws a random id of a replica."""

    def __init__(
        self,
        broker: Broker,
        own: int,
        membership: Membership,
        describe: Callable[[], NodeDocument],
        coordinator: Coordinator,
        peers: Peers,
        ledger: Ledger,
        send: SendMessage,
        new_replica: Callable[[], int],
        mono_ns: int,
        remembered: Remembered | None = None,
        records: Mapping[PartitionName, Versioned[PartitionRecord]] | None = None,
        isolation: Isolation = Isolation(),  # noqa: B008
        replica_timeout_ns: int = REPLICA_TIMEOUT_NS,
    ) -> None:
        self.own = own
        self.broker = broker
        self.participant = Participant(
            own, membership, describe, coordinator, self._local, mono_ns,
            remembered or Remembered(), records, replica_timeout_ns,
        )  # fmt: skip
        replication = ReplicationContext(
            own, membership.incarnation, membership.generation,
            EpochLedger(ledger, broker.context.syncs), peers,
            self.participant.proposals.evidence, isolation,
        )  # fmt: skip
        self.replica_host: ReplicaHost = broker.join(replication, self)
        self._start_requests = StartRequests(self._holds_start, self._pass_on)
        self.reconciler = Reconciler(
            own, broker, self.replica_host, self.participant.view, coordinator, send,
            self.participant.registration, new_replica, self._report, self._start_requests.held,
        )  # fmt: skip
        self.began_count = 0  # leaderships of this node, since its start
        self._send = send
        self._now_ns = mono_ns
        self._is_due = True  # `turn` has something to do
        self._busy: dict[
            PartitionName, int
        ] = {}  # leaderships with an append in flight: committed then
        self._unmet: dict[PartitionName, None] = {}  # those whose greeting may not be answered yet
        self._greet_due_ns = self._corrupt_due_ns = self._full_until_ns = 0
        self._corrupt_round = 0
        self._corrupt: set[PartitionName] = set()  # here, as far as is known
        self._failed: set[PartitionName] = set()  # of those: it can acknowledge nothing
        view, has = self.participant.view, self._has_channel
        detector = self.participant.proposals.failure_detector
        attempts, wall_ns = Attempts(view, coordinator, mono_ns), self.replica_host.wall_ns
        self._attempts = attempts
        self._channel_creations = ChannelCreations(
            view, attempts, self._pass_on, has, wall_ns, mono_ns
        )
        self._rehashes = Rehashes(
            membership.incarnation, broker, view, attempts, coordinator, self._pass_on,
            self._is_true, self.participant.registration.lease, mono_ns,
        )  # fmt: skip
        # Clients that wait: one of these is not empty.
        self._waits = attempts.waiting, self._start_requests.waiting
        self.replica_host.metadata = ClientChanges(
            view, attempts, self._is_true, new_replica, wall_ns, self._rehashes,
            self._channel_creations.make, has,
            lambda node: detector.is_missing(node, self._now_ns),
        )  # fmt: skip

    # --- changes of the view ---

    def _look(self) -> None:
        """Take in changes of the metadata, and carry them out."""
        for key, _, _ in self.participant.look(self._now_ns):
            if topic := keys.topic_of(key):
                self.reconciler.due[topic] = None
            if key.startswith(keys.PARTITIONS):
                self._unmet[keys.partition_of(key)] = None  # it may want another replica
        self._note_revision()
        self.reconciler.look(self._now_ns)

    def _local(self, name: PartitionName) -> Local | None:
        replicated = self.reconciler.replicated(name)
        if replicated is None:
            return None
        assignment = replicated.assignment
        waits = replicated.topic.durability == "disk"
        stopped = assignment.is_stopped
        try:
            extent = replicated.replica.log.extent()
        except StorageError as error:  # it ends, as that of a follower that cannot read does
            assignment.stop(error.reason)
            return None
        return Local(
            replicated.own.replica, stopped, waits, extent, assignment.leadership is not None
        )

    # --- changes by clients ---

    def _is_true(self, topic: str) -> bool:
        """This node has applied everything that the view shows of the topic."""
        return topic not in self.reconciler.due

    def _has_channel(self, name: ChannelName, number: int) -> bool:
        """A node without a partition of the topic has nothing to apply."""
        topic = self.broker.topics.get(name.topic)
        if topic is None and self._is_true(name.topic):
            held = self.participant.view.channel(name)
            return held is not None and held.document.number == number
        channel = topic.channels.get(name.channel) if topic is not None else None
        return channel is not None and channel.number == number

    def _holds_start(self, request: StartRequest) -> bool | None:
        target = Target(identity_number(request.identity), request.partition)
        replicated = self.replica_host.replica(target)
        if (
            replicated is None
            or replicated.leadership is None
            or replicated.leadership.machine.over
        ):
            return None
        return request.channel in replicated.held_starts

    # --- proposals of leaderships ---

    def propose(self, target: Target, proposal: Propose) -> None:
        self._is_due = True
        replicated, name = self.replica_host.replica(target), self.reconciler.names.get(target)
        if name is not None and replicated is not None and replicated.leadership is not None:
            self.participant.proposals.propose(name, replicated.leadership.machine, proposal)

    def read(self, target: Target) -> None:
        self._is_due = True
        name = self.reconciler.names.get(target)
        if name is not None:
            self.participant.proposals.read(name)

    # --- links ---

    def linked(self, node: int, incarnation: int) -> None:
        self.participant.linked(node, incarnation)
        self._unmet.update(dict.fromkeys(self.participant.proposals.machines))
        self.replica_host.linked(node)
        self.turn()

    def unlinked(self, node: int) -> None:
        self.participant.unlinked(node)
        self.replica_host.unlinked(node)
        self.turn()

    def refused(self, node: int, incarnation: int) -> None:
        """A connection of this node to that incarnation of another node was refused."""
        self.participant.refused(node, incarnation)
        self._send_all()

    def receive(self, node: int, target: Target, frame: Frame) -> None:
        self.replica_host.receive(node, target, frame)
        if isinstance(frame, STEADY_FRAMES):
            return
        self._is_due = True
        if isinstance(frame, Hello):
            self._note_hello(target, frame)
        elif isinstance(frame, Refuse) and target in self.reconciler.names:
            self._unmet[self.reconciler.names[target]] = None  # it was greeted anew

    def _note_hello(self, target: Target, hello: Hello) -> None:
        """The leader has greeted, whether the replica can follow yet or waits for its disk; be it
        that a node which has just started has not compared the replica with its record yet."""
        replicated = self.replica_host.replica(target)
        if replicated is None:
            return
        name = PartitionName(replicated.topic.name, target.partition)
        held = self.participant.view.partitions.get(name)
        if held is None or hello.epoch >= held.document.epoch:
            self.participant.proposals.elections.in_force(name, hello.epoch)

    def receive_message(self, node: int, message: Message) -> None:
        if not isinstance(
            message, Heartbeat | HeartbeatAnswer
        ):  # these change nothing before the next tick
            self._is_due = True
        self._take(node, message)
        self._send_all()

    def _pass_on(self, node: int, message: Message) -> None:
        """To a node, which may be this one."""
        if node == self.own:
            self._take(node, message)
        else:
            self._send(node, message)

    def _take(self, node: int, message: Message) -> None:
        match message:
            case Renewed(topic, partition):
                self._greet(node, PartitionName(topic, partition))
            case StartRequest():
                self._start_requests.receive(node, message, self._now_ns)
            case DrainRequest() | Drained():
                self._rehashes.receive(node, message)
            case StartHeld():
                self._channel_creations.start_held(message)
            case _:
                self.participant.receive(node, message)

    def _greet(self, node: int, name: PartitionName) -> None:
        replicated = self.reconciler.replicated(name)
        if replicated is not None and replicated.leadership is not None:
            self._unmet[name] = None
            replicated.leadership.linked(node)

    # --- time ---

    def tick(self, mono_ns: int) -> bool:
        """Call about ten times a second. False: nothing happened."""
        self._now_ns = mono_ns
        has_news = self.participant.view.is_pending or bool(self.reconciler.due)
        self.participant.wall_ns = self.replica_host.wall_ns()
        self._look()
        self.participant.conclude(mono_ns)
        self.reconciler.confirm_deletions()
        moved = self.participant.take_moved()
        for name in moved:
            target = self.reconciler.targets.get(name)
            if target is not None:
                self.replica_host.worked(target)
        self.replica_host.tick(mono_ns)
        self._start_requests.tick(mono_ns)
        self._channel_creations.tick(mono_ns)
        self._rehashes.tick(mono_ns)
        self._attempts.tick(mono_ns)
        self._note_corrupt()
        self._note_commits()
        self._greet_again()
        has_news = has_news or bool(moved) or self.is_due
        self.turn()
        return has_news

    @property
    def is_due(self) -> bool:
        """Anything but publishes has arrived since the last turn, or a client waits."""
        return self._is_due or self.replica_host.is_due or any(self._waits)

    def turn(self) -> None:
        """Runs at the end of a turn of the node if due; each tick ends with one."""
        self._is_due = False
        if any(self._waits):
            self._hurry()
        self.replica_host.turn()
        self._report()
        self.participant.flush()
        self._send_all()

    def _hurry(self) -> None:
        """A client waits for a topic or channel: changes of the metadata are applied before the
        next tick. Conclusions are left to the tick."""
        self._look()
        self._channel_creations.tick(self._now_ns)
        self._rehashes.tick(self._now_ns)
        self._attempts.tick(self._now_ns)

    def _note_revision(self) -> None:
        """Call before acting on the revision."""
        view, ledger = self.participant.view, self.replica_host.replication.epoch_ledger
        ledger.note_revision(view.revision_seen, view.restorations)

    def _note_corrupt(self) -> None:
        if self._now_ns < self._corrupt_due_ns and not self.reconciler.unchecked:
            return
        self._corrupt_due_ns = self._now_ns + 2 * PEER_HEARTBEAT_NS
        is_slow = self.participant.proposals.members.take_slow_here()
        if is_slow:
            _log.warning("commits wait for this node's disk: it leads nothing for a while")
        if is_slow or self.broker.context.disk_refusal:
            self._full_until_ns = self._now_ns + FULL_DISK_NS
        is_full = self._now_ns < self._full_until_ns
        if is_full or self._corrupt or self._corrupt_round % CORRUPT_ROUNDS == 0:
            names = set(self.reconciler.targets)
        else:
            awake = {self.reconciler.names.get(one.target) for one in self.replica_host.awake}
            names = self.reconciler.targets.keys() & (awake | self.reconciler.unchecked)
        self._corrupt_round += 1
        self.reconciler.unchecked.clear()
        self._corrupt = set(self.reconciler.unreadable)
        self._failed = set(self.reconciler.unreadable)
        for name in names:
            self._judge(name, is_full)
        self.participant.found_corrupt(frozenset(self._corrupt), frozenset(self._failed))

    def _judge(self, name: PartitionName, is_full: bool) -> None:
        replicated = self.replica_host.replica(self.reconciler.targets[name])
        if replicated is None:
            return
        has_failed = replicated.assignment.has_failed
        # A learner that stops changes no record, and a member may do so after it was let go.
        if has_failed and replicated.assignment.is_stopped:
            self.reconciler.due[name.topic] = None
        if has_failed:
            self._failed.add(name)
        if is_full or has_failed or len(replicated.replica.log.damage):
            self._corrupt.add(name)

    def _report(self) -> None:
        proposals = self.participant.proposals
        for change in self.replica_host.take_leadership_changes():
            name = self.reconciler.names[change.target]
            if change.began:
                self.began_count += 1
                change.machine.confirmed(self._now_ns)
                proposals.leadership_began(name, change.machine)
                if change.machine.end != change.machine.committed:
                    self._busy[name] = -1  # members may lack the end of its log
                self._unmet[name] = None
            else:
                self._busy.pop(name, None)
                proposals.leadership_ended(name)

    def _note_commits(self) -> None:
        """Detects, by time, a leadership that commits nothing while an append waits."""
        members, waiting = self.participant.proposals.members, []
        busy = self._uncommitted()
        for name in self._busy:
            if name not in busy:
                members.committed(name)
        for name, committed in busy.items():
            if self._busy.get(name, -1) < committed:
                members.wrote(name, self._now_ns)
            else:
                waiting.append(name)
        self._busy = busy
        members.waited(waiting)

    def _uncommitted(self) -> dict[PartitionName, int]:
        """Leaderships with an append in flight, with their committed ends. Housekeeping visits
        topics with appends until all of them are committed."""
        machines = self.participant.proposals.machines
        found = {name: machines[name] for name in self._busy}
        for topic in self.broker.context.touched:
            for leader in topic.leaders:
                machine = leader.leadership.machine
                if machine.end != machine.committed:
                    found[PartitionName(topic.name, leader.number)] = machine
        return {
            name: one.committed
            for name, one in found.items()
            if one.end != one.committed and name in machines
        }

    def _greet_again(self) -> None:
        """A node that was greeted before it had the replica has dropped the greeting. Nodes that
        should have no replica are left alone: in a large cluster those are most."""
        if self._now_ns < self._greet_due_ns:
            return
        self._greet_due_ns = self._now_ns + REPLICA_GREET_NS
        unmet = list(islice(self._unmet, REPLICA_GREETINGS))
        for name in unmet:
            del self._unmet[name]
            machine = self.participant.proposals.machines.get(name)
            for node in _silent_nodes(machine) if machine is not None else ():
                self._greet(node, name)

    def _send_all(self) -> None:
        out, self.participant.out = self.participant.out, []
        for node, message in out:
            self._send(node, message)

    # --- for people ---

    def validate(self) -> None:
        for name, target in self.reconciler.targets.items():
            if self.reconciler.names.get(target) != name:
                raise RuntimeError(f"{name} is listed as {self.reconciler.names.get(target)}")
        self.replica_host.validate()


def _silent_nodes(machine: PartitionLeader) -> list[int]:
    """Nodes that should have a replica and have not answered the greeting of this session."""
    record, peers = machine.record, machine.peers
    nodes = record.replica_nodes & peers.keys()
    return [node for node in nodes if not peers[node].replica]
