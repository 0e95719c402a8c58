"""What clients and operators ask this node to change of topics and channels: the broker's way into
the metadata (`broker.changes`), over `topic_changes`, `channel_creation` and `MetadataChanges`.

A document of the metadata that a client of this node changes: a pause, a setting, a deletion.

| the coordinator says | then |
|---|---|
| done | the client is answered when this node's view has it, and it has come true here |
| refused: it was changed meanwhile | the same with what stands there; no change left: done |
| unknown | the same again after a while; whether it was done shows in the next answer |
| nothing for CHANNEL_CONFIRM_NS | the client hears that it is not known |

A change is a function of the document, so that two nodes that are asked for different changes at
once both get theirs. It raises NotFound when the document is another thing by now: a topic or
channel that was deleted and made again has another identity or number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from penstock.broker.changes import PAUSED, skip_settings
from penstock.broker.channels.skips import Skipped, skipped_of
from penstock.broker.ports import Led, MetadataDone, NewTopic
from penstock.broker.topics.topic_file import TopicFile
from penstock.cluster import keys
from penstock.cluster.channel_creation import ChannelCreations
from penstock.cluster.coordinator import (
    Coordinator,
    KeyValue,
    Put,
    RevisionIs,
    Settled,
    Transaction,
)
from penstock.cluster.documents import CHANNEL, TOPIC, Channel, Topic
from penstock.cluster.json_form import Form
from penstock.cluster.keys import ChannelName, PartitionName
from penstock.cluster.metadata_topics import (
    changed_settings,
    channel_entry,
    cluster_topic,
    target_for,
)
from penstock.cluster.topic_changes import TopicChanges, partitions_of
from penstock.cluster.view import View
from penstock.errors import ChangeUnknown, DocumentBroken, NotFound, PenstockError
from penstock.limits import CHANNEL_CONFIRM_NS, COORDINATOR_RETRY_NS
from penstock.replication.leader import Outcome


class ClientChanges:
    """`has_channel`: is the channel of this number here? `has_come_true`: is nothing left to do of
    what the view shows of a topic?"""

    def __init__(
        self,
        view: View,
        topics: TopicChanges,
        channel_creations: ChannelCreations,
        changes: MetadataChanges,
        has_channel: Callable[[ChannelName, int], bool],
        has_come_true: Callable[[str], bool],
    ) -> None:
        self._view = view
        self._topics = topics
        self._channel_creations = channel_creations
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
        return cluster_topic(topic, held.document, shape.partitions).file()

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
        self._channel_creations.make(topic, channel, done)

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

        wanted = DocumentChange(
            keys.topic(topic), TOPIC, change, partial(self._has_come_true, topic)
        )
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

        wanted = DocumentChange(keys.channel(*name), CHANNEL, change, partial(is_here, number))
        self._changes.change(wanted, held.document, held.revision, done)


def _changed(changes: Mapping[str, Any], found: Any) -> Any:
    """A topic or a channel."""
    paused = changes.get(PAUSED, found.paused)
    rest = {name: value for name, value in changes.items() if name != PAUSED}
    return found._replace(paused=paused, settings=changed_settings(found.settings, rest))


class DocumentChange(NamedTuple):
    key: str
    form: Form[Any]
    change: Callable[[Any], Any]  # of the document, or of None; raises NotFound
    is_here: Callable[[], bool]  # has it come true?


class _Change:
    """On its way. `revision`: at which it is in force; 0: it is not known to be."""

    __slots__ = ("again", "again_ns", "deadline_ns", "done", "revision", "wanted")

    def __init__(self, wanted: DocumentChange, deadline_ns: int, done: MetadataDone) -> None:
        self.wanted = wanted
        self.deadline_ns = deadline_ns
        self.done = done
        self.revision = 0
        self.again: Callable[[], None] | None = None
        self.again_ns = 0


class MetadataChanges:
    def __init__(self, view: View, coordinator: Coordinator, now_ns: int) -> None:
        self._view = view
        self._coordinator = coordinator
        self._now_ns = now_ns
        self._changes: list[_Change] = []

    def change(
        self, wanted: DocumentChange, document: Any, revision: int, done: MetadataDone
    ) -> None:
        """`document`: as the view has it, at that revision."""
        change = _Change(wanted, self._now_ns + CHANNEL_CONFIRM_NS, done)
        self._changes.append(change)
        self._put(change, document, revision)

    def _put(self, change: _Change, document: Any, revision: int) -> None:
        key, form, act, _ = change.wanted
        try:
            wanted = act(document)
        except (NotFound, DocumentBroken) as error:
            self._end(change, error)
            return
        if wanted == document:
            change.revision = revision
            return
        transaction = Transaction((RevisionIs(key, revision),), (Put(key, form.encode(wanted)),))
        again = partial(self._put, change, document, revision)
        self._coordinator.transact(transaction, partial(self._settled, change, again))

    def _settled(self, change: _Change, again: Callable[[], None], settled: Settled) -> None:
        if settled.outcome is Outcome.DONE:
            change.revision = settled.revision
        elif settled.outcome is Outcome.UNKNOWN:
            change.again, change.again_ns = again, self._now_ns + COORDINATOR_RETRY_NS
        else:
            self._found(change, settled.found)

    def _found(self, change: _Change, found: tuple[KeyValue, ...]) -> None:
        key, form, *_ = change.wanted
        document, revision = None, 0
        if found:
            try:
                document, revision = form.decode(key, found[0].value), found[0].revision
            except DocumentBroken as error:
                self._end(change, error)
                return
        self._put(change, document, revision)

    def tick(self, now_ns: int) -> None:
        """After what the view shows has come true here."""
        self._now_ns = now_ns
        for change in tuple(self._changes):
            self._look(change)

    def _look(self, change: _Change) -> None:
        is_seen = 0 < change.revision <= self._view.revision
        if is_seen and change.wanted.is_here():
            self._end(change, None)
        elif self._now_ns >= change.deadline_ns:
            reason = "it may be changed or not, ask again"
            self._end(change, ChangeUnknown(change.wanted.key, reason))
        elif change.again is not None and change.again_ns <= self._now_ns:
            again, change.again = change.again, None
            again()

    def _end(self, change: _Change, error: PenstockError | None) -> None:
        if change in self._changes:
            self._changes.remove(change)
            change.done(error)
