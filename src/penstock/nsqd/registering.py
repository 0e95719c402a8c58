"""What nsqd tells an nsqlookupd of its topics and channels: the commands, without I/O.

An official nsqlookupd takes `REGISTER topic [channel]`. To one that has said in its answer to
IDENTIFY that it knows partitions, nsqd names them as Youzan's does: `REGISTER topic partition
[channel]`. There a channel goes with the topic's first partition: who has the topic has the
channel. `META topic partition_num=8 extend_support=true` says what a topic is like that is no plain
one, or is one again.

Of a cluster's topic a node registers what it leads, and takes back what it does not lead any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.broker.channel import Channel
from penstock.broker.context import Change
from penstock.broker.internal import is_internal
from penstock.broker.topic import Topic

_DELETIONS = (Change.TOPIC_DELETED, Change.CHANNEL_DELETED)


def all_commands(topics: Iterable[Topic], partitions: bool) -> Iterator[str]:
    """`partitions`: the nsqlookupd knows them."""
    for topic in topics:
        if not is_internal(topic.name):
            yield from _split(topic) if partitions else _plain(topic)


def commands_of(
    change: Change, topic: Topic, channel: Channel | None, partitions: bool
) -> list[str]:
    """After a change of one topic."""
    if is_internal(topic.name):
        return []
    if topic.hosted and change not in _DELETIONS:
        return list(_moved(topic, partitions))
    if change is Change.TOPIC_RESHAPED and not partitions:
        return []
    verb = "UNREGISTER" if change in _DELETIONS else "REGISTER"
    if channel is not None:
        if not partitions:
            return [f"{verb} {topic.name} {channel.name}"]
        return [f"{verb} {topic.name} {one.number} {channel.name}" for one in topic.leaders[:1]]
    if change is Change.TOPIC_RESHAPED:
        return [*_places(topic), _meta(topic)]
    if partitions and verb == "REGISTER":
        return list(_split(topic))
    return [f"{verb} {topic.name}"]


def _moved(topic: Topic, partitions: bool) -> Iterator[str]:
    """All that is true of a cluster's topic now."""
    if not topic.leaders:
        yield f"UNREGISTER {topic.name}"
        return
    if partitions:
        others = (one for one in range(topic.partition_count) if not topic.leads(one))
        yield from (f"UNREGISTER {topic.name} {number}" for number in others)
    yield from _split(topic) if partitions else _plain(topic)


def _plain(topic: Topic) -> Iterator[str]:
    if topic.hosted and not topic.leaders:
        return
    if topic.channels:
        yield from (f"REGISTER {topic.name} {channel}" for channel in topic.channels)
    else:
        yield f"REGISTER {topic.name}"


def _split(topic: Topic) -> Iterator[str]:
    yield from _places(topic)
    settings = topic.settings
    is_plain = not (topic.extended or settings.ordered or settings.disable_channel_auto_create)
    if topic.partition_count > 1 or not is_plain:
        yield _meta(topic)


def _places(topic: Topic) -> Iterator[str]:
    """What is led here; of a topic of which nothing is, nothing."""
    led = [leader.number for leader in topic.leaders]
    if topic.partition_count > 1 or not topic.channels:  # a channel's command names the first
        yield from (f"REGISTER {topic.name} {partition}" for partition in led)
    for first in led[:1]:
        yield from (f"REGISTER {topic.name} {first} {channel}" for channel in topic.channels)


def _meta(topic: Topic) -> str:
    """Youzan's names. What is not said is as in a plain topic."""
    words = [f"partition_num={topic.partition_count}", f"extend_support={_word(topic.extended)}"]
    if topic.settings.ordered:
        words.append("ordered=true")
    if topic.settings.disable_channel_auto_create:
        words.append("disable_channel_auto_create=true")
    return " ".join(["META", topic.name, *words])


def _word(value: bool) -> str:
    return "true" if value else "false"
