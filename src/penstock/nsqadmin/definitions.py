"""All topics and channels of an installation as one document: their existence, pauses, and
settings. Exported from one installation, it creates the same in another.

    {"version": 1, "topics": [{"name": "orders", "paused": false, "settings": {"max_depth": "5000"},
                               "channels": [{"name": "mail", "settings": {}}]}]}

Beside the settings of nsqd they name, where it is not the usual, a topic's shape (`partitions`,
`hash_partitions`, `extended`, `replicas`) and what a channel leaves out (`skipped`,
`zan_test_skipped`).

Putting it in makes what is missing on every nsqd, sets the settings that it names, and pauses what
it says is paused. It deletes nothing, and what it does not name stays as it is. Messages are not in
it. Ephemeral topics and channels, Penstock's own topics, and its channels of dead letters are left
out.

Where nodes differ the document says so: `nodes` of what only some of them have, `paused_on`, and
`settings_on` with the settings of each. That holds for nodes of these addresses; where there is
none of them among those that it is put on, as in another installation or on a new node alone,
`nodes` means all. So what was taken out changes nothing when it is put in again where it came from.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock import limits
from penstock.errors import PenstockError
from penstock.net.query import whole_number
from penstock.nsqadmin import settings
from penstock.nsqadmin.settings import OF_CHANNEL, OF_TOPIC, SHAPE, SettingRefused
from penstock.nsqadmin.snapshot import ChannelState, Snapshot, TopicState
from penstock.nsqadmin.upstream import NSQD, DaemonRefused, Upstream
from penstock.wire.names import is_ephemeral, is_valid_name

VERSION = 1
_SKIPS = {"skipped": "/channel/skip", "zan_test_skipped": "/channel/skipZanTest"}  # as in `/stats`
_COUNTS = ("partitions", "hash_partitions", "replicas")
_IN_TOPIC = [*(one.name for one in OF_TOPIC), *SHAPE]
_IN_CHANNEL = [*(one.name for one in OF_CHANNEL), *_SKIPS]
# By topic and channel ("": the topic's own), and by node.
OwnSettings = dict[tuple[str, str], dict[str, dict[str, str]]]


class Defined(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A channel."""

    name: str
    paused: bool = False
    settings: dict[str, str] = {}
    nodes: list[str] = []  # of those above it; empty: all
    paused_on: list[str] = []
    settings_on: dict[str, dict[str, str]] = {}

    def among(self, nodes: Sequence[str]) -> list[str]:
        return [node for node in nodes if node in self.nodes] or list(nodes)

    def settings_of(self, node: str) -> dict[str, str]:
        return self.settings | self.settings_on.get(node, {})

    def is_paused_on(self, node: str) -> bool:
        return self.paused or node in self.paused_on


class DefinedTopic(Defined, forbid_unknown_fields=True, omit_defaults=True):
    channels: list[Defined] = []


