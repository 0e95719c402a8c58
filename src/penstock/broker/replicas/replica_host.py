"""The cluster's interface to the broker of one node: which replicas are here, and in which role.

| the layer above | calls |
|---|---|
| has read which replicas belong here | `host`, `release`, `adopt_topic`, `adopt_channels` |
| has a new record | `assign` |
| has, or has lost, a link to a node | `linked`, `unlinked` |
| has a frame of a node | `receive` |
| has told a leadership's machine what the coordinator answered | `worked` |
| has handled everything that arrived in a turn | `turn` |
| checks the clock, some ten times a second | `tick` |

`Broker.join` creates it, before the topics are opened; `Broker.housekeeping` calls `settle`. What
the replicas want of the coordinator and of other nodes goes to `Records` and `Peers`, never from
within a turn of the kernel. `take_leadership_changes` lists the leaderships that began and ended.

A topic of a cluster has `placed` in its `topic.json`; its partitions here are those whose directory
has a `replica.json`. A directory without one belongs to an interrupted copy, or has lost it: it is
moved aside, and never trusted.

A partition with an unreadable `replica.json` is **set aside**: it is reported and left as it is,
and no other replica takes its place; the topic's other partitions are served. If it is the topic's
only one here, the topic is set aside. It goes to `aside/` when the topic's last replica is
released.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.broker.health import Trouble
from penstock.broker.partition.producers import encode_table
from penstock.broker.partition.replica import Replica
from penstock.broker.replicas.aside import Aside
from penstock.broker.replicas.clustered_topic import ClusterChannel, adopt, adopt_channels
from penstock.broker.replicas.context import ReplicationContext, identity_number
from penstock.broker.replicas.forwarding import Forwarding
from penstock.broker.replicas.outbox import renew_outboxes
from penstock.broker.replicas.replica_file import ReplicaFileStore, owns_in
from penstock.broker.topics import directories
from penstock.broker.topics.topic_file import TopicFile
from penstock.errors import NotFound, Refused, StorageError
from penstock.limits import ASIDE_KEPT_NS, AUTHORITY_NS
from penstock.log import names
from penstock.log.ledger import ReplicaKey
from penstock.log.replica_file import ReplicaFile, State, encode_replica, replica_id
from penstock.replication.effects import Acknowledge
from penstock.replication.frames import AppendFrame, Target
from penstock.replication.side_frames import BatchAnswered, SendBatch

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.partition.leader import Leader
    from penstock.broker.ports import ClusterMetadata, Led
    from penstock.broker.replicas.leadership import Records
    from penstock.broker.replicas.replicated_partition import ReplicatedPartition
    from penstock.broker.topics.topic import Topic
    from penstock.log.partition import PartitionLog
    from penstock.replication.frames import Frame
    from penstock.replication.leader import PartitionLeader
    from penstock.replication.record import PartitionRecord

STEADY_FRAMES = (AppendFrame, Acknowledge)  # of publishes, where nothing else changes
Started = Callable[[int, int], None]  # partition, number of the channel


class LeadershipChange(NamedTuple):
    target: Target
    machine: PartitionLeader
    began: bool


class ReplicaHost:
    def __init__(self, broker: Broker, replication: ReplicationContext, records: Records) -> None:
        context = broker.context
        self.replication = replication
        self.metadata: ClusterMetadata | None = None  # the layer above sets it
        self.records = records
        self.forwarding = Forwarding(replication, self, context.engine.wake)
        self._broker = broker
        self._context = context
        self._topics = broker.topics
        self._files = broker.directories
        self._replicas: dict[Target, ReplicatedPartition] = {}
        self._to_turn: dict[ReplicatedPartition, None] = {}  # `turn` looks at them
        self._awake: dict[ReplicatedPartition, int] = {}  # until which round of housekeeping
        self._round = 0
        self._syncs = False, False  # of logs and journals, that the next pass has to begin
        self._unsettled: deque[tuple[ReplicatedPartition, bool, bool]] = deque()  # of this pass
        self._led_here: dict[PartitionLeader, ReplicatedPartition] = {}
        self._in_turn: list[tuple[PartitionLeader, ReplicatedPartition]] | None = None  # the same
        self._starting: dict[Target, ReplicatedPartition] = {}  # of these, what does not serve yet
        self._leadership_changes: list[LeadershipChange] = []
        self._linked: dict[int, None] = {}
        self._ticked: tuple[int, ...] = ()  # nodes that were linked at the last tick
        self._tick_number = 0
        self._started: dict[str, Started] = {}  # by identity of the topic
        self._set_aside: dict[Target, str] = {}  # replicas that cannot be read: why
        self._aside = Aside(context.disk, context.data_path, context.clock)

    # --- replicas of this node ---

    def targets(self) -> list[Target]:
        return list(self._replicas)

    def targets_of(self, topic: str) -> list[Target]:
        """The partitions of the present topic of that name, whatever its identity."""
        found = self._topics.get(topic)
        replicas = found.replicas.values() if found is not None else ()
        return [one.replicated.target for one in replicas if one.replicated is not None]

    def replica(self, target: Target) -> ReplicatedPartition | None:
        return self._replicas.get(target)

    def is_set_aside(self, target: Target) -> bool:
        return target in self._set_aside

    def find_owns(self, directory: str, file: TopicFile) -> dict[int, ReplicaFileStore]:
        """Replicas of a topic that are here at the start. Raises TopicDamaged where none of them
        can be read, and StorageError."""
        disk = self._context.disk
        numbers = directories.partition_numbers(disk, directory)
        owns, unreadable = owns_in(disk, directory, numbers)
        if unreadable and not owns:
            raise next(iter(unreadable.values()))
        for number, error in unreadable.items():
            label = f"{file.name}/{number}"
            reason = f"set aside until it is repaired: {error}"
            self._set_aside[Target(identity_number(file.identity), number)] = f"{label} is {reason}"
            self._context.health.report(label, Trouble.SET_ASIDE, reason)
        return owns

    def wall_ns(self) -> int:
        return self._context.clock.wall_ns()

    def topic(self, clustered: TopicFile) -> Topic:
        """Raises NotFound."""
        topic = self._topics.get(clustered.name)
        if topic is None or topic.identity != clustered.identity:
            raise NotFound("topic", clustered.name)
        return topic

    def host(
        self, clustered: TopicFile, partition: int, replica: int, state: State = "copying"
    ) -> None:
        """Make a new, empty replica of a partition; an existing one is kept. `state`: "in_sync" for
        the first members of a new partition. Durable on return. Raises Refused and StorageError."""
        self.leave_remote(clustered.name, clustered.identity)
        topic = self._topics.get(clustered.name)
        if topic is not None and topic.identity != clustered.identity:
            raise Refused(f"another topic {clustered.name} is here, {topic.identity}")
        if clustered.name in self._context.set_aside:
            raise Refused(self._context.set_aside[clustered.name])
        if reason := self._set_aside.get(Target(identity_number(clustered.identity), partition)):
            raise Refused(reason)
        there = topic.replicas.get(partition) if topic is not None else None
        if there is not None and there.replicated is not None:
            if there.replicated.own.replica != replica:
                raise Refused(f"another replica of {there.label} is here")
            return
        file = ReplicaFile(replica_id=replica_id(replica), identity=clustered.identity, state=state)
        if topic is None:
            self._host_first(clustered, partition, file)
        elif not topic.store.kept:
            self._host_again(topic, partition, file)
        else:
            self._host_more(topic, partition, file)
        self._files.note_made(clustered.name)

    def _host_first(self, clustered: TopicFile, partition: int, file: ReplicaFile) -> None:
        (log,) = self._files.make(clustered, (partition,), _new_replica(file))
        own = ReplicaFileStore(self._context.disk, log.path, file)
        self.add(self._broker.make_known(clustered, {partition: log}, {partition: own}))

    def _host_again(self, topic: Topic, partition: int, file: ReplicaFile) -> None:
        """Host a topic whose clients are still connected."""
        (log,) = self._files.make(topic.file(), (partition,), _new_replica(file))
        topic.store.kept = True
        try:
            topic.make_known(self._files.topics_path)
        except StorageError:
            topic.store.kept = False
            log.close()
            self._files.remove_unmade(topic.name)
            raise
        self._take_in(topic, partition, log, file)

    def _host_more(self, topic: Topic, partition: int, file: ReplicaFile) -> None:
        path = directories.partition_directory(topic.directory, partition)
        if self._context.disk.is_directory(path):
            self._aside.move(path, f"{topic.name}-{partition}")
        (log,) = self._files.add(topic.file(), (partition,), _new_replica(file))
        self._take_in(topic, partition, log, file)

    def _take_in(self, topic: Topic, partition: int, log: PartitionLog, file: ReplicaFile) -> None:
        own = ReplicaFileStore(self._context.disk, log.path, file)
        topic.take_in(Replica(topic, partition, log, own=own))
        self.add(topic)

    def add(self, topic: Topic) -> None:
        renew_outboxes(topic, self.forwarding)
        for replica in topic.replicas.values():
            replicated = replica.replicated
            if replicated is not None and replicated.target not in self._replicas:
                self._replicas[replicated.target] = replicated
                self._wake(replicated)
                for node in self._linked:
                    replicated.assignment.linked(node)

    def release(self, target: Target, stays: bool = False) -> str:
        """Move the directory of a replica aside, and return the new path. Raises StorageError when
        that failed; it is released all the same. `stays`: the topic stays, with its clients, even
        without its last replica: publishes are forwarded. Otherwise it was deleted."""
        replicated = self._replicas.pop(target)
        replica, topic = replicated.replica, replicated.topic
        if not stays:  # while it is led
            self._broker.ended.add(topic.name, topic.identity, topic.ends())
        replicated.let_go("the replica was released")
        self._to_turn.pop(replicated, None)
        self._awake.pop(replicated, None)
        del topic.replicas[replica.number]
        replica.close()
        self._context.health.forget(replica.label)  # its troubles went with it
        topic.refresh_refusal()
        aside = f"{topic.name}-{replica.number}-{replicated.own.file.replica_id}"
        try:
            return self._aside.move(replica.path, aside, ASIDE_KEPT_NS if stays else 0)
        finally:
            if not topic.replicas:
                for one in [one for one in self._set_aside if one.identity == target.identity]:
                    self.discard(topic.name, one.partition)
                self._context.health.forget(topic.name)
                if stays:  # nothing is written: the disk may be full
                    self._keep_in_memory(topic)
                    self._files.remove(topic.name)
                else:
                    self._broker.remove_topic(topic)

    def forget(self, identity: str) -> None:
        """Of a deleted topic, whose identity never comes again. Its replicas may have moved."""
        self._started.pop(identity, None)
        for number in range(limits.PARTITIONS_MAX):
            self.replication.epoch_ledger.forget(ReplicaKey(identity, number))

    def discard(self, topic: str, partition: int | None = None) -> str:
        """Move an unreadable replica, or (None) a topic with an unreadable file, out of the way.
        Returns the new path. Raises StorageError, and then it stays."""
        path, name = self._files.path(topic), topic
        if partition is None:
            moved_to = self._aside.move(path, name)
            del self._context.set_aside[topic]
        else:
            path, name = directories.partition_directory(path, partition), f"{topic}/{partition}"
            moved_to = self._aside.move(path, f"{topic}-{partition}")
            identity = identity_number(self._topics[topic].identity)
            del self._set_aside[Target(identity, partition)]
        self._context.health.forget(name)
        return moved_to

    # --- topics without a replica here ---

    def remote_topic(self, name: str) -> Topic | None:
        """A topic of the cluster without a replica here: all publishes to it are forwarded. It
        exists in memory only. None: the cluster has no topic of the name."""
        metadata = self.metadata
        file = metadata.file(name) if metadata is not None else None
        if metadata is None or file is None or name in self._context.set_aside:
            return None
        topic = self._broker.add_topic(self._files.path(name), file, {})
        self._keep_in_memory(topic)
        adopt_channels(topic, metadata.channels(name))
        return topic

    def _keep_in_memory(self, topic: Topic) -> None:
        topic.store.kept = False
        renew_outboxes(topic, self.forwarding)

    def leave_remote(self, name: str, identity: str = "") -> None:
        """It was deleted, or is not the topic of this identity."""
        topic = self._topics.get(name)
        if (
            topic is not None
            and topic.replicated
            and not topic.replicas
            and topic.identity != identity
        ):
            self._broker.drop_topic(topic, made=False)

    # --- metadata ---

    def adopt_topic(self, clustered: TopicFile) -> None:
        """Settings, and how many partitions there are. Raises NotFound and StorageError."""
        topic = self.topic(clustered)
        adopt(topic, clustered)
        for replica in topic.replicas.values():
            if replica.replicated is not None:
                self._wake(replica.replicated)
        renew_outboxes(topic, self.forwarding)

    def adopt_channels(
        self,
        clustered: TopicFile,
        channels: Sequence[ClusterChannel],
        started: Started | None = None,
    ) -> None:
        """Take over all durable channels of a topic: new ones begin, others are removed. `started`
        is called when the in-sync set of a partition that this node leads has the start of a
        channel, now or later; once in each leadership. Raises NotFound and StorageError."""
        topic = self.topic(clustered)
        if started is not None:
            self._started[clustered.identity] = started
        adopt_channels(topic, channels)
        for replica in topic.replicas.values():
            if replica.replicated is not None:
                self.confirm_starts(replica.replicated)

    def confirm_starts(self, replicated: ReplicatedPartition) -> None:
        started = self._started.get(replicated.topic.identity)
        if started is not None:
            replicated.confirm_starts(started)

    # --- input ---

    def assign(
        self,
        target: Target,
        revision: int,
        record: PartitionRecord,
        restorations: int = 0,
        remembered: Callable[[], bytes] | None = None,
    ) -> None:
        """`restorations`: of the metadata as a whole; each of them restarts the revisions.
        `remembered`: the memory of the record for the next start, stored before the record takes
        effect."""
        replicated = self._replicas.get(target)
        if replicated is None or not replicated.assignment.is_news(revision, restorations):
            return
        act = partial(self._assign, target, revision, record, restorations)
        if remembered is not None:
            self.replication.epoch_ledger.remember(replicated.key, remembered(), act)
        else:
            act()

    def _assign(
        self, target: Target, revision: int, record: PartitionRecord, restorations: int
    ) -> None:
        replicated = self._replicas.get(target)  # it may have been released meanwhile
        if replicated is not None:
            replicated.assignment.assign(revision, record, restorations)
            self._came(replicated)

    def linked(self, node: int) -> None:
        self._linked[node] = None
        for replicated in self._replicas.values():
            replicated.assignment.linked(node)
            self._came(replicated)

    def unlinked(self, node: int) -> None:
        self._linked.pop(node, None)
        self.forwarding.unlinked(node)
        for replicated in self._replicas.values():
            replicated.assignment.unlinked(node)
            self._came(replicated)

    def receive(self, node: int, target: Target, frame: Frame) -> None:
        """A frame for a missing replica is dropped: its leader begins again."""
        if isinstance(frame, SendBatch | BatchAnswered):
            self.forwarding.receive(node, target, frame)
            return
        replicated = self._replicas.get(target)
        if replicated is None:
            return
        self._wake(replicated)
        if not isinstance(frame, STEADY_FRAMES):
            replicated.receive(node, frame)
        elif replicated.receive_steady(node, frame):
            return
        self._look(replicated)

    def worked(self, target: Target) -> None:
        """The machine of its leadership has news: carry out its effects."""
        replicated = self._replicas.get(target)
        if replicated is not None and replicated.leadership is not None:
            replicated.leadership.moved()
            self._came(replicated)

    def _came(self, replicated: ReplicatedPartition) -> None:
        self._wake(replicated)
        self._look(replicated)

    def _wake(self, replicated: ReplicatedPartition) -> None:
        self._awake[replicated] = self._round + limits.REPLICA_AWAKE_ROUNDS

    def _look(self, replicated: ReplicatedPartition) -> None:
        replicated.refresh()
        if replicated.assignment.restless:
            self._to_turn[replicated] = None

    def mark_due(self, replicated: ReplicatedPartition) -> None:
        self._to_turn[replicated] = None

    @property
    def is_due(self) -> bool:
        return bool(self._to_turn or self._leadership_changes)

    # --- time ---

    def turn(self) -> None:
        """At the end of a turn: epochs are made durable, and ended leaderships are cleared."""
        self.replication.epoch_ledger.flush()
        due, self._to_turn = self._to_turn, {}
        for replicated in due:
            replicated.assignment.turn()
            self._look(replicated)

    def tick(self, mono_ns: int) -> None:
        """Update the authority of the leaderships at this time."""
        self.replication.catch_up.tick(mono_ns)
        self.forwarding.tick(mono_ns)
        for replicated in self._due(mono_ns):
            replicated.tick(mono_ns)
        self._settle_some(self.wall_ns())
        self.announce_committed()

    def announce_committed(self) -> None:
        """Tell followers the committed end where no append has carried it."""
        for replicated in self._awake:
            if replicated.leadership is not None:
                replicated.leadership.announce_committed()

    def _due(self, mono_ns: int) -> Iterable[ReplicatedPartition]:
        """All leaderships; or, while every node has answered so lately that none of them can lose
        its authority before its turn comes, a tenth of them and those that do not serve yet.
        Resting ones are left out then: their authority depends on these answers alone."""
        known = tuple(self._linked)
        answered_ns = self.replication.evidence.from_all(known)
        is_steady = known == self._ticked and answered_ns > mono_ns - AUTHORITY_NS // 2
        self._ticked = known
        if not is_steady:
            return list(self._led_here.values())
        self._tick_number += 1
        self._starting = {target: one for target, one in self._starting.items() if one.led is None}
        if self._in_turn is None:
            self._in_turn = list(self._led_here.items())
        looked_at = self._in_turn[self._tick_number % 10 :: 10]
        due = dict.fromkeys(self._starting.values())
        return due | {one: None for machine, one in looked_at if machine.out or not machine.rests}

    def settle(self, wall_ns: int, sync_logs: bool, sync_journals: bool) -> None:
        """Call about once a second: visits replicas with recent news or running work, and a few of
        the resting ones in turn. All of them while the disk refuses writes. With thousands of them
        awake, as after the return of a node, a pass is done in slices, in the ticks that follow:
        meanwhile etcd's lease has to be kept."""
        self._round += 1
        self._aside.settle(bool(self._context.disk_refusal))
        logs, journals = self._syncs
        self._syncs = logs, journals = logs or sync_logs, journals or sync_journals
        if not self._unsettled:
            every = 1 if self._context.health.failing else limits.REPLICA_REST_ROUNDS
            resting = list(self._replicas.values())[self._round % every :: every]
            self._unsettled.extend((one, logs, journals) for one in self._awake)
            self._unsettled.extend((one, True, True) for one in resting if one not in self._awake)
            self._syncs = False, False
        self._settle_some(wall_ns)
        trouble = self.replication.epoch_ledger.trouble
        reason = trouble and f"no leadership can begin or be followed: {trouble}"
        self._context.health.show("", Trouble.LEDGER, reason)

    def _settle_some(self, wall_ns: int) -> None:
        mono_ns = self._context.clock.mono_ns
        until_ns = mono_ns() + limits.REPLICA_SETTLE_NS
        while self._unsettled and mono_ns() < until_ns:
            replicated, logs, journals = self._unsettled.popleft()
            if self._replicas.get(replicated.target) is not replicated:
                continue  # it was released meanwhile
            replicated.settle(wall_ns, logs, journals)
            if self._awake.get(replicated, self._round) < self._round and replicated.is_settled:
                del self._awake[replicated]

    # --- leaderships ---

    def note_leadership(
        self, replicated: ReplicatedPartition, machine: PartitionLeader, began: bool
    ) -> None:
        target = replicated.target
        self._leadership_changes.append(LeadershipChange(target, machine, began))
        self._in_turn = None
        if began:
            self._led_here[machine] = self._starting[target] = replicated
        else:
            self._led_here.pop(machine, None)
            self._starting.pop(target, None)

    @property
    def awake(self) -> Iterable[ReplicatedPartition]:
        return self._awake

    def take_leadership_changes(self) -> list[LeadershipChange]:
        """Leaderships that began (elected, not serving yet) or ended since the last call."""
        taken, self._leadership_changes = self._leadership_changes, []
        return taken

    def leader(self, target: Target) -> Leader | None:
        replicated = self._replicas.get(target)
        return replicated.replica.led if replicated is not None else None

    # --- publishes for other nodes, and from them ---

    def is_linked(self, node: int) -> bool:
        return node in self._linked

    def led(self, topic: str, partition: int | None = None) -> Sequence[Led]:
        return self.metadata.led(topic, partition) if self.metadata is not None else ()

    def lack(self, topic: str, partition: int) -> str:
        return self.metadata.lack(topic, partition) if self.metadata is not None else ""

    # --- the end ---

    def close(self) -> None:
        """Call before the logs are closed."""
        self.replication.epoch_ledger.close()
        for replicated in self._replicas.values():
            replicated.close()

    def validate(self) -> None:
        for target, replicated in self._replicas.items():
            if target != replicated.target or target.identity != identity_number(
                replicated.key.identity
            ):
                raise RuntimeError(f"{replicated.replica.label} is listed as {target}")
            replicated.validate()


def _new_replica(file: ReplicaFile) -> dict[str, bytes]:
    """The files beside its log, which are to be there before anything is written to that."""
    return {names.REPLICA: encode_replica(file), names.PRODUCERS: encode_table(0, {})}
