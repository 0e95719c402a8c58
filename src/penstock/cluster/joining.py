"""A node that was by itself joins a cluster with the topics that it has: the plan of one topic.

The usual installation of NSQ has a topic of the same name on every nsqd, and each has messages of
its own. So they are united, and none of them is moved or lost:

| the cluster has | then |
|---|---|
| no topic of this name, or a deleted one that all confirmed | it is the node's, with its numbers |
| a topic of this name | the node's partitions become further ones of it, behind those there are |
| a record that names one of these replicas already | that partition has joined: nothing |
| a topic that is being deleted, or too many partitions | Refused |

| of the topic | is kept |
|---|---|
| identity, settings, paused, partitions that keys are spread over | the cluster's |
| a channel of both | the cluster's number and settings; the node's cursor |
| a channel of the node alone | it is made: other partitions begin it as a new one |
| a channel of the cluster alone | in the node's partitions it begins at the end of their logs |

The last line: what those logs hold was for the channels that the node had, and is finished.

Channels come before partitions, for a partition must not be led without the cursors of its own
channels. A transaction changes TRANSACTION_KEYS_MAX keys at most, so a plan may take several; each
is made from the view that the one before has led to, and the last has none. A record's epoch is
above all that the log has and above the floor of the topic's name (S5). The one member is the
node's replica; the controller makes the others. Who has joined writes that down, and does not ask
again: a replica that was moved away later would look as if it had not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.cluster import keys
from penstock.cluster.coordinator import Compare, Operation, Put, RevisionIs, Transaction
from penstock.cluster.creation import unconfirmed
from penstock.cluster.documents import CHANNEL, RECORD, TOPIC, Channel, Settings, Topic
from penstock.cluster.keys import ChannelName, PartitionName
from penstock.cluster.starts import CHANNEL_NUMBERS, ChannelNumbers
from penstock.cluster.view import Held, View
from penstock.errors import Refused
from penstock.limits import PARTITIONS_MAX, TRANSACTION_KEYS_MAX
from penstock.replica.record import Member, Record


class OwnPartition(NamedTuple):
    replica: int
    epoch: int  # the highest in its log


class OwnChannel(NamedTuple):
    paused: bool
    settings: Settings


class OwnTopic(NamedTuple):
    """As the node has it. `partitions`: by their numbers there."""

    name: str
    topic: Topic
    partitions: tuple[OwnPartition, ...]
    channels: Mapping[str, OwnChannel]


class Joining(NamedTuple):
    """`transaction`: the next one; None: the topic has joined."""

    transaction: Transaction | None
    identity: int
    partitions: tuple[int, ...]  # the cluster's number of each of the node's
    channels: Mapping[str, int]  # the cluster's numbers, of those that are there or being made
    begun: tuple[str, ...]  # channels that begin at the end of the node's logs
    overruled: tuple[str, ...]  # settings of the node that the cluster has otherwise


def joining(view: View, node: int, own: OwnTopic, numbers: Held[ChannelNumbers] | None) -> Joining:
    """`numbers`: what stands under the topic's `numbers/`. Raises Refused."""
    held = view.topics.get(own.name)
    if held is not None and held.document.deleted:
        if unconfirmed(view, own.name):
            raise Refused(f"topic {own.name} is being deleted")
        topic = own.topic
    else:
        topic = own.topic if held is None else held.document
    partitions = _numbers_of(view, node, own)
    channels = _channels(view, own, topic, numbers)
    return Joining(
        _transaction(view, node, own, topic, partitions, channels, numbers),
        topic.identity,
        partitions,
        channels,
        tuple(sorted(set(_there(view, own.name)) - set(own.channels))),
        _overruled(own.topic.settings, topic.settings),
    )


def _there(view: View, topic: str) -> dict[str, Held[Channel]]:
    return {
        key.channel: held
        for key, held in view.channels.items()
        if key.topic == topic and not held.document.deleted
    }


