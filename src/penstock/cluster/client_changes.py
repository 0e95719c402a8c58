"""What clients and operators ask this node to change of topics and channels: the broker's way into
the metadata (`broker.changes`), over `topic_changes`, `channel_creation`, `rehash` and
`attempts`.

A change of a document (a pause, a setting, a deletion) is a function of it, so that two nodes that
are asked for different changes at once both get theirs: what is refused is drawn from what stands
there then, and where no change is left it is done. It is answered when this node's view has it and
it has come true here. The function raises NotFound when the document is another thing by now: a
topic or channel that was deleted and made again has another identity or number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from penstock.broker.changes import PAUSED, REPLICAS, skip_settings
from penstock.broker.channels.skips import Skipped, skipped_of
from penstock.broker.ports import Led, MetadataDone
from penstock.broker.replicas.clustered_topic import ClusterChannel
from penstock.broker.topics.topic_file import TopicFile
from penstock.cluster import keys
from penstock.cluster.attempts import Goal
from penstock.cluster.coordinator import Put, RevisionIs, Transaction
from penstock.cluster.documents import CHANNEL, TOPIC, Channel, Topic
from penstock.cluster.json_form import Form
from penstock.cluster.keys import ChannelName, PartitionName
from penstock.cluster.metadata_topics import (
    changed_settings,
    channel_entry,
    cluster_channel,
    cluster_topic,
    target_for,
)
from penstock.cluster.rehash import Rehashes
from penstock.cluster.topic_changes import TopicChanges
from penstock.cluster.view import Versioned, View, revision_of
from penstock.errors import NotFound


@dataclass(eq=False)
class ClientChanges(TopicChanges):
    """`has_channel`: does this node have the channel of this number? `is_here`: has this node
    applied everything that the view shows of a topic? `is_missing`: is that node down?"""

    _rehashes: Rehashes
    make_channel: Callable[[str, str, MetadataDone], None]
    _has_channel: Callable[[ChannelName, int], bool]
    _is_missing: Callable[[int], bool]

    def file(self, topic: str) -> TopicFile | None:
        held, shape = self._view.topics.get(topic), self.shape(topic)
        if held is None or shape is None:
            return None
        return cluster_topic(topic, held.document, shape.partitions)

    def channels(self, topic: str) -> Sequence[ClusterChannel]:
        live = self._live(topic)
        return [
            cluster_channel(name.channel, held)
            for name, held in self._view.channels.of(topic)
            if live and not held.document.deleted and held.document.identity == live.identity
        ]

    def is_rehashing(self, topic: str) -> bool:
        return self._rehashes.is_rehashing(topic)

    def rehash_topic(self, topic: str, partitions: int, done: MetadataDone) -> None:
        self._rehashes.rehash(topic, partitions, self.grow_topic, done)

    def led(self, topic: str, partition: int | None = None) -> Sequence[Led]:
        held = self._view.partitions.of(topic)
        return [
            Led(record.leader.node, target_for(record.identity, name.number))
            for name, (record, _, _) in held
            if record.leader is not None and partition in (None, name.number)
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

    def delete_channel(self, topic: str, channel: str, done: MetadataDone) -> None:
        name = ChannelName(topic, channel)

        def is_gone(number: int) -> bool:
            return not self._has_channel(name, number)

        self._change_channel(name, lambda found: found._replace(deleted=True), is_gone, done)

    def change_channel(
        self, topic: str, channel: str, changes: Mapping[str, Any], done: MetadataDone
    ) -> None:
        name = ChannelName(topic, channel)
        self._change_channel(name, partial(_changed, changes), self._is_done(topic), done)

    def skip(
        self, topic: str, channel: str, act: Callable[[Skipped], Skipped], done: MetadataDone
    ) -> None:
        def skipped(found: Channel) -> Channel:
            before = skipped_of(channel_entry(channel, found))
            return cast(Channel, _changed(skip_settings(act(before)), found))

        self._change_channel(ChannelName(topic, channel), skipped, self._is_done(topic), done)

    def _is_done(self, topic: str) -> Callable[[int], bool]:
        """Called with a channel's number, which makes no difference here."""
        return lambda _number: self._is_here(topic)

    def change_topic(self, topic: str, changes: Mapping[str, Any], done: MetadataDone) -> None:
        held = self._view.topics.get(topic)
        if held is None or held.document.deleted:
            done(NotFound("topic", topic))
            return
        identity = held.document.identity

        def change(found: Topic | None) -> Any:
            if found is None or found.deleted or found.identity != identity:
                raise NotFound("topic", topic)
            return _changed(changes, found)

        wanted = _DocumentChange(
            self._view, keys.topic(topic), TOPIC, partial(self._view.topics.get, topic), change,
            partial(self._is_here, topic),
        )  # fmt: skip
        self._attempts.want(wanted.goal(), done, shared=False)

    def _change_channel(
        self,
        name: ChannelName,
        act: Callable[[Channel], Any],
        is_here: Callable[[int], bool],
        done: MetadataDone,
    ) -> None:
        held = self._view.channels.get(name)
        if held is None or held.document.deleted:
            done(NotFound("channel", name.channel))
            return
        identity, number, *_ = held.document

        def change(found: Channel | None) -> Any:
            if found is None or (found.identity, found.number) != (identity, number):
                raise NotFound("channel", name.channel)
            return found if found.deleted else act(found)

        wanted = _DocumentChange(
            self._view, keys.channel(*name), CHANNEL, partial(self._view.channels.get, name),
            change, partial(is_here, number),
        )  # fmt: skip
        self._attempts.want(wanted.goal(), done, shared=False)


def _changed(changes: Mapping[str, Any], found: Any) -> Any:
    fields = {name: changes[name] for name in (PAUSED, REPLICAS) if name in changes}
    rest = {name: value for name, value in changes.items() if name not in fields}
    return found._replace(**fields, settings=changed_settings(found.settings, rest))


@dataclass(eq=False)
class _DocumentChange:
    """One change of a document of the view, as a goal. `revision`: the one at which the change took
    effect; 0: unknown."""

    _view: View
    _key: str
    _form: Form[Any]
    _held: Callable[[], Versioned[Any] | None]
    _change: Callable[[Any], Any]
    _is_here: Callable[[], bool]
    _revision: int = 0

    def goal(self) -> Goal:
        return Goal(self._key, self._draw, self._is_there, lambda: False, applied=self._applied)

    def _draw(self) -> Transaction | None:
        if self._revision:  # the view does not show it yet
            return None
        self._view.check_intact(self._key)
        held = self._held()
        document, revision = held.document if held is not None else None, revision_of(held)
        wanted = self._change(document)
        if wanted == document:
            self._revision = revision
            return None
        compares = (RevisionIs(self._key, revision),)
        return Transaction(compares, (Put(self._key, self._form.encode(wanted)),))

    def _applied(self, revision: int) -> None:
        self._revision = revision

    def _is_there(self) -> bool:
        return 0 < self._revision <= self._view.revision and self._is_here()
