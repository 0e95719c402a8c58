"""What clients and operators ask this node to change of topics and channels: the broker's way into
the metadata (`broker.changes`), over `channel_creation`, `rehash` and `attempts`.

| wanted | the view shows it when | it is enough when |
|---|---|---|
| a topic | it is led in all partitions, and what is to be of it here is | it is there |
| more partitions | there are that many, and the same holds | there are that many |
| that it goes | there is a tombstone, and nothing else; nothing is here | there is a tombstone |
| a change of a document | it has that revision, and what is to be of it here is | |

A topic with more partitions than go into one transaction gets the others by growth. One that is
made draws another identity with each attempt, and at most one of them is applied: all compare that
there is no topic of the name.

What a deletion leaves in the metadata, the node that was asked for it removes, some of it in each
transaction. If that node ends meanwhile, whoever asks again goes on.

A change of a document (a pause, a setting, a channel's deletion) is a function of it, so that two
nodes that are asked for different changes at once both get theirs: what is refused is drawn from
what stands there then, and where no change is left it is done. A topic or channel that was deleted
and made again meanwhile has another identity or number, and is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.broker.changes import EXTENDED, PAUSED, REPLICAS, skip_settings
from penstock.broker.channels.skips import Skipped, skipped_of
from penstock.broker.ports import Led, MetadataDone, NewTopic
from penstock.broker.replicas.clustered_topic import ClusterChannel
from penstock.broker.topics.settings import AUTO_CREATE_OFF, TopicSettings
from penstock.broker.topics.topic_file import TopicFile
from penstock.cluster import keys
from penstock.cluster.attempts import Attempts, Goal
from penstock.cluster.coordinator import Put, RevisionIs, Transaction
from penstock.cluster.creation import clearance, creation, deletion, growth
from penstock.cluster.documents import ACTIVE, CHANNEL, TOPIC, Channel, Topic
from penstock.cluster.json_form import Form
from penstock.cluster.keys import ChannelName, PartitionName
from penstock.cluster.metadata_topics import (
    CREATED,
    as_settings,
    changed_settings,
    channel_entry,
    cluster_channel,
    cluster_topic,
    target_for,
)
from penstock.cluster.placement import PlacementNode
from penstock.cluster.rehash import Rehashes
from penstock.cluster.view import Versioned, View
from penstock.errors import GrowthRefused, NotFound
from penstock.limits import PARTITIONS_MAX, REPLICAS_DEFAULT


@dataclass(eq=False)
class ClientChanges:
    """`is_here`: has this node applied everything that the view shows of a topic? `has_channel`:
    does it have the channel of this number? `new_id` draws a random number that was never used
    before. `is_missing`: is that node down?"""

    _view: View
    _attempts: Attempts
    _is_here: Callable[[str], bool]
    _new_id: Callable[[], int]
    _wall_ns: Callable[[], int]
    _rehashes: Rehashes
    make_channel: Callable[[str, str, MetadataDone], None]
    _has_channel: Callable[[ChannelName, int], bool]
    _is_missing: Callable[[int], bool]

    # --- topics ---

    def make_topic(self, name: str, new: NewTopic, done: MetadataDone) -> None:
        """`new` is used if the topic does not exist."""
        draw = partial(self._creation, name, new)
        led, there = partial(self._is_led, name), partial(self._is_there, name)
        self._attempts.want(Goal(f"topic {name}", draw, led, there), done)

    def grow_topic(self, name: str, partitions: int, done: MetadataDone) -> None:
        def has_grown() -> bool:
            return self._count(name) >= partitions

        def is_led() -> bool:
            return has_grown() and self._is_led(name)

        have = self._count(name)
        if not have <= partitions <= PARTITIONS_MAX:
            rule = f"it can have {have} to {PARTITIONS_MAX}, as a topic never gets fewer"
            done(GrowthRefused(f"topic {name} has {have} partitions, not {partitions}: {rule}"))
            return
        draw = partial(self._growth, name, partitions)
        what = f"{partitions} partitions of topic {name}"
        self._attempts.want(Goal(what, draw, is_led, has_grown), done)

    def delete_topic(self, name: str, done: MetadataDone) -> None:
        """Deletes the topic of the identity that the view shows."""
        held = self._view.topic(name)
        if held is None:
            done(NotFound("topic", name))
            return
        identity = held.document.identity

        def is_over() -> bool:
            held = self._view.topic(name)
            return held is None or held.document.identity != identity

        def is_gone() -> bool:
            return is_over() and clearance(self._view, name) is None and self._is_here(name)

        def draw() -> Transaction | None:
            return clearance(self._view, name) if is_over() else deletion(self._view, name)

        self._attempts.want(Goal(f"the end of topic {name}", draw, is_gone, is_over), done)

    def is_rehashing(self, topic: str) -> bool:
        return self._rehashes.is_rehashing(topic)

    def rehash_topic(self, topic: str, partitions: int, done: MetadataDone) -> None:
        self._rehashes.rehash(topic, partitions, self.grow_topic, done)

    def _is_there(self, name: str) -> bool:
        return self._view.topic(name) is not None

    def _count(self, name: str) -> int:
        return len(self._view.records_of(name))

    def _is_led(self, name: str) -> bool:
        held, records = self._view.topic(name), self._view.records_of(name)
        if held is None or not self._is_here(name):
            return False
        is_current = len(records) == len(self._view.partitions.of(name))
        is_whole = len(records) >= held.document.hash_partitions  # those it was made with
        return is_whole and is_current and all(one.document.leader for _, one in records)

    def _creation(self, name: str, new: NewTopic) -> Transaction | None:
        held = self._view.topic(name)
        if held is not None:
            return self._growth(name, held.document.hash_partitions)
        like = self._view.topics.get(new.like)
        usual = like.document.replicas if like is not None else REPLICAS_DEFAULT
        chosen = TopicSettings(disable_channel_auto_create=new.registered or None)
        more = {EXTENDED: True} if new.extended else {}
        settings = as_settings(chosen, **{CREATED: self._wall_ns(), **more})
        replicas = new.replicas or usual
        topic = Topic(self._new_id(), replicas, new.partitions, False, settings, False, ())
        return creation(self._view, name, topic, self._placement_nodes(), self._new_id)

    def _growth(self, name: str, partitions: int) -> Transaction | None:
        return growth(self._view, name, partitions, self._placement_nodes(), self._new_id)

    def _placement_nodes(self) -> list[PlacementNode]:
        """Those that take new partitions: they live, and no operator has other plans with them."""
        members = self._view.memberships
        return [
            PlacementNode(number, node.document.zone)
            for number, node in sorted(self._view.nodes.items())
            if number in members and members[number].document.state == ACTIVE
        ]

    # --- contents of the view ---

    def shape(self, name: str) -> NewTopic | None:
        held = self._view.topic(name)
        if held is None:
            return None
        topic = held.document
        settings = dict(topic.settings)
        extended, registered = bool(settings.get(EXTENDED)), bool(settings.get(AUTO_CREATE_OFF))
        count = self._count(name)
        missing = max(topic.hash_partitions - count, 0)
        return NewTopic(count, extended, registered, replicas=topic.replicas, missing=missing)

    def file(self, topic: str) -> TopicFile | None:
        held = self._view.topic(topic)
        return cluster_topic(topic, held.document, self._count(topic)) if held is not None else None

    def channels(self, topic: str) -> Sequence[ClusterChannel]:
        return [cluster_channel(one.channel, held) for one, held in self._view.channels_of(topic)]

    def led(self, topic: str, partition: int | None = None) -> Sequence[Led]:
        if partition is None:
            records = self._view.partitions.of(topic)
        else:
            name = PartitionName(topic, partition)
            records = [(name, one)] if (one := self._view.partitions.get(name)) else []
        return [
            Led(record.leader.node, target_for(record.identity, name.number))
            for name, (record, _, _) in records
            if record.leader is not None
        ]

    def lack(self, topic: str, partition: int) -> str:
        held = self._view.partitions.get(PartitionName(topic, partition))
        if held is None:
            return ""
        nodes, needed = held.document.replica_nodes, held.document.members_min
        down = sorted(filter(self._is_missing, nodes))
        if len(nodes) - len(down) >= needed:
            return ""
        names = ", ".join(f"node {node}" for node in down)
        return f"partition {partition} needs {needed} of its replicas: {names} cannot be reached"

    # --- documents ---

    def change_topic(self, topic: str, changes: Mapping[str, Any], done: MetadataDone) -> None:
        self._change(topic, partial(_changed, changes), partial(self._is_here, topic), done)

    def change_channel(
        self, topic: str, channel: str, changes: Mapping[str, Any], done: MetadataDone
    ) -> None:
        name = ChannelName(topic, channel)
        self._change(name, partial(_changed, changes), partial(self._is_here, topic), done)

    def skip(
        self, topic: str, channel: str, act: Callable[[Skipped], Skipped], done: MetadataDone
    ) -> None:
        def skipped(found: Channel) -> Any:
            before = skipped_of(channel_entry(channel, found))
            return _changed(skip_settings(act(before)), found)

        self._change(ChannelName(topic, channel), skipped, partial(self._is_here, topic), done)

    def delete_channel(self, topic: str, channel: str, done: MetadataDone) -> None:
        name = ChannelName(topic, channel)
        held = self._view.channels.get(name)
        number = held.document.number if held is not None else 0

        def is_gone() -> bool:
            return not self._has_channel(name, number)

        self._change(name, lambda found: found._replace(deleted=True), is_gone, done)

    def _change(
        self,
        name: str | ChannelName,
        act: Callable[[Any], Any],
        is_here: Callable[[], bool],
        done: MetadataDone,
    ) -> None:
        change = _DocumentChange(self._view, name, act, is_here)
        if change.is_missing:
            done(change.missing)
        else:
            self._attempts.want(change.goal(), done, shared=False)


def _changed(changes: Mapping[str, Any], found: Any) -> Any:
    fields = {name: changes[name] for name in (PAUSED, REPLICAS) if name in changes}
    rest = {name: value for name, value in changes.items() if name not in fields}
    return found._replace(**fields, settings=changed_settings(found.settings, rest))


class _DocumentChange:
    """One change of the document of a topic or channel, as a goal."""

    def __init__(
        self,
        view: View,
        name: str | ChannelName,
        act: Callable[[Any], Any],
        is_here: Callable[[], bool],
    ) -> None:
        self._table: Mapping[Any, Versioned[Any]]
        self._form: Form[Any]
        if isinstance(name, ChannelName):
            self._table, self._form = view.channels, CHANNEL
            self._key, self.missing = keys.channel(*name), NotFound("channel", name.channel)
        else:
            self._table, self._form = view.topics, TOPIC
            self._key, self.missing = keys.topic(name), NotFound("topic", name)
        self._view, self._name = view, name
        self._act, self._is_here = act, is_here
        self._revision = 0  # at which the change took effect; 0: unknown
        held = self._held()
        self.is_missing = held is None or held.document.deleted
        self._meant = held.document.instance if held is not None else None

    def _held(self) -> Versioned[Any] | None:
        return self._table.get(self._name)

    def goal(self) -> Goal:
        return Goal(self._key, self._draw, self._is_there, applied=self._applied)

    def _draw(self) -> Transaction | None:
        if self._revision:  # the view does not show it yet
            return None
        self._view.check_intact(self._key)
        held = self._held()
        if held is None or held.document.instance != self._meant:
            raise self.missing
        wanted = held.document if held.document.deleted else self._act(held.document)
        if wanted == held.document:
            self._revision = held.revision
            return None
        change = Put(self._key, self._form.encode(wanted))
        return Transaction((RevisionIs(self._key, held.revision),), (change,))

    def _applied(self, revision: int) -> None:
        self._revision = revision

    def _is_there(self) -> bool:
        return 0 < self._revision <= self._view.revision and self._is_here()
