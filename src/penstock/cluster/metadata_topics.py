"""Topics and channels of the metadata, in the form that the broker of a node takes.

| the metadata's document | the broker's |
|---|---|
| `Topic`: identity; settings, and CREATED, EXTENDED, PRODUCER_PARTITIONS | `TopicFile` |
| `Channel`: number, `created_ns` and `partitions` among the settings | `ClusterChannel` |
| identity | its text (`identity_text`), in `topic.json`, segments and frames |

Settings have the names that `topic.json` has for them. One that this release does not know is left
alone: a newer node has set it, and no node writes back what it has read here.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from penstock.broker.changes import EXTENDED, SKIPPED, SKIPPED_PARTITIONS, SKIPS_TESTS
from penstock.broker.replicas.clustered_topic import ClusterChannel
from penstock.broker.replicas.context import identity_number
from penstock.broker.topics.settings import ChannelSettings, TopicSettings
from penstock.broker.topics.topic_file import ChannelEntry, TopicFile
from penstock.cluster.documents import Channel, Settings, Topic, identity_of, identity_text
from penstock.cluster.view import Versioned
from penstock.errors import DocumentBroken
from penstock.limits import PARTITIONS_MAX
from penstock.replication.frames import Target

CREATED = "created_ns"
PARTITIONS = "partitions"  # that a channel's topic had when it was made
PRODUCER_PARTITIONS = "producer_partitions"  # of numbering producers, once keys were rehashed
_T = TypeVar("_T", TopicSettings, ChannelSettings)


def target_for(identity: int, partition: int) -> Target:
    return Target(identity_number(identity_text(identity)), partition)


def cluster_topic(name: str, topic: Topic, partitions: int) -> TopicFile:
    """Raises DocumentBroken."""
    settings = dict(topic.settings)
    return TopicFile(
        name=name,
        identity=identity_text(topic.identity),
        partitions=partitions,
        hash_partitions=min(topic.hash_partitions, partitions),
        producer_partitions=_number(name, settings, PRODUCER_PARTITIONS) or msgspec.UNSET,
        created_ns=_number(name, settings, CREATED),
        extended=settings.get(EXTENDED) is True or msgspec.UNSET,
        paused=topic.paused,
        settings=_settings(name, settings, TopicSettings),
        replicated=True,
    )


def cluster_channel(name: str, held: Versioned[Channel]) -> ClusterChannel:
    """Raises DocumentBroken."""
    settings = dict(held.document.settings)
    entry = channel_entry(name, held.document)
    return ClusterChannel(entry, _number(name, settings, PARTITIONS, PARTITIONS_MAX))


def channel_entry(name: str, channel: Channel) -> ChannelEntry:
    """Raises DocumentBroken."""
    settings = dict(channel.settings)
    return ChannelEntry(
        name=name,
        number=channel.number,
        created_ns=_number(name, settings, CREATED),
        paused=channel.paused,
        settings=_settings(name, settings, ChannelSettings),
        skipped=settings.get(SKIPPED) is True or msgspec.UNSET,
        skipped_partitions=_partitions(name, settings) or msgspec.UNSET,
        skips_tests=settings.get(SKIPS_TESTS) is True or msgspec.UNSET,
    )


def as_settings(settings: TopicSettings | ChannelSettings, **more: Any) -> Settings:
    """In the form of a document."""
    return tuple(sorted({**msgspec.to_builtins(settings), **more}.items()))


def topic_document(file: TopicFile, replicas: int) -> Topic:
    """The document of a topic, from the files of its replicas."""
    more: dict[str, Any] = {CREATED: file.created_ns}
    if file.extended is True:
        more[EXTENDED] = True
    if file.producer_partitions:
        more[PRODUCER_PARTITIONS] = file.producer_partitions
    settings = as_settings(file.settings, **more)
    spread = file.hash_partitions or file.partitions
    return Topic(identity_of(file.identity), replicas, spread, file.paused, settings, False, ())


def channel_document(entry: ChannelEntry, identity: int) -> Channel:
    more: dict[str, Any] = {CREATED: entry.created_ns}
    if entry.skipped is True:
        more[SKIPPED] = True
    if entry.skipped_partitions:
        more[SKIPPED_PARTITIONS] = f"{sum(1 << one for one in entry.skipped_partitions):x}"
    if entry.skips_tests is True:
        more[SKIPS_TESTS] = True
    settings = as_settings(entry.settings, **more)
    return Channel(identity, entry.number, entry.paused, settings, False)


def changed_settings(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Changes by name; None removes a setting. Others stay unchanged, also those of a newer
    release."""
    found = {**dict(settings), **msgspec.to_builtins(dict(changes))}
    return tuple(sorted((name, value) for name, value in found.items() if value is not None))


def _number(name: str, settings: Mapping[str, Any], key: str, default: int = 0) -> int:
    value = settings.get(key, default)
    if type(value) is not int or value < 0:
        raise DocumentBroken(name, key, value, "a whole number, 0 or more")
    return value


def _partitions(name: str, settings: Mapping[str, Any]) -> list[int]:
    text = settings.get(SKIPPED_PARTITIONS, "0")
    try:
        mask = int(text, 16)
    except (TypeError, ValueError):
        mask = -1
    if not 0 <= mask < 1 << PARTITIONS_MAX:
        raise DocumentBroken(name, SKIPPED_PARTITIONS, text, "a bit for each partition, in hex")
    return [number for number in range(PARTITIONS_MAX) if mask >> number & 1]


def _settings(name: str, found: Mapping[str, Any], kind: type[_T]) -> _T:
    known = {key: value for key, value in found.items() if key in kind.__struct_fields__}
    try:
        return msgspec.convert(known, kind)
    except msgspec.ValidationError as error:
        raise DocumentBroken(name, "settings", known, str(error)) from error
