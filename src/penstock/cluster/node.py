"""A broker that has joined a cluster: what the metadata says becomes replicas, channels and roles.

| the view shows | here |
|---|---|
| a record that lists or wants this node | a replica, made when it is not there |
| a record that neither lists nor wants it any more | the replica is moved aside |
| the record of a replica that is here | assigned to it: its role follows |
| a record without the replica that is here, stopped or corrupt | moved aside, another is copied |
| a topic's settings, or one more partition | adopted |
| a topic's tombstone | all its replicas here are moved aside; then this is confirmed there |
| channels | adopted: new ones begin, others go |

What clients make, change and delete here goes to the coordinator first (`client_changes`). Leaders
are asked where a channel starts (`channel_starts`).

**An empty directory.** A record of the first epoch above its topic's floor, never changed since it
was made, has had no leader: nothing was ever stored, and its members begin with the replica ids of
the record, in sync. In any other record, one that was put back from a backup too, an id that has no
directory here is one that was lost. The replica is made with a new id and copied; its leader leaves
the lost one out (`replica.record`).

**Order.** The coordinator's answers, links and frames come at any time, and each is passed on at
once. `tick` draws conclusions ten times a second, `turn` ends what a turn of the node has begun:
leaderships that began or ended are reported, and what was proposed goes out. Rows and their
acknowledgements begin nothing of that, so most turns of a busy node need none. Nothing here is
called from within a turn of the kernel.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from penstock.broker.broker import Broker
from penstock.broker.ports import Peers
from penstock.broker.replicas.assignment import Stopped
from penstock.broker.replicas.context import Membership as BrokerMembership
from penstock.broker.replicas.log_view import LogView
from penstock.broker.replicas.replica_host import STEADY_FRAMES, ReplicaHost
from penstock.broker.replicas.replicated_partition import ReplicatedPartition
from penstock.cluster import keys
from penstock.cluster.channel_creation import ChannelCreations, CreationDeps
from penstock.cluster.channel_starts import StartRequests
from penstock.cluster.client_changes import ClientChanges, MetadataChanges
from penstock.cluster.coordinator import Coordinator, Settled
from penstock.cluster.creation import confirmation
from penstock.cluster.documents import Channel, Membership, Node, Topic
from penstock.cluster.elections import Local
from penstock.cluster.keys import ChannelName, PartitionName
from penstock.cluster.metadata_topics import (
    cluster_channel,
    cluster_topic,
    identity_text,
    target_for,
)
from penstock.cluster.participant import Message, Participant, Renewed, StartAsked, StartHeld
from penstock.cluster.topic_changes import TopicChanges, TopicDeps
from penstock.cluster.view import Change, Held, Remembered, encode_remembered
from penstock.errors import DocumentBroken, NotFound, Refused, StorageError
from penstock.limits import (
    COORDINATOR_RETRY_NS,
    FULL_DISK_NS,
    MS,
    PEER_HEARTBEAT_NS,
    REPLICA_GREET_NS,
    REPLICA_RENEWED_NS,
    REPLICA_TIMEOUT_NS,
)
from penstock.log.ledger import Ledger
from penstock.log.replica_file import State
from penstock.replication.authority import Isolation
from penstock.replication.effects import Hello, Propose
from penstock.replication.frames import Frame, Target
from penstock.replication.record import Member, Record

_log = logging.getLogger("penstock.cluster")
LOOK_NS_MAX = 50 * MS
CORRUPT_ROUNDS = 10  # a look at all replicas for corrupt ones, of looks at those in use
_COPIED_AGAIN = "%s is copied again: what could not be read was moved to %s"
Say = Callable[[int, Message], None]
Records = dict[PartitionName, Held[Record]]
Channels = dict[ChannelName, Held[Channel]]


class ClusterNode:
    """`say` sends a message to a node; `new_replica` draws a random id of a replica."""

    def __init__(
        self,
        broker: Broker,
        own: int,
        membership: Membership,
        describe: Callable[[], Node],
        coordinator: Coordinator,
        peers: Peers,
        ledger: Ledger,
        say: Say,
        new_replica: Callable[[], int],
        mono_ns: int,
        remembered: Remembered | None = None,
        records: Mapping[PartitionName, Held[Record]] | None = None,
        isolation: Isolation = Isolation(),  # noqa: B008
        replica_timeout_ns: int = REPLICA_TIMEOUT_NS,
    ) -> None:
        self.own = own
        self.broker = broker
        self.participant = Participant(
            own, membership, describe, coordinator, self._local, self._assign, mono_ns,
            remembered or Remembered(), records, self._noticed, replica_timeout_ns,
        )  # fmt: skip
        self.replica_host: ReplicaHost = broker.join(
            BrokerMembership(
                own, membership.incarnation, membership.generation, ledger, peers, self,
                self.participant.proposals.heard, isolation,
            )
        )  # fmt: skip
        self.began_count = 0  # leaderships of this node, since its start
        self.troubles: dict[str, str] = {}  # what could not be done, by key of the metadata
        self._coordinator = coordinator
        self._say = say
        self._new_replica = new_replica
        self._now_ns = mono_ns
        self._is_due = True  # `turn` has something to do
        self._names: dict[Target, PartitionName] = {}
        self._targets: dict[PartitionName, Target] = {}
        self._busy: dict[
            PartitionName, int
        ] = {}  # leaderships with a row in flight: committed then
        self._look_until_ns = self._rest_until_ns = 0
        self._adopted: dict[str, tuple[object, ...]] = {}  # the shape in which each topic is here
        self._due: dict[str, None] = {}  # topics to be looked at, once the view is whole
        self._greet_due_ns = self._corrupt_due_ns = self._full_until_ns = 0
        self._renewed_ns: dict[PartitionName, int] = {}  # when a stopped replica was given up
        self._corrupt_round = 0
        self._corrupt: set[PartitionName] = set()  # here, as far as is known
        self._failed: set[PartitionName] = set()  # of those: it can acknowledge nothing
        self._unreadable: set[PartitionName] = set()  # set aside, and commits count on them
        self._gone: dict[str, int] = {}  # deleted topics that are to be confirmed, and when
        self._asked = StartRequests(self._holds_start, self._answer_start)
        view, has = self.participant.view, self._has_channel
        deps = CreationDeps(view, coordinator, self._ask_start, has, self.replica_host.wall_ns)
        self._channel_creations = ChannelCreations(deps, mono_ns)
        self._changes = MetadataChanges(view, coordinator, mono_ns)
        topics = TopicDeps(view, coordinator, self._is_true, new_replica, self.replica_host.wall_ns)
        self._topics = TopicChanges(topics, mono_ns)
        self.replica_host.metadata = ClientChanges(
            view, self._topics, self._channel_creations, self._changes, has, self._is_true
        )

    # --- what the view shows ---

    def _noticed(self, change: Change) -> None:
        key = change.key
        if key.startswith(keys.TOPICS):
            self._due[key.removeprefix(keys.TOPICS)] = None
        elif key.startswith(keys.CHANNELS):
            self._due[keys.channel_of(key).topic] = None

    def _assign(self, name: PartitionName, held: Held[Record] | None) -> None:
        self._due[name.topic] = None

    def look(self) -> None:
        """Make true what the view shows. What fails is tried again with the next look. While only a
        part of a list is taken in, a record may stand beside an older topic: a leadership that
        began then would deliver from one that is paused, or was deleted. Making replicas takes
        syncs: what is not done in LOOK_NS_MAX is left to the next look, after as long a rest."""
        mono_ns = self.broker.context.clock.mono_ns
        begun_ns = mono_ns()
        if self.participant.view.is_pending or not self._due or begun_ns < self._rest_until_ns:
            return
        due, self._due = self._due, {}
        shown = self._shown(due)
        self._look_until_ns = begun_ns + LOOK_NS_MAX
        for name in due:
            if self._is_late():
                self._due[name] = None
                continue
            try:
                self._look_at(name, *shown[name])
            except (StorageError, Refused, DocumentBroken) as error:
                self._due[name] = None
                if self.troubles.get(name) != str(error):
                    self.troubles[name] = str(error)
                    _log.warning("topic %s: %s", name, error)
            else:
                self.troubles.pop(name, None)
        if self._due:
            self._rest_until_ns = 2 * mono_ns() - begun_ns

    def _is_late(self) -> bool:
        return self.broker.context.clock.mono_ns() >= self._look_until_ns

    def _shown(self, due: Iterable[str]) -> dict[str, tuple[Records, Channels]]:
        """Of these topics, in one pass: after a list all of them are due at once."""
        view = self.participant.view
        found: dict[str, tuple[Records, Channels]] = {name: ({}, {}) for name in due}
        for name, record in view.partitions.items():
            if name.topic in found:
                found[name.topic][0][name] = record
        for channel, held in view.channels.items():
            if channel.topic in found:
                found[channel.topic][1][channel] = held
        return found

    def _look_at(self, name: str, records: Records, channels: Channels) -> None:
        held = self.participant.view.topics.get(name)
        if held is None:
            return  # absence deletes nothing
        topic = held.document
        self._release_others(name, topic)
        if topic.deleted:
            self._gone.setdefault(name, self._now_ns)
            self._adopted.pop(name, None)
            return
        current = {
            one: record
            for one, record in sorted(records.items())
            if record.document.identity == topic.identity
        }
        self._discard_unreadable(name, current)
        for one, record in current.items():
            if self._is_late():
                self._due[name] = None
                break
            self._place(one, record, topic, len(current))
        shape = self._shape(held, current, channels)
        if self._adopted.get(name) != shape and self._adopt(name, topic, len(current), channels):
            self._adopted[name] = shape
        restorations = self.participant.view.restorations
        for one, record in current.items():
            if one in self._targets:
                self.replica_host.assign(
                    self._targets[one], record.revision, record.document, restorations,
                    partial(encode_remembered, one, record),
                )  # fmt: skip

    def _shape(self, held: Held[Topic], records: Records, channels: Channels) -> tuple[object, ...]:
        """All that `_adopt` depends on: it writes files, and most changes are of a leader or of an
        in-sync set."""
        return (
            self.participant.view.restorations,
            held.revision,
            {channel: one.revision for channel, one in channels.items()},
            [self.replicated(name) for name in records],
        )

    def _discard_unreadable(self, topic: str, records: Records) -> None:
        """What was set aside at the start is copied again once no commit counts on it: the leader
        leaves it out after a while, unless there would be too few."""
        is_whole = topic in self.broker.context.set_aside
        known = {name for name in self._unreadable if name.topic == topic}
        listed, discarded = set[PartitionName](), []
        for name, held in records.items():
            record = held.document
            if is_whole or self.replica_host.is_set_aside(target_for(record.identity, name.number)):
                is_listed = record.member_on(self.own) is not None
                listed.add(name) if is_listed else discarded.append(name)
        self._unreadable = self._unreadable - known | listed
        if is_whole and discarded and not listed:
            _log.warning(_COPIED_AGAIN, topic, self.replica_host.discard(topic))
        for name in () if is_whole else discarded:
            place = self.replica_host.discard(topic, name.number)
            _log.warning(_COPIED_AGAIN, f"{topic}/{name.number}", place)
        if known != listed:
            self._corrupt_due_ns = self._corrupt_round = 0  # the leaders should know

    def _release_others(self, name: str, topic: Topic) -> None:
        """What is here of a topic that was deleted, or of an earlier one of the name. A node that
        was down meanwhile has found it on its disk."""
        identity = target_for(topic.identity, 0).identity
        self.replica_host.leave_remote(name, "" if topic.deleted else identity_text(topic.identity))
        for target in self.replica_host.targets_of(name):
            if topic.deleted or target.identity != identity:
                self._release(PartitionName(name, target.partition), target)

    def _confirm_deletions(self) -> None:
        """Nothing of these topics is here any more. The view shows when that was written."""
        for name, due_ns in tuple(self._gone.items()):
            wanted = confirmation(self.participant.view, name, self.own)
            if wanted is None:
                del self._gone[name]
            elif due_ns <= self._now_ns:
                self._gone[name] = self._now_ns + COORDINATOR_RETRY_NS
                self._coordinator.transact(wanted, _seen_by_view)

    def _place(
        self, name: PartitionName, held: Held[Record], topic: Topic, partitions: int
    ) -> None:
        """A replica is made here, found here, or moved aside."""
        record = held.document
        target = target_for(record.identity, name.number)
        entry = record.member_on(self.own)
        replicated = self.replica_host.replica(target)
        if entry is None and self.own not in record.wanted:
            if replicated is not None:
                self._release(name, target)
            return
        if self.replica_host.is_set_aside(target):
            return  # reported: commits count on it, and the other partitions are served
        if replicated is not None and self._is_given_up(name, replicated, entry):
            self._give_up(name, target, replicated)
            replicated = None
            if record.leader is not None:
                self._say(record.leader.node, Renewed(name))
        if replicated is None:
            is_new = self._is_new(name.topic, held)
            replica = entry.replica if is_new and entry is not None else self._new_replica()
            placed = cluster_topic(name.topic, topic, partitions)
            state: State = "in_sync" if is_new and entry is not None else "copying"
            self.replica_host.host(placed, name.number, replica, state)
        self._targets[name], self._names[target] = target, name
        self._corrupt_round = 0  # it may have been corrupt since the start, and rest by now

    def _is_given_up(
        self, name: PartitionName, replicated: ReplicatedPartition, entry: Member | None
    ) -> bool:
        """It is stopped, and the set in force does without it: it is copied again, as another
        replica. Its disk may fail again, so that is done seldom."""
        if entry is not None and entry.replica == replicated.own.replica:
            return False
        renewed_ns = self._renewed_ns.get(name)
        is_due = renewed_ns is None or self._now_ns - renewed_ns >= REPLICA_RENEWED_NS
        return is_due and isinstance(replicated.assignment.role, Stopped)

    def _give_up(
        self, name: PartitionName, target: Target, replicated: ReplicatedPartition
    ) -> None:
        self._renewed_ns[name] = self._now_ns
        reason = replicated.own.file.reason
        place = self.replica_host.release(target)
        self._corrupt_due_ns = self._corrupt_round = 0
        _log.warning("%s/%d is copied again: %s; what it had was moved to %s", *name, reason, place)

    def _is_new(self, topic: str, held: Held[Record]) -> bool:
        """The partition has had no leader yet, so that nothing was ever stored in it."""
        record, floor = held.document, self.participant.view.epochs.get(topic)
        if floor is None or held.revision != held.created or record.leader is not None:
            return False
        return record.epoch == floor.document.epoch + 1

    def _adopt(self, name: str, topic: Topic, partitions: int, known: Channels) -> bool:
        """False: no partition of it is here."""
        placed = cluster_topic(name, topic, partitions)
        channels = [
            cluster_channel(one.channel, held)
            for one, held in sorted(known.items())
            if not held.document.deleted and held.document.identity == topic.identity
        ]
        try:
            self.replica_host.adopt_topic(placed)
        except NotFound:
            return False
        held = partial(self._start_held, name, topic.identity)
        self.replica_host.adopt_channels(placed.identity, channels, held)
        return True

    def _release(self, name: PartitionName, target: Target) -> None:
        replicated = self.replica_host.replica(target)
        place = self.replica_host.release(target)
        _log.warning("%s/%d is not wanted here any more: moved to %s", *name, place)
        self._report()  # its leadership is over
        held = self.participant.view.topics.get(name.topic)
        is_over = held is not None and held.document.deleted
        if replicated is not None and is_over:
            self.replica_host.replication.epoch_ledger.forget(replicated.key)
        if self._names.pop(target, None) is not None:
            del self._targets[name]

    def replicated(self, name: PartitionName) -> ReplicatedPartition | None:
        """This node's replica of a partition that is placed here."""
        target = self._targets.get(name)
        return self.replica_host.replica(target) if target is not None else None

    def _local(self, name: PartitionName) -> Local | None:
        replicated = self.replicated(name)
        if replicated is None:
            return None
        assignment = replicated.assignment
        waits = replicated.topic.effective.durability == "disk"
        stopped = isinstance(assignment.role, Stopped)
        extent = LogView(replicated.replica.log).extent()
        return Local(
            replicated.own.replica, stopped, waits, extent, assignment.leadership is not None
        )

    # --- what clients change ---

    def _is_true(self, topic: str) -> bool:
        """Nothing is left to do here of what the view shows of it."""
        return topic not in self._due

    def _has_channel(self, name: ChannelName, number: int) -> bool:
        """Where no partition of its topic is, there is nothing to have."""
        topic = self.broker.topics.get(name.topic)
        if topic is None and self._is_true(name.topic):
            held = self.participant.view.channels.get(name)
            found = held.document if held is not None and not held.document.deleted else None
            return found is not None and found.number == number
        channel = topic.channels.get(name.channel) if topic is not None else None
        return channel is not None and channel.number == number

    def _ask_start(self, node: int, asked: StartAsked) -> None:
        if node == self.own:
            self._asked.ask(node, asked, self._now_ns)
        else:
            self._say(node, asked)

    def _answer_start(self, node: int, held: StartHeld) -> None:
        if node == self.own:
            self._channel_creations.heard(held)
        else:
            self._say(node, held)

    def _holds_start(self, name: PartitionName, identity: int, channel: int) -> bool | None:
        target = target_for(identity, name.number)
        replicated = self.replica_host.replica(target)
        if replicated is None or replicated.leadership is None or replicated.leadership.line.over:
            return None
        return channel in replicated.held_starts

    def _start_held(self, topic: str, identity: int, partition: int, channel: int) -> None:
        self._asked.held(PartitionName(topic, partition), identity, channel)

    # --- what the leaderships want of the coordinator ---

    def propose(self, target: Target, proposal: Propose) -> None:
        self._is_due = True
        replicated, name = self.replica_host.replica(target), self._names.get(target)
        if name is not None and replicated is not None and replicated.leadership is not None:
            self.participant.proposals.propose(name, replicated.leadership.line, proposal)

    def read(self, target: Target) -> None:
        self._is_due = True
        name = self._names.get(target)
        if name is not None:
            self.participant.proposals.read(name)

    # --- links ---

    def linked(self, node: int, incarnation: int) -> None:
        self.participant.linked(node, incarnation)
        self.replica_host.linked(node)
        self.turn()

    def unlinked(self, node: int) -> None:
        self.participant.unlinked(node)
        self.replica_host.unlinked(node)
        self.turn()

    def refused(self, node: int, incarnation: int) -> None:
        """A connection of this node to that life of another one."""
        self.participant.refused(node, incarnation)
        self._speak()

    def receive(self, node: int, target: Target, frame: Frame) -> None:
        self.replica_host.receive(node, target, frame)
        if type(frame) in STEADY_FRAMES:
            return
        self._is_due = True
        if isinstance(frame, Hello):
            self._note_hello(node, target, frame)

    def _note_hello(self, node: int, target: Target, hello: Hello) -> None:
        """A leader that is followed is leading."""
        replicated, name = self.replica_host.replica(target), self._names.get(target)
        follower = replicated.assignment.follower if replicated is not None else None
        if name is not None and follower is not None and follower.leader == node:
            self.participant.proposals.elections.in_force(name, hello.epoch)

    def hear(self, node: int, message: Message) -> None:
        self._is_due = True
        match message:
            case Renewed(name):
                self._greet(node, name)
            case StartAsked():
                self._asked.ask(node, message, self._now_ns)
            case StartHeld():
                self._channel_creations.heard(message)
            case _:
                self.participant.receive(node, message)
        self._speak()

    def _greet(self, node: int, name: PartitionName) -> None:
        replicated = self.replicated(name)
        if replicated is not None and replicated.leadership is not None:
            replicated.leadership.linked(node)

    # --- time ---

    def tick(self, mono_ns: int) -> None:
        """Some ten times a second."""
        self._now_ns = mono_ns
        self.participant.wall_ns = self.replica_host.wall_ns()
        self.participant.look(mono_ns)
        self._note_revision()
        self.look()
        self.participant.conclude(mono_ns)
        self._confirm_deletions()
        for name in self.participant.take_moved():
            target = self._targets.get(name)
            if target is not None:
                self.replica_host.worked(target)
        self.replica_host.tick(mono_ns)
        self._asked.tick(mono_ns)
        self._topics.tick(mono_ns)
        self._channel_creations.tick(mono_ns)
        self._changes.tick(mono_ns)
        self._note_corrupt()
        self._note_commits()
        self._greet_again()
        self.turn()

    @property
    def is_due(self) -> bool:
        """Something has come since the last turn that is no publish, or a client waits."""
        return self._is_due or self.replica_host.is_stirred or self._is_waited_for

    @property
    def _is_waited_for(self) -> bool:
        return (
            self._channel_creations.is_waiting
            or self._asked.is_waiting
            or self._topics.are_waited_for
        )

    def turn(self) -> None:
        """At the end of a turn of the node in which it is due; each tick ends with one."""
        self._is_due = False
        if self._is_waited_for:
            self._hurry()
        self.replica_host.turn()
        self._report()
        self.participant.flush()
        self._speak()

    def _hurry(self) -> None:
        """A client waits for a topic or channel: what has come of the metadata is looked at before
        the next tick. Conclusions are left to that."""
        self.participant.look(self._now_ns)
        self._note_revision()
        self.look()
        self._topics.tick(self._now_ns)
        self._channel_creations.tick(self._now_ns)

    def _note_revision(self) -> None:
        """Before anything is done that follows from it."""
        view, ledger = self.participant.view, self.replica_host.replication.epoch_ledger
        ledger.note_revision(view.revision_seen, view.restorations)

    def _note_corrupt(self) -> None:
        if self._now_ns < self._corrupt_due_ns:
            return
        self._corrupt_due_ns = self._now_ns + 2 * PEER_HEARTBEAT_NS
        if self.broker.context.disk_refusal:
            self._full_until_ns = self._now_ns + FULL_DISK_NS
        is_full = self._now_ns < self._full_until_ns
        if is_full or self._corrupt or self._corrupt_round % CORRUPT_ROUNDS == 0:
            names: Iterable[PartitionName] = tuple(self._targets)
        else:
            awake = (self._names.get(one.target) for one in self.replica_host.awake)
            names = [name for name in awake if name in self._targets]
        self._corrupt_round += 1
        self._corrupt, self._failed = set(self._unreadable), set(self._unreadable)
        for name in names:
            self._judge(name, is_full)
        self.participant.found_corrupt(frozenset(self._corrupt), frozenset(self._failed))

    def _judge(self, name: PartitionName, is_full: bool) -> None:
        replicated = self.replica_host.replica(self._targets[name])
        if replicated is None:
            return
        # A learner that stops changes no record, and a member may do so after it was let go.
        if isinstance(replicated.assignment.role, Stopped):
            self._due[name.topic] = None
        if replicated.assignment.has_failed:
            self._failed.add(name)
        if is_full or replicated.assignment.has_failed or len(replicated.replica.log.damage):
            self._corrupt.add(name)

    def _report(self) -> None:
        proposals = self.participant.proposals
        for change in self.replica_host.take_leadership_changes():
            name = self._names[change.target]
            if change.began:
                self.began_count += 1
                change.line.confirmed(self._now_ns)
                proposals.leadership_began(name, change.line)
            else:
                self._busy.pop(name, None)
                proposals.leadership_ended(name)

    def _note_commits(self) -> None:
        """A leadership that commits nothing while a row waits is noticed by time."""
        members, waiting = self.participant.proposals.members, []
        for name, line in members.lines.items():
            committed = self._busy.get(name)
            if line.end == line.committed:
                if committed is not None:
                    del self._busy[name]
                    members.committed(name)
            elif committed is None or committed < line.committed:
                self._busy[name] = line.committed
                members.wrote(name, self._now_ns)
            else:
                waiting.append(name)
        members.waited(waiting)

    def _greet_again(self) -> None:
        """A node that was greeted before it had the replica has dropped the greeting."""
        if self._now_ns < self._greet_due_ns:
            return
        self._greet_due_ns = self._now_ns + REPLICA_GREET_NS
        for name, line in self.participant.proposals.members.lines.items():
            silent = [node for node, peer in line.peers.items() if not peer.replica]
            for node in silent:
                self._greet(node, name)

    def _speak(self) -> None:
        out, self.participant.out = self.participant.out, []
        for node, message in out:
            self._say(node, message)

    # --- for people ---

    def validate(self) -> None:
        for name, target in self._targets.items():
            if self._names.get(target) != name:
                raise RuntimeError(f"{name} is listed as {self._names.get(target)}")
        self.replica_host.validate()


def _seen_by_view(settled: Settled) -> None:
    """What was done comes through the view, and what was not is tried again."""
