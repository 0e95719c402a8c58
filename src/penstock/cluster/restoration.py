"""The plan to restore metadata that went back, from the memories of the nodes, without I/O.

A coordinator that was restored from a backup gives out old records. The nodes have frozen what they
know better (`view`), and each keeps the last record of a partition on whose basis it acted, on its
disk before it acts. A newer record than one is made by a member of that, or by a member that its
leader took in, and it takes in wanted replicas only. So when all nodes that the newest remembered
record names, as members or as wanted, have reported, no newer one was ever acted upon.

| of a partition | then |
|---|---|
| the newest that is remembered stands there | it is kept |
| what stands there is older, or gone | the newest that is remembered is put there |
| what stands there is newer: no node has acted on it | it is kept |
| two records of one epoch name two leaders | it is left: one of them belongs to something else |
| a node that the newest names has not reported | it is left: it may remember a newer one |
| its topic was deleted, or made again, in the coordinator | it is left: nothing is made again |

Channels are a part of what a topic is: one that was made since the backup has cursors, and one that
was deleted since must not come back.

| of a channel of a topic that stands, or is put back | then |
|---|---|
| a node remembers a higher number, or it is gone | what is remembered is put there |
| the same number, as it was changed or deleted later | the same |
| else | what stands there is kept |
| the topic's last number | it is raised above all that is remembered: none is used again |

Any node that was up to date has seen all channels, so no other one is waited for.

Newer is the higher epoch, then the later restoration, then the higher revision: revisions of before
and after a restoration don't compare. What is left stays frozen. An operator may name nodes as
`lost` for good: then they are not waited for, and what only they remembered is given up.

The transactions go one after the other, and each compares what was read. The last one counts the
restoration, which is what unfreezes the nodes: they follow when everything is there.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from penstock.cluster import keys
from penstock.cluster.coordinator import Compare, KeyValue, Operation, Put, RevisionIs, Transaction
from penstock.cluster.documents import (
    CHANNEL,
    CHANNEL_NUMBERS,
    CLUSTER,
    FORMS,
    RECORD,
    TOPIC,
    Channel,
    ChannelNumbers,
    Cluster,
    Topic,
)
from penstock.cluster.json_form import Form
from penstock.cluster.keys import ChannelName, PartitionName
from penstock.cluster.view import Remembered, Versioned, revision_of, versioned
from penstock.errors import Refused
from penstock.limits import TRANSACTION_KEYS_MAX
from penstock.replication.record import PartitionRecord

_LISTED = keys.PARTITIONS, keys.TOPICS, keys.CHANNELS, keys.NUMBERS  # as in `CoordinatorState`
_OLDEST = (-1, -1, -1)


class Memory(NamedTuple):
    """The memory of one node. `records`: each with the revision at which the node saw it."""

    node: int
    remembered: Remembered
    records: Mapping[PartitionName, Versioned[PartitionRecord]]
    topics: Mapping[str, Topic]
    channels: Mapping[ChannelName, Versioned[Channel]] = {}


class CoordinatorState(NamedTuple):
    """The contents of the coordinator, as listed."""

    cluster: Versioned[Cluster] | None
    records: Mapping[PartitionName, Versioned[PartitionRecord]]
    topics: Mapping[str, Versioned[Topic]]
    channels: Mapping[ChannelName, Versioned[Channel]] = {}
    numbers: Mapping[str, Versioned[ChannelNumbers]] = {}


def standing_of(entries: Iterable[KeyValue]) -> CoordinatorState:
    """Raises DocumentBroken."""
    cluster: Versioned[Cluster] | None = None
    tables: dict[str, dict[Any, Versioned[Any]]] = {prefix: {} for prefix in _LISTED}
    for entry in entries:
        if entry.key == keys.CLUSTER:
            cluster = versioned(CLUSTER, entry)
        for prefix, rows in tables.items():
            if entry.key.startswith(prefix):
                form, name_of = FORMS[prefix]
                rows[name_of(entry.key)] = versioned(form, entry)
    return CoordinatorState(cluster, *tables.values())


class Restoration(NamedTuple):
    put: Mapping[PartitionName, PartitionRecord]
    topics: Mapping[str, Topic]  # those that are gone
    kept: tuple[PartitionName, ...]
    left: Mapping[PartitionName, str]  # and why
    channels: Mapping[ChannelName, Channel]
    transactions: tuple[Transaction, ...]


class _Known(NamedTuple):
    record: PartitionRecord
    restorations: int
    revision: int

    @property
    def age(self) -> tuple[int, int, int]:
        return self.record.epoch, self.restorations, self.revision


def restoration(
    standing: CoordinatorState, memories: Collection[Memory], lost: Collection[int] = ()
) -> Restoration:
    """Raises Refused when the nodes remember different clusters, or nothing."""
    uuid = _one_cluster(standing, memories)
    put: dict[PartitionName, PartitionRecord] = {}
    kept: list[PartitionName] = []
    left: dict[PartitionName, str] = {}
    reported = {memory.node for memory in memories} | set(lost)
    for name, known in sorted(_known(memories).items()):
        newest = max(known, key=lambda one: one.age)
        there = standing.records.get(name)
        reason = _reason_to_leave(standing.topics.get(name.topic), known, newest, reported)
        if reason:
            left[name] = reason
        elif there is not None and _stands(there, newest):
            kept.append(name)
        elif there is not None and _contradicts(there.document, newest.record):
            left[name] = f"epoch {newest.record.epoch} has two leaders, one in the coordinator"
        else:
            put[name] = newest.record
    topics = _missing_topics(standing, memories, put)
    have_settings = standing.topics.keys() | topics.keys()
    for name in [name for name in put if name.topic not in have_settings]:
        left[name] = "no node knows the settings of its topic"
        del put[name]
    identities = _identities_after(standing, topics)
    channels = _channels(standing, memories, identities)
    changes = [
        *(_change(keys.topic(name), TOPIC, one, None) for name, one in sorted(topics.items())),
        *(
            _change(keys.partition(*name), RECORD, one, standing.records.get(name))
            for name, one in sorted(put.items())
        ),
        *(
            _change(keys.channel(*name), CHANNEL, one, standing.channels.get(name))
            for name, one in sorted(channels.items())
        ),
        *_number_changes(standing, memories, identities),
    ]
    cluster = _counted(standing, memories, uuid)
    transactions = tuple(_transactions(standing, changes, cluster))
    return Restoration(put, topics, tuple(kept), left, channels, transactions)


def _one_cluster(standing: CoordinatorState, memories: Iterable[Memory]) -> int:
    uuids = {memory.remembered.uuid for memory in memories} - {0}
    if standing.cluster is not None:
        uuids.add(standing.cluster.document.uuid)
    if len(uuids) != 1:
        found = ", ".join(f"{uuid:032x}" for uuid in sorted(uuids)) or "none"
        raise Refused(f"nodes and coordinator have to be of one cluster: {found}")
    return uuids.pop()


def _known(memories: Iterable[Memory]) -> dict[PartitionName, list[_Known]]:
    found: dict[PartitionName, list[_Known]] = {}
    for memory in memories:
        for name, held in memory.records.items():
            known = _Known(held.document, memory.remembered.restorations, held.revision)
            found.setdefault(name, []).append(known)
    return found


def _reason_to_leave(
    topic: Versioned[Topic] | None, known: list[_Known], newest: _Known, reported: Collection[int]
) -> str:
    """Why the record is left out; empty: it is restored."""
    record = newest.record
    if topic is not None and topic.document.deleted:
        return "its topic is deleted"
    if topic is not None and topic.document.identity != record.identity:
        return "its topic was made again"
    if any(one.record.identity != record.identity for one in known):
        return "nodes remember two topics of this name"
    if any(_contradicts(one.record, record) for one in known):
        return f"epoch {record.epoch} has two leaders"
    silent = sorted(record.replica_nodes - set(reported))
    if silent:
        nodes = ", ".join(str(node) for node in silent)
        how = "start them, and give the HTTP addresses of all nodes"
        return f"nodes {nodes} have not reported, and may know of later changes: {how}"
    return ""


def _contradicts(one: PartitionRecord, other: PartitionRecord) -> bool:
    """An epoch has one leader; a resignation is no contradiction."""
    both = one.leader is not None and other.leader is not None
    return one.epoch == other.epoch and both and one.leader != other.leader


def _stands(there: Versioned[PartitionRecord], newest: _Known) -> bool:
    """The record is the remembered one, or newer."""
    if there.document == newest.record or there.document.epoch > newest.record.epoch:
        return True
    same = there.document.epoch == newest.record.epoch
    is_newer = there.revision > newest.revision
    return same and is_newer and not _contradicts(there.document, newest.record)


def _missing_topics(
    standing: CoordinatorState,
    memories: Iterable[Memory],
    put: Mapping[PartitionName, PartitionRecord],
) -> dict[str, Topic]:
    """From the node that has seen the latest revision."""
    found: dict[str, Topic] = {}
    wanted = {name.topic: record.identity for name, record in put.items()}
    order = sorted(memories, key=lambda one: (one.remembered.restorations, one.remembered.revision))
    for memory in order:
        for name, topic in memory.topics.items():
            is_it = wanted.get(name) == topic.identity and not topic.deleted
            if is_it and name not in standing.topics:
                found[name] = topic
    return found


def _counted(standing: CoordinatorState, memories: Iterable[Memory], uuid: int) -> Cluster:
    counts = [memory.remembered.restorations for memory in memories]
    if standing.cluster is None:
        return Cluster(uuid, restorations=max(counts, default=0) + 1)
    cluster = standing.cluster.document
    return cluster._replace(restorations=max([cluster.restorations, *counts]) + 1)


def _identities_after(standing: CoordinatorState, topics: Mapping[str, Topic]) -> dict[str, int]:
    """Of the topics after the restoration."""
    there = {name: held.document for name, held in standing.topics.items()} | dict(topics)
    return {name: topic.identity for name, topic in there.items() if not topic.deleted}


def _channels(
    standing: CoordinatorState, memories: Iterable[Memory], identities: Mapping[str, int]
) -> dict[ChannelName, Channel]:
    """Channels that are missing or went back."""
    restorations = standing.cluster.document.restorations if standing.cluster is not None else 0
    ages: dict[ChannelName, tuple[int, int, int]] = {}  # number, restorations, revision
    for name, there in standing.channels.items():
        if identities.get(name.topic) == there.document.identity:
            ages[name] = there.document.number, restorations, there.revision
    put: dict[ChannelName, Channel] = {}
    for memory in memories:
        for name, held in memory.channels.items():
            channel = held.document
            age = channel.number, memory.remembered.restorations, held.revision
            if identities.get(name.topic) == channel.identity and ages.get(name, _OLDEST) < age:
                ages[name], put[name] = age, channel
    stand = {name: there.document for name, there in standing.channels.items()}
    return {name: channel for name, channel in put.items() if stand.get(name) != channel}


Change = tuple[Compare, Operation]


def _change(key: str, form: Form[Any], document: Any, there: Versioned[Any] | None) -> Change:
    return RevisionIs(key, revision_of(there)), Put(key, form.encode(document))


def _number_changes(
    standing: CoordinatorState, memories: Iterable[Memory], identities: Mapping[str, int]
) -> Iterable[Change]:
    highest: dict[str, int] = {}
    for memory in memories:
        for name, held in memory.channels.items():
            if identities.get(name.topic) == held.document.identity:
                highest[name.topic] = max(highest.get(name.topic, 0), held.document.number)
    for topic, last in sorted(highest.items()):
        there, numbers = standing.numbers.get(topic), ChannelNumbers(identities[topic], last)
        same = there is not None and there.document.identity == numbers.identity
        if there is None or not same or there.document.last < last:
            yield _change(keys.numbers(topic), CHANNEL_NUMBERS, numbers, there)


def _transactions(
    standing: CoordinatorState, changes: list[Change], cluster: Cluster
) -> Iterable[Transaction]:
    """Each transaction compares the key of the cluster, too: two restorations do not mix."""
    once = RevisionIs(keys.CLUSTER, revision_of(standing.cluster))
    for at in range(0, len(changes), TRANSACTION_KEYS_MAX):
        some = changes[at : at + TRANSACTION_KEYS_MAX]
        compares, operations = zip(*some, strict=True)
        yield Transaction((once, *compares), operations)
    yield Transaction((once,), (Put(keys.CLUSTER, CLUSTER.encode(cluster)),))
