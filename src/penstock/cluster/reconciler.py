"""Carries out the metadata on this node: replicas, their roles, topics and channels.

| the view shows | here |
|---|---|
| a record that lists or wants this node | a replica, made when it is not there |
| a record that neither lists nor wants it any more | the replica is moved aside; clients stay |
| the record of a replica that is here | assigned to it: its role follows |
| a record without the replica that is here, stopped or corrupt | moved aside, another is copied |
| a topic's settings, or one more partition | adopted |
| a topic's tombstone | all its replicas here are moved aside; then this is confirmed there |
| channels | adopted: new ones begin, others go |

**No directory is here** for a replica that a record lists. Its id is random, and no commit can do
without it, so it is made with that id, in sync, where it cannot have been here before:

* the partition had no leader yet: its record has the first epoch above the topic's floor, and was
  never changed;
* it was made later than this start of the node, which was late to see it: others elected a leader
  meanwhile. Its topic's floor was written with it, so it was not put back from a backup.

Any other one was lost. The replica is made with a new id and copied, and its leader leaves the lost
one out (`replication.record`).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from penstock.broker.broker import Broker
from penstock.broker.replicas.replica_host import ReplicaHost
from penstock.broker.replicas.replicated_partition import ReplicatedPartition
from penstock.cluster.coordinator import Coordinator, seen_by_view
from penstock.cluster.creation import confirmation
from penstock.cluster.documents import Topic, identity_text
from penstock.cluster.keys import PartitionName
from penstock.cluster.messages import Message, Renewed, StartRequest
from penstock.cluster.metadata_topics import cluster_channel, cluster_topic, target_for
from penstock.cluster.registration import Registration
from penstock.cluster.view import Versioned, View, encode_remembered
from penstock.errors import DocumentBroken, NotFound, Refused, StorageError
from penstock.limits import COORDINATOR_RETRY_NS, MS, REPLICA_RENEWED_NS
from penstock.log.replica_file import State
from penstock.replication.frames import Target
from penstock.replication.record import Member, PartitionRecord

_log = logging.getLogger("penstock.cluster")
LOOK_NS_MAX = 150 * MS
_COPIED_AGAIN = "%s is copied again: what could not be read was moved to %s"
SendMessage = Callable[[int, Message], None]
Records = dict[PartitionName, Versioned[PartitionRecord]]


@dataclass(eq=False)
class Reconciler:
    """`report` receives leaderships that began or ended, before a replica of them is removed.
    `start_held`: the in-sync set of a partition has the start of a channel, as who asks for it
    would name it."""

    own: int
    broker: Broker
    replica_host: ReplicaHost
    view: View
    _coordinator: Coordinator
    _send: SendMessage
    _registration: Registration
    _new_replica: Callable[[], int]
    _report: Callable[[], None]
    _start_held: Callable[[StartRequest], None]

    def __post_init__(self) -> None:
        self.names: dict[Target, PartitionName] = {}
        self.targets: dict[PartitionName, Target] = {}
        self.due: dict[str, None] = {}  # topics to be looked at, once the view is whole
        self.unreadable: set[PartitionName] = set()  # set aside, and commits count on them
        self.unchecked: set[PartitionName] = set()  # to be looked at for what is corrupt
        self.troubles: dict[str, str] = {}  # what could not be done, by topic
        self._now_ns = 0
        self._look_until_ns = self._rest_until_ns = 0
        self._adopted: dict[str, tuple[object, ...]] = {}  # the shape in which each topic is here
        self._renewed_ns: dict[PartitionName, int] = {}  # when a stopped replica was given up
        self._had: set[Target] = set()  # replicas that are or were here, since the start
        self._gone: dict[str, int] = {}  # deleted topics that are to be confirmed, and when

    def look(self, now_ns: int) -> None:
        """Make true what the view shows. What fails is tried again with the next look. While only a
        part of a list is taken in, a record may stand beside an older topic: a leadership that
        began then would deliver from one that is paused, or was deleted. Making replicas takes
        syncs: what is not done in LOOK_NS_MAX is left to the next look, after half such a rest."""
        self._now_ns, mono_ns = now_ns, self.broker.context.clock.mono_ns
        begun_ns = mono_ns()
        if self.view.is_pending or not self.due or begun_ns < self._rest_until_ns:
            return
        due, self.due = self.due, {}
        self._look_until_ns = begun_ns + LOOK_NS_MAX
        for name in due:
            if self._is_late():
                self.due[name] = None
                continue
            try:
                self._look_at(name)
            except (StorageError, Refused, DocumentBroken) as error:
                self.due[name] = None
                if self.troubles.get(name) != str(error):
                    self.troubles[name] = str(error)
                    _log.warning("topic %s: %s", name, error)
            else:
                self.troubles.pop(name, None)
        if self.due:
            ended_ns = mono_ns()
            self._rest_until_ns = ended_ns + (ended_ns - begun_ns) // 2

    def _is_late(self) -> bool:
        return self.broker.context.clock.mono_ns() >= self._look_until_ns

    def _look_at(self, name: str) -> None:
        held = self.view.topics.get(name)
        if held is None:
            return  # absence deletes nothing
        topic = held.document
        identity = target_for(topic.identity, 0).identity
        self._release_others(name, topic, identity)
        if topic.deleted:
            self._gone.setdefault(name, self._now_ns)
            self._adopted.pop(name, None)
            self._had = {one for one in self._had if one.identity != identity}
            self.replica_host.forget(identity_text(topic.identity))
            return
        current = dict(self.view.records_of(name))
        self._discard_unreadable(name, current)
        for one, record in current.items():
            if self._is_late():
                self.due[name] = None
                break
            self._decide(one, record, topic, len(current))
        shape = self._shape(name, held, current)
        if self._adopted.get(name) != shape and self._adopt(name, topic, len(current)):
            self._adopted[name] = shape
        restorations = self.view.restorations
        for one, record in current.items():
            if one in self.targets:
                self.replica_host.assign(
                    self.targets[one], record.revision, record.document, restorations,
                    partial(encode_remembered, one, record),
                )  # fmt: skip

    def _shape(self, name: str, held: Versioned[Topic], records: Records) -> tuple[object, ...]:
        """Everything that `_adopt` depends on: it writes files, and most changes concern a leader
        or an in-sync set."""
        return (
            self.view.restorations,
            held.revision,
            self.view.rehashes.get(name),
            [(channel, one.revision) for channel, one in self.view.channels.of(name)],
            [self.replicated(name) for name in records],
        )

    def _discard_unreadable(self, topic: str, records: Records) -> None:
        """Replicas set aside at the start are copied again once no commit counts on them: the
        leader drops them after a while, unless too few would be left."""
        is_whole = topic in self.broker.context.set_aside
        known = {name for name in self.unreadable if name.topic == topic}
        listed, discarded = set[PartitionName](), []
        for name, held in records.items():
            record = held.document
            if is_whole or self.replica_host.is_set_aside(target_for(record.identity, name.number)):
                is_listed = record.member_on(self.own) is not None
                listed.add(name) if is_listed else discarded.append(name)
        self.unreadable = self.unreadable - known | listed
        if is_whole and discarded and not listed:
            _log.warning(_COPIED_AGAIN, topic, self.replica_host.discard(topic))
        for name in () if is_whole else discarded:
            moved_to = self.replica_host.discard(topic, name.number)
            _log.warning(_COPIED_AGAIN, f"{topic}/{name.number}", moved_to)
        self.unchecked |= known ^ listed  # the leaders should know

    def _release_others(self, name: str, topic: Topic, identity: int) -> None:
        """Replicas of a deleted topic, or of an earlier topic of the name. A node that was down
        meanwhile finds them on its disk."""
        self.replica_host.leave_remote(name, "" if topic.deleted else identity_text(topic.identity))
        for target in self.replica_host.targets_of(name):
            if topic.deleted or target.identity != identity:
                self._release(PartitionName(name, target.partition), target, stays=False)

    def confirm_deletions(self) -> None:
        """This node has no data of these topics any more. The view shows when the confirmation is
        written."""
        for name, due_ns in tuple(self._gone.items()):
            wanted = confirmation(self.view, name, self.own)
            if wanted is None:
                del self._gone[name]
            elif due_ns <= self._now_ns:
                self._gone[name] = self._now_ns + COORDINATOR_RETRY_NS
                self._coordinator.transact(wanted, seen_by_view)

    def _decide(
        self, name: PartitionName, held: Versioned[PartitionRecord], topic: Topic, partitions: int
    ) -> None:
        """Create a replica, keep the one that exists, or move it aside."""
        record = held.document
        target = target_for(record.identity, name.number)
        entry = record.member_on(self.own)
        replicated = self.replica_host.replica(target)
        if entry is None and self.own not in record.wanted:
            if replicated is not None:
                self._release(name, target, stays=True)
            return
        if self.replica_host.is_set_aside(target):
            return  # reported: commits count on it, and the other partitions are served
        if replicated is not None and self._is_given_up(name, replicated, entry):
            self._give_up(name, target, replicated)
            replicated = None
        if replicated is None:
            is_new = self._is_new(name.topic, target, held)
            replica = entry.replica if is_new and entry is not None else self._new_replica()
            clustered = cluster_topic(name.topic, topic, partitions)
            state: State = "in_sync" if is_new and entry is not None else "copying"
            self.replica_host.host(clustered, name.number, replica, state)
            if record.leader is not None:
                self._send(record.leader.node, Renewed(*name))
        self._had.add(target)
        if self.targets.get(name) != target:
            self.targets[name], self.names[target] = target, name
            self.unchecked.add(name)  # it may have been corrupt since the start, and rest by now

    def _is_given_up(
        self, name: PartitionName, replicated: ReplicatedPartition, entry: Member | None
    ) -> bool:
        """The replica is stopped, and the in-sync set does without it: it is copied again as
        another replica. The disk may fail again, so that happens rarely."""
        if entry is not None and entry.replica == replicated.own.replica:
            return False
        renewed_ns = self._renewed_ns.get(name)
        is_due = renewed_ns is None or self._now_ns - renewed_ns >= REPLICA_RENEWED_NS
        return is_due and replicated.assignment.is_stopped

    def _give_up(
        self, name: PartitionName, target: Target, replicated: ReplicatedPartition
    ) -> None:
        self._renewed_ns[name] = self._now_ns
        reason = replicated.own.file.reason
        moved_to = self.replica_host.release(target, stays=True)
        self.unchecked.add(name)
        _log.warning(
            "%s/%d is copied again: %s; its old data was moved to %s", *name, reason, moved_to
        )

    def _is_new(self, topic: str, target: Target, held: Versioned[PartitionRecord]) -> bool:
        """The replica in the record cannot have been on this node before."""
        record, floor = held.document, self.view.epochs.get(topic)
        if floor is None or target in self._had:
            return False
        added_at = (floor.revision, *floor.document.added_at)
        if 0 < self._registration.entered_revision < held.created and held.created in added_at:
            return True
        if held.revision != held.created or record.leader is not None:
            return False
        return record.epoch == floor.document.epoch + 1

    def _adopt(self, name: str, topic: Topic, partitions: int) -> bool:
        """False: this node has no partition of the topic."""
        if not partitions:
            return False
        clustered = cluster_topic(name, topic, partitions)
        known = self.view.channels_of(name)
        channels = [cluster_channel(one.channel, channel) for one, channel in known]
        try:
            self.replica_host.adopt_topic(clustered)
        except NotFound:
            return False

        def held(partition: int, channel: int) -> None:
            self._start_held(StartRequest(name, partition, clustered.identity, channel))

        self.replica_host.adopt_channels(clustered, channels, held)
        return True

    def _release(self, name: PartitionName, target: Target, stays: bool) -> None:
        moved_to = self.replica_host.release(target, stays)
        if stays:
            _log.warning("%s/%d is no longer assigned to this node: moved to %s", *name, moved_to)
        self._report()  # its leadership is over
        if self.names.pop(target, None) is not None:
            del self.targets[name]

    def replicated(self, name: PartitionName) -> ReplicatedPartition | None:
        """This node's replica of a partition placed here."""
        target = self.targets.get(name)
        return self.replica_host.replica(target) if target is not None else None
