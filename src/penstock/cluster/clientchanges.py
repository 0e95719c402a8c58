"""What clients and operators ask this node to change of topics and channels: the broker's way into
the metadata (`broker.changes`), over `topicchanges`, `channelmakings` and `metadatachanges`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from penstock.broker.changes import PAUSED, skip_settings
from penstock.broker.ports import Led, MetadataDone, NewTopic
from penstock.broker.skips import Skipped, skipped_of
from penstock.broker.topicfile import TopicFile
from penstock.cluster import keys
from penstock.cluster.channelmakings import ChannelMakings
from penstock.cluster.documents import CHANNEL, TOPIC, Channel, Topic
from penstock.cluster.keys import ChannelName, PartitionName
from penstock.cluster.metadatachanges import MetadataChanges, Wanted
from penstock.cluster.placed import changed_settings, channel_entry, placed_topic, target_for
from penstock.cluster.topicchanges import TopicChanges, partitions_of
from penstock.cluster.view import View
from penstock.errors import NotFound


class ClientChanges:
    """`has_channel`: is the channel of this number here? `has_come_true`: is nothing left to do of
    what the view shows of a topic?"""

    def __init__(
        self,
        view: View,
        topics: TopicChanges,
        makings: ChannelMakings,
        changes: MetadataChanges,
        has_channel: Callable[[ChannelName, int], bool],
        has_come_true: Callable[[str], bool],
    ) -> None:
        self._view = view
        self._topics = topics
        self._makings = makings
        self._changes = changes
        self._has_channel = has_channel
        self._has_come_true = has_come_true

    def make_topic(self, topic: str, wanted: NewTopic, done: MetadataDone) -> None:
        self._topics.make(topic, wanted, done)

    def grow_topic(self, topic: str, partitions: int, done: MetadataDone) -> None:
        self._topics.grow(topic, partitions, done)

    def delete_topic(self, topic: str, done: MetadataDone) -> None:
        self._topics.delete(topic, done)

    def shape(self, topic: str) -> NewTopic | None:
        return self._topics.shape(topic)

    def file(self, topic: str) -> TopicFile | None:
        held, shape = self._view.topics.get(topic), self.shape(topic)
        if held is None or shape is None:
            return None
        return placed_topic(topic, held.document, shape.partitions).file()

    def led(self, topic: str, partition: int | None = None) -> Sequence[Led]:
        held = partitions_of(self._view, topic)
        if partition is not None:
            name = PartitionName(topic, partition)
            one = self._view.partitions.get(name)
            held = iter([(name, one)] if one is not None else [])
        found = [(name, one.document) for name, one in held]
        return [
            Led(record.leader.node, target_for(record.identity, name.number))
            for name, record in found
            if record.leader is not None
        ]

    def make_channel(self, topic: str, channel: str, done: MetadataDone) -> None:
        self._makings.make(topic, channel, done)

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
        self,
        topic: str,
        channel: str,
        act: Callable[[Skipped], Skipped],
        done: MetadataDone,
    ) -> None:
        def skipped(found: Channel) -> Channel:
            before = skipped_of(channel_entry(channel, found))
            return cast(Channel, _changed(skip_settings(act(before)), found))

        self._change_channel(ChannelName(topic, channel), skipped, self._is_done(topic), done)

    def _is_done(self, topic: str) -> Callable[[int], bool]:
        """Asked with a channel's number, which makes no difference to it."""
        return lambda _number: self._has_come_true(topic)

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

        wanted = Wanted(keys.topic(topic), TOPIC, change, partial(self._has_come_true, topic))
        self._changes.change(wanted, held.document, held.revision, done)

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

        wanted = Wanted(keys.channel(*name), CHANNEL, change, partial(is_here, number))
        self._changes.change(wanted, held.document, held.revision, done)


def _changed(changes: Mapping[str, Any], found: Any) -> Any:
    """A topic or a channel."""
    paused = changes.get(PAUSED, found.paused)
    rest = {name: value for name, value in changes.items() if name != PAUSED}
    return found._replace(paused=paused, settings=changed_settings(found.settings, rest))
