"""Topics and channels as the metadata has them, and as the broker of a node wants them.

| the metadata's document | the broker's |
|---|---|
| `Topic`: identity, `created_ns` and `extended` among the settings | `PlacedTopic` |
| `Channel`: number, `created_ns` among the settings | `PlacedChannel` |
| identity, 64 bits | its 16 hexadecimal digits, in `topic.json`, segments and frames |

Settings have the names that `topic.json` has for them. One that this release does not know is left
alone: a newer node has set it, and no node writes back what it has read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from penstock.broker.hosting import PlacedChannel, PlacedTopic
from penstock.broker.settings import ChannelSettings, TopicSettings
from penstock.broker.station import identity_number
from penstock.broker.topicfile import ChannelEntry
from penstock.cluster.documents import Channel, Settings, Topic
from penstock.cluster.view import Held
from penstock.errors import DocumentBroken
from penstock.replica.frames import Target

CREATED, EXTENDED = "created_ns", "extended"
_T = TypeVar("_T", TopicSettings, ChannelSettings)


def identity_text(identity: int) -> str:
    return f"{identity:016x}"


def target_for(identity: int, partition: int) -> Target:
    return Target(identity_number(identity_text(identity)), partition)


def placed_topic(name: str, topic: Topic, partitions: int) -> PlacedTopic:
    """Raises DocumentBroken."""
    settings = dict(topic.settings)
    return PlacedTopic(
        name=name,
        identity=identity_text(topic.identity),
        partitions=partitions,
        hash_partitions=min(topic.hash_partitions, partitions),
        created_ns=_number(name, settings, CREATED),
        extended=settings.get(EXTENDED) is True,
        paused=topic.paused,
        settings=_settings(name, settings, TopicSettings),
    )


def placed_channel(name: str, held: Held[Channel]) -> PlacedChannel:
    """Raises DocumentBroken."""
    channel, settings = held.document, dict(held.document.settings)
    entry = ChannelEntry(
        name=name,
        number=channel.number,
        created_ns=_number(name, settings, CREATED),
        paused=channel.paused,
        settings=_settings(name, settings, ChannelSettings),
    )
    return PlacedChannel(entry, held.created)


def as_settings(settings: TopicSettings | ChannelSettings, **more: Any) -> Settings:
    """For a document."""
    return tuple(sorted({**msgspec.to_builtins(settings), **more}.items()))


def _number(name: str, settings: Mapping[str, Any], key: str) -> int:
    value = settings.get(key, 0)
    if type(value) is not int or value < 0:
        raise DocumentBroken(name, key, value, "nanoseconds since 1970")
    return value


def _settings(name: str, found: Mapping[str, Any], kind: type[_T]) -> _T:
    known = {key: value for key, value in found.items() if key in kind.__struct_fields__}
    try:
        return msgspec.convert(known, kind)
    except msgspec.ValidationError as error:
        raise DocumentBroken(name, "settings", known, str(error)) from error
