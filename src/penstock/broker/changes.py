"""Changes of topics and channels by clients and operators.

| the topic | a change |
|---|---|
| is of this node alone | is made here, and is done when the function returns |
| is placed by a cluster | goes into the metadata, and comes true on each node that reads it |

Both have one form: `done` is called once, with None or with what went wrong, at once or later. What
is wrong in itself (`Channel.check`) is found before. An ephemeral channel is of one node in a
cluster, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.broker.channels.channel import NOT_KEPT
from penstock.errors import NameInvalid, PenstockError, Refused
from penstock.wire.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.channels.channel import Channel
    from penstock.broker.channels.skips import Skipped
    from penstock.broker.ports import ClusterMetadata, MetadataDone
    from penstock.broker.topics.topic import Topic

PAUSED, EXTENDED, REPLICAS = "paused", "extended", "replicas"
SKIPPED, SKIPS_TESTS = "skipped", "skips_tests"
SKIPPED_PARTITIONS = "skipped_partitions"  # a bit for each, as hexadecimal digits


def _here(act: Callable[[], object], done: MetadataDone) -> None:
    try:
        act()
    except PenstockError as error:
        done(error)
    else:
        done(None)


# --- topics ---


def _change_topic(
    topic: Topic, changes: Mapping[str, Any], here: Callable[[], object], done: MetadataDone
) -> None:
    metadata = topic.metadata
    if metadata is None:
        _here(here, done)
    else:
        metadata.change_topic(topic.name, changes, done)


def pause_topic(topic: Topic, paused: bool, done: MetadataDone) -> None:
    _change_topic(topic, {PAUSED: paused}, lambda: topic.set_paused(paused), done)


def configure_topic(topic: Topic, changes: Mapping[str, Any], done: MetadataDone) -> None:
    """Changes by the names of `TopicSettings`; None restores the daemon's option. In a cluster also
    REPLICAS."""
    _change_topic(topic, changes, lambda: topic.configure(changes), done)


def extend_topic(topic: Topic, done: MetadataDone) -> None:
    _change_topic(topic, {EXTENDED: True}, topic.extend, done)


def grow_topic(
    broker: Broker, topic: Topic, partitions: int, rehash: bool, done: MetadataDone
) -> None:
    """Grow to this number of partitions. `rehash`: keys are spread over all of them."""
    metadata = topic.metadata
    if metadata is None:
        _here(lambda: broker.grow_topic(topic, partitions, rehash), done)
    elif rehash:
        metadata.rehash_topic(topic.name, partitions, done)
    else:
        metadata.grow_topic(topic.name, partitions, done)


def delete_topic(broker: Broker, topic: Topic, done: MetadataDone) -> None:
    metadata = topic.metadata
    if metadata is None:
        _here(lambda: broker.delete_topic(topic.name), done)
    else:
        metadata.delete_topic(topic.name, done)


# --- channels are made and deleted ---


def ask_for_channel(topic: Topic, name: str, done: MetadataDone) -> None:
    """Call `done` when `topic.channel` may be called. In a cluster a durable channel exists by
    then, and all partitions have confirmed its start."""
    metadata = _metadata_of(topic, name)
    if metadata is None:
        done(None)
    elif not is_valid_name(name):
        done(NameInvalid("channel", name))
    elif topic.exiting and name not in topic.channels:
        done(Refused("exiting"))
    else:
        metadata.make_channel(topic.name, name, done)


def delete_channel(topic: Topic, name: str, done: MetadataDone) -> None:
    metadata = _metadata_of(topic, name)
    if metadata is None:
        _here(lambda: topic.delete_channel(name), done)
    else:
        metadata.delete_channel(topic.name, name, done)


def _metadata_of(topic: Topic, channel: str) -> ClusterMetadata | None:
    return None if is_ephemeral(channel) else topic.metadata


# --- and changed ---


def _metadata_kept(channel: Channel) -> ClusterMetadata | None:
    return None if channel.number == NOT_KEPT else channel.topic.metadata


def _change_channel(
    channel: Channel, changes: Mapping[str, Any], here: Callable[[], object], done: MetadataDone
) -> None:
    metadata = _metadata_kept(channel)
    if metadata is None:
        _here(here, done)
    else:
        metadata.change_channel(channel.topic.name, channel.name, changes, done)


def pause_channel(channel: Channel, paused: bool, done: MetadataDone) -> None:
    _change_channel(channel, {PAUSED: paused}, lambda: channel.set_paused(paused), done)


def configure_channel(channel: Channel, changes: Mapping[str, Any], done: MetadataDone) -> None:
    """Changes by the names of `ChannelSettings`. Raises Refused for a change that is not
    allowed."""
    channel.check(changes)
    _change_channel(channel, changes, lambda: channel.configure(changes), done)


def skip(channel: Channel, act: Callable[[Skipped], Skipped], done: MetadataDone) -> None:
    """`act` maps the present skips to the wanted ones, since two clients may change them at
    once."""
    metadata, skips = _metadata_kept(channel), channel.skips
    if metadata is None:
        _here(lambda: skips.change(act(skips.state)), done)
    else:
        metadata.skip(channel.topic.name, channel.name, act, done)


def skip_settings(state: Skipped) -> dict[str, Any]:
    """In the form of a cluster's document."""
    mask = sum(1 << partition for partition in state.chosen)
    return {
        SKIPPED: state.whole or None,
        SKIPPED_PARTITIONS: f"{mask:x}" if mask else None,
        SKIPS_TESTS: state.tests or None,
    }
