"""More partitions for a topic in use.

    the logs of the new partitions are made, durably             nothing names them yet
    topic.json names them, durably                               a start brings them back
    they are led: publishers, channels and consumers have them   now messages can be there

After a kill at any point the topic opens: with the old number, and empty directories beside it
which the next growth takes over, or with the new number. Channels begin at offset 0 of a new
partition: nothing was published to it before.

Keys stay where they are, since they are spread over `hash_partitions`, which growth leaves alone.
A *rehash* spreads them over all partitions. It would let a channel see new messages of a key before
old ones, so it is refused until every channel has finished everything, and nothing is staged.
Producers that number their messages stay where they are remembered, whatever the hash says
(`Publishing.stamped_leader`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import limits
from penstock.broker.partition.replica import Replica
from penstock.broker.topics.directories import close_all
from penstock.errors import GrowthRefused, Refused

if TYPE_CHECKING:
    from penstock.broker.context import Context
    from penstock.broker.topics.directories import TopicDirectories
    from penstock.broker.topics.topic import Topic

_RULE = "keys are rehashed only when nothing is left to deliver"


def grow(
    context: Context, directories: TopicDirectories, topic: Topic, count: int, rehash: bool
) -> None:
    """Grow to this number, or the present one for a rehash alone. Raises GrowthRefused, Refused and
    StorageError, and then nothing has changed."""
    _check(context, topic, count, rehash)
    hash_count = count if rehash else topic.hash_partitions
    have = topic.partition_count
    if (count, hash_count) == (have, topic.hash_partitions):
        return
    replicas = _make(directories, topic, range(have, count))
    try:
        topic.grow(replicas, hash_count)
    except BaseException:
        for replica in replicas:
            replica.close()
            context.health.forget(replica.label)
        raise


def _check(context: Context, topic: Topic, count: int, rehash: bool) -> None:
    have = topic.partition_count
    if context.exiting:
        raise Refused("exiting")
    if topic.replicated:
        raise GrowthRefused(f"the cluster says how many partitions topic {topic.name} has")
    if topic.internal:
        raise GrowthRefused(f"topic {topic.name} of penstock's own has 1 partition")
    if not have <= count <= limits.PARTITIONS_MAX:
        rule = f"it can have {have} to {limits.PARTITIONS_MAX}, as a topic never gets fewer"
        raise GrowthRefused(f"topic {topic.name} has {have} partitions, not {count}: {rule}")
    if rehash:
        check_drained(context, topic)


def _make(directories: TopicDirectories, topic: Topic, numbers: range) -> list[Replica]:
    logs = directories.add(topic.file(), numbers)
    try:
        return [Replica(topic, number, log) for number, log in zip(numbers, logs, strict=True)]
    except BaseException:
        close_all(logs)
        raise


def check_drained(context: Context, topic: Topic, left_max: int = 0) -> None:
    """No message is on its way to a consumer, so order cannot be reversed. In a cluster: of the
    partitions that this node leads. Raises GrowthRefused where more than `left_max` are."""
    if context.staged[topic.name, topic.identity]:
        how = f"commit or abort the stages of topic {topic.name} first"
        raise GrowthRefused(f"{_RULE}, and nothing is staged: {how}")
    for channel in topic.channels.values():
        left = max(channel.unfinished, channel.depth + channel.in_flight + channel.delayed)
        if left > left_max:
            of = f"channel {channel.name} of topic {topic.name}"
            raise GrowthRefused(f"{_RULE}: {of} has {left} messages")
    left = topic.depth + topic.uncommitted
    if left > left_max:
        raise GrowthRefused(f"{_RULE}: topic {topic.name} itself has {left} messages")