class Definitions(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    topics: list[DefinedTopic]


class DefinitionsInvalid(PenstockError):
    """Names the fault and its position."""


class NotComplete(PenstockError):
    """Half an installation would look like a whole one."""


# --- out ---


def taken(snapshot: Snapshot) -> Definitions:
    """The present definitions. Raises NotComplete while a node does not answer."""
    for node in snapshot.nodes.values():
        if not (node.can_be_asked and node.answered_s):
            why = node.error or "it has not answered yet, or not for a while"
            raise NotComplete(f"the definitions would not be complete: {node.address}: {why}")
    own = _own_settings(snapshot, snapshot.nodes)
    topics = [
        _topic(own, snapshot, name)
        for name, one in sorted(snapshot.topics.items())
        if one.nodes and not one.is_internal and not is_ephemeral(name)
    ]
    return Definitions(VERSION, topics)


def _own_settings(snapshot: Snapshot, nodes: Iterable[str]) -> OwnSettings:
    found: OwnSettings = defaultdict(dict)
    for at in nodes:
        for topic in snapshot.nodes[at].document.get("topics") or ():
            for row in (topic, *(topic.get("channels") or ())):
                given = row.get("settings")
                own = {name: True for name in ("paused", *_SKIPS) if row.get(name)}
                own |= given if isinstance(given, dict) else {}
                key = topic["topic_name"], row.get("channel_name", "")
                found[key][at] = {name: settings.written(value) for name, value in own.items()}
    return found


def _topic(own: OwnSettings, snapshot: Snapshot, name: str) -> DefinedTopic:
    found = snapshot.topics[name]
    topic = DefinedTopic(name)
    _fill(own[name, ""], topic, found, list(snapshot.nodes))
    for key, channel in sorted(found.channels.items()):
        if not is_ephemeral(key) and not channel.is_internal:
            defined = Defined(key)
            _fill(own[name, key], defined, channel, found.nodes)
            topic.channels.append(defined)
    return topic


def _fill(
    own: Mapping[str, Mapping[str, str]], one: Defined, found: TopicState | ChannelState,
    above: Sequence[str],
) -> None:  # fmt: skip
    """Its own settings, on all its nodes or on some."""
    nodes = found.nodes or list(above)
    one.nodes = sorted(nodes) if len(nodes) < len(above) else []
    one.paused = found.paused and not found.is_paused_partly
    one.paused_on = sorted(found.paused_on) if found.is_paused_partly else []
    for name in _IN_TOPIC if isinstance(one, DefinedTopic) else _IN_CHANNEL:
        chosen = {node: own[node][name] for node in sorted(own) if name in own[node]}
        if len(chosen) == len(nodes) and len(set(chosen.values())) == 1:
            one.settings[name] = next(iter(chosen.values()))
            continue
        for node, value in chosen.items():
            one.settings_on.setdefault(node, {})[name] = value


# --- in ---


def read(text: str) -> Definitions:
    """Raises DefinitionsInvalid before anything is changed."""
    try:
        found = msgspec.json.decode(text.encode("utf-8", "replace"), type=Definitions)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DefinitionsInvalid(f"these are no definitions: {error}") from error
    if found.version != VERSION:
        raise DefinitionsInvalid(f"version {found.version} is not known here, only {VERSION}")
    _check_names("topic", found.topics)
    for topic in found.topics:
        _check(topic, f"topic {topic.name}", _IN_TOPIC)
        _check_names(f"channel of {topic.name}", topic.channels)
        for channel in topic.channels:
            _check(channel, f"channel {topic.name}/{channel.name}", _IN_CHANNEL)
    return found


def _check_names(kind: str, found: Sequence[Defined]) -> None:
    names = [one.name for one in found]
    for name in names:
        if not is_valid_name(name) or is_ephemeral(name):
            rule = f"1 to {limits.NAME_BYTES_MAX} of . a-z A-Z 0-9 _ -"
            raise DefinitionsInvalid(f"{kind} {name!r} is no name: {rule}")
    if len(set(names)) != len(names):
        raise DefinitionsInvalid(f"a {kind} is named twice")


def _check(one: Defined, where: str, known: Sequence[str]) -> None:
    chosen = [one.settings, *one.settings_on.values()]
    for name, value in (pair for on in chosen for pair in on.items()):
        if name not in known:
            raise DefinitionsInvalid(f"{where}: {name!r} is no setting; there are {[*known]}")
        if name in _COUNTS and not whole_number(value, limits.PARTITIONS_MAX):
            rule = f"a whole number, 1 to {limits.PARTITIONS_MAX}"
            raise DefinitionsInvalid(f"{where}: {name} {value!r} is not {rule}")


class Change(NamedTuple):
    kind: str  # "create", "set" or "pause"
    topic: str
    channel: str  # "" for the topic itself
    setting: str
    value: str
    nodes: tuple[str, ...]

    @property
    def text(self) -> str:
        name = f"channel {self.topic}/{self.channel}" if self.channel else f"topic {self.topic}"
        value = f" {self.setting}={self.value}" if self.setting else ""
        return f"{self.kind} {name}{value} on {', '.join(self.nodes)}"


def changes(snapshot: Snapshot, found: Definitions, nodes: Sequence[str]) -> list[Change]:
    """On these nodes. What is there already is no change."""
    own = _own_settings(snapshot, nodes)
    changed = []
    for topic in found.topics:
        at = topic.among(nodes)
        changed += _changes(own, snapshot, topic.name, "", topic, at)
        for one in topic.channels:
            changed += _changes(own, snapshot, topic.name, one.name, one, one.among(at))
    return changed


def _changes(
    own: OwnSettings, snapshot: Snapshot, topic: str, channel: str, one: Defined,
    nodes: Sequence[str],
) -> list[Change]:  # fmt: skip
    has = own[topic, channel]
    lacking = tuple(node for node in nodes if node not in has)
    changed = [Change("create", topic, channel, "", "", lacking)] if lacking else []
    wanted: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        for pair in one.settings_of(node).items():
            wanted.setdefault(pair, []).append(node)
    for (name, value), nodes_of in wanted.items():
        other = tuple(node for node in nodes_of if has.get(node, {}).get(name) != value)
        if other:
            changed.append(Change("set", topic, channel, name, value, other))
    running = tuple(at for at in nodes if one.is_paused_on(at) and "paused" not in has.get(at, {}))
    if running:
        changed.append(Change("pause", topic, channel, "", "", running))
    return changed


async def put(upstream: Upstream, nodes: Sequence[str], found: Definitions) -> str:
    """Apply to these nodes. Returns a warning. SettingRefused and UpstreamFailed name the progress:
    earlier entries of the document are applied."""
    warnings = []
    for topic in found.topics:
        about, at = {"topic": topic.name}, topic.among(nodes)
        warnings.append(await _put(upstream, at, "topic", about, topic))
        for channel in topic.channels:
            more = about | {"channel": channel.name}
            warnings.append(await _put(upstream, channel.among(at), "channel", more, channel))
    return "\n".join(dict.fromkeys(one for one in warnings if one))


async def _put(
    upstream: Upstream, nodes: Sequence[str], kind: str, about: dict[str, str], one: Defined
) -> str:
    async def post(path: str, on: Sequence[str]) -> str:
        return (await upstream.ask(NSQD, on, lambda at: upstream.post(at, path, about))).refusals

    warning = ""
    try:
        for node in nodes:
            await _shape(upstream, node, about, one.settings_of(node))
        warning = await post(f"/{kind}/create", nodes)
        for on in [[node] for node in nodes] if one.settings_on else [list(nodes)]:
            chosen = {name: value for name, value in one.settings_of(on[0]).items()
                      if name not in (*_SKIPS, *SHAPE)}  # fmt: skip
            if chosen:
                warning = await settings.write(upstream, on, about, chosen) or warning
    except (SettingRefused, DaemonRefused) as error:
        code = error.code if isinstance(error, DaemonRefused) else error
        raise SettingRefused(f"{'/'.join(about.values())}: {code}") from error
    for name, path in _SKIPS.items():
        if skipping := [node for node in nodes if one.settings_of(node).get(name) == "true"]:
            warning = await post(path, skipping) or warning
    if paused := [node for node in nodes if one.is_paused_on(node)]:
        warning = await post(f"/{kind}/pause", paused) or warning
    return warning


async def _shape(
    upstream: Upstream, node: str, about: dict[str, str], wanted: Mapping[str, str]
) -> None:
    """Create a topic in its shape, or change it to that; nsqd refuses an impossible change."""
    if not any(name in wanted for name in SHAPE):
        return
    count = int(wanted.get("partitions", 1))
    hashed = int(wanted.get("hash_partitions", count))
    there = await _shape_of(upstream, node, about)
    if there is None:
        query = about | {"partition_num": str(hashed)}
        query |= {"extend": wanted["extended"]} if "extended" in wanted else {}
        query |= {"replicator": wanted["replicas"]} if "replicas" in wanted else {}
        await upstream.post(node, "/topic/create", query)
        there = {**wanted, "partitions": hashed, "hash_partitions": hashed}
    has = int(there.get("partitions", 1)), int(there.get("hash_partitions", 1))
    if "partitions" in wanted and has != (count, hashed):
        rehash = {"rehash": "true"} if hashed == count != has[1] else {}
        query = about | {"partition_num": str(count)} | rehash
        await upstream.post(node, "/topic/partition/expand", query)
    if wanted.get("extended") == "true" and not there.get("extended"):
        await upstream.post(node, "/topic/meta/update", about | {"upgradeext": "true"})


async def _shape_of(
    upstream: Upstream, node: str, about: dict[str, str]
) -> Mapping[str, Any] | None:
    """None: it is not there."""
    try:
        found: Mapping[str, Any] = await upstream.get(node, "/topic/config", about)
    except DaemonRefused as error:
        if error.code == "TOPIC_NOT_FOUND":
            return None
        raise
    return found


def to_text(found: Definitions) -> bytes:
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