def _numbers_of(view: View, node: int, own: OwnTopic) -> tuple[int, ...]:
    """Those that have joined keep theirs; the rest come behind all that there are."""
    there = {
        key.number: held.document for key, held in view.partitions.items() if key.topic == own.name
    }
    joined = {
        member.replica: number
        for number, record in there.items()
        for member in record.members
        if member.node == node
    }
    following = max(there, default=-1) + 1
    found: list[int] = []
    for partition in own.partitions:
        number = joined.get(partition.replica)
        if number is None:
            number, following = following, following + 1
        found.append(number)
    if following > PARTITIONS_MAX:
        raise Refused(f"topic {own.name} would have {following} partitions: {PARTITIONS_MAX} max")
    return tuple(found)


def _channels(
    view: View, own: OwnTopic, topic: Topic, numbers: Held[ChannelNumbers] | None
) -> dict[str, int]:
    there = _there(view, own.name)
    found = {name: held.document.number for name, held in there.items()}
    last = 0
    if numbers is not None and numbers.document.identity == topic.identity:
        last = numbers.document.last
    for name in sorted(set(own.channels) - set(there)):
        last += 1
        found[name] = last
    return found


def _overruled(own: Settings, theirs: Settings) -> tuple[str, ...]:
    has = dict(theirs)
    return tuple(name for name, value in own if has.get(name, value) != value)


def _transaction(
    view: View,
    node: int,
    own: OwnTopic,
    topic: Topic,
    partitions: tuple[int, ...],
    channels: Mapping[str, int],
    numbers: Held[ChannelNumbers] | None,
) -> Transaction | None:
    held = view.topics.get(own.name)
    topic_key = keys.topic(own.name)
    compares: list[Compare] = [RevisionIs(topic_key, held.revision if held is not None else 0)]
    puts: list[Operation] = []
    if held is None or held.document.deleted:
        puts.append(Put(topic_key, TOPIC.encode(topic)))
    room = TRANSACTION_KEYS_MAX - 2  # the topic and the numbers of its channels
    changes = _channel_changes(view, own, topic, channels)
    changes = changes[:room]
    if changes:
        key = keys.numbers(own.name)
        compares.append(RevisionIs(key, numbers.revision if numbers is not None else 0))
        last = ChannelNumbers(topic.identity, max(channels[name] for name, _, _ in changes))
        puts.append(Put(key, CHANNEL_NUMBERS.encode(last)))
    records = _record_changes(view, node, own, topic, partitions)[: room - len(changes)]
    if records:
        floor = view.epochs.get(own.name)
        compares.append(RevisionIs(keys.epochs(own.name), floor.revision if floor else 0))
        compares.append(RevisionIs(keys.member(node), view.memberships[node].revision))
    for compare, put in [*((one, two) for _, one, two in changes), *records]:
        compares.append(compare)
        puts.append(put)
    return Transaction(tuple(compares), tuple(puts)) if puts else None


def _channel_changes(
    view: View, own: OwnTopic, topic: Topic, channels: Mapping[str, int]
) -> list[tuple[str, Compare, Operation]]:
    there = _there(view, own.name)
    changes: list[tuple[str, Compare, Operation]] = []
    for name in sorted(set(own.channels) - set(there)):
        key = keys.channel(own.name, name)
        tombstone = view.channels.get(ChannelName(own.name, name))
        paused, settings = own.channels[name]
        made = Channel(topic.identity, channels[name], paused, settings, False)
        compare = RevisionIs(key, tombstone.revision if tombstone is not None else 0)
        changes.append((name, compare, Put(key, CHANNEL.encode(made))))
    return changes


def _record_changes(
    view: View, node: int, own: OwnTopic, topic: Topic, partitions: tuple[int, ...]
) -> list[tuple[Compare, Operation]]:
    floor = view.epochs.get(own.name)
    generation = view.memberships[node].document.generation
    changes: list[tuple[Compare, Operation]] = []
    for partition, number in zip(own.partitions, partitions, strict=True):
        if PartitionName(own.name, number) in view.partitions:
            continue
        epoch = max(partition.epoch, floor.document.epoch if floor is not None else 0) + 1
        member = Member(node, partition.replica, generation)
        record = Record(topic.identity, epoch, None, (member,), 1, (node,))
        key = keys.partition(own.name, number)
        changes.append((RevisionIs(key, 0), Put(key, RECORD.encode(record))))
    return changes
