"""A topic of a cluster: its metadata, and leaderships that begin and end while its clients are
connected.

| | |
|---|---|
| the metadata | settings, partitions and channels follow it; `topic.json` bridges a start |
| a leadership begins | a tail, windows of all channels from the journal, with their consumers |
| a leadership ends | the windows go, then the tail; messages in flight are sent again elsewhere |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.channels.channel import NOT_KEPT, Channel
from penstock.limits import PARTITIONS_MAX

if TYPE_CHECKING:
    from penstock.broker.partition.appends import PublishDone
    from penstock.broker.partition.leader import Leader
    from penstock.broker.topics.topic import Topic
    from penstock.broker.topics.topic_file import ChannelEntry, TopicFile
    from penstock.errors import PenstockError


class ClusterChannel(NamedTuple):
    """A channel of the metadata. `partitions_then`: the number of partitions at its creation."""

    entry: ChannelEntry
    partitions_then: int = PARTITIONS_MAX


def adopt(topic: Topic, file: TopicFile) -> None:
    """Take over the metadata of the topic. Raises StorageError, and then nothing has changed."""
    before = topic.file()
    _set(topic, file)
    topic.store_or(lambda: _set(topic, before), changed=topic.file() != before)
    topic.prepare_route()
    topic.update_handing()
    topic.store_cursors()
    topic.reshaped()


def _set(topic: Topic, file: TopicFile) -> None:
    topic.settings, topic.paused = file.settings, file.paused
    is_rehashed = topic.hash_partitions != file.hash_count
    topic.partition_count, topic.hash_partitions = file.partitions, file.hash_count
    topic.producer_partitions = file.producer_partitions or 0
    for outbox in topic.outboxes.values() if is_rehashed else ():
        outbox.rehashed()
    topic.extended = file.extended is True


def adopt_channels(topic: Topic, found: Sequence[ClusterChannel]) -> None:
    """Take over all durable channels. Raises StorageError: then the next start may find the old
    ones."""
    before = topic.file()
    numbers = {entry.name: entry.number for entry, _ in found}
    for channel in list(topic.channels.values()):
        if channel.number not in (NOT_KEPT, numbers.get(channel.name)):
            del topic.channels[channel.name]
            channel.deleted = True
            topic.let_go(channel)
    for entry, partitions_then in found:
        _adopt_channel(topic, entry, partitions_then)
    topic.update_handing()
    topic.store_cursors()
    topic.store_or(topic.touch, changed=topic.file() != before)


def _adopt_channel(topic: Topic, entry: ChannelEntry, partitions_then: int) -> None:
    known = topic.channels.get(entry.name)
    channel = known or Channel(topic, entry.name, entry.number, entry.created_ns)
    channel.partitions_then, channel.paused = partitions_then, entry.paused
    channel.adopt(entry.settings)
    channel.skips.follow(entry)
    channel.refresh_held()
    channel.refresh_trace()
    if known is None:
        topic.add_channel(channel)


def begin_leadership(topic: Topic, leader: Leader) -> None:
    """It leads a partition from now on. Raises StorageError: then the leadership has to end."""
    topic.prepare_route()
    kept = [channel for channel in topic.channels.values() if channel.number != NOT_KEPT]
    topic.begin(leader, kept, topic.paused or not kept)
    topic.reshaped()


def end_leadership(topic: Topic, leader: Leader) -> None:
    """It leads no more. Its consumers cannot finish their messages in flight any more."""
    topic.silent.discard(leader.number)
    for channel in topic.channels.values():
        if leader.number in channel.windows:
            leader.drop_window(channel)
            channel.detach(leader.number)
    leader.leave()


def when_held(leaders: Sequence[Leader], done: PublishDone) -> None:
    """Called once the in-sync sets of these partitions have the present contents of their journals;
    with ChangeUnknown when a leadership ends earlier, or has ended. On a single node at once.
    Callers that change something take the leaders before, so that a lost leadership is noticed."""
    waiting, failures = len(leaders), list["PenstockError"]()

    def held(error: PenstockError | None) -> None:
        nonlocal waiting
        waiting -= 1
        if error is not None:
            failures.append(error)
        if not waiting:
            done(failures[0] if failures else None)

    for leader in leaders:
        leader.store_cursors()  # what turns have changed may still gather
        leader.when_held(held)
    if not leaders:
        done(None)
