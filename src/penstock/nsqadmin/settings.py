"""The settings of a topic or a channel on all its nodes, and changing them.

nsqd keeps these settings itself (`/topic/config`, `/channel/config`) and checks what it is given.
A change goes to one node first: what that one refuses is changed nowhere. What has no setting of
its own is a flag of the daemon (`/config/...`), and only shown.

Some settings let messages go that are there now. They need the role that deleting needs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock import limits
from penstock.durations import format_duration
from penstock.errors import PenstockError
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.upstream import NSQD, DaemonRefused, Upstream, gathered, reason

_NOT_FOUND = 404
_DURABILITIES = ("disk", "os")
_TRUTHS = ("false", "true")


class Setting(NamedTuple):
    name: str  # in the query
    words: str
    note: str
    choices: tuple[str, ...] = ()
    role: Role = Role.OPERATE


_RATE = Setting("trace_rate", "Traced share, 0 to 1", "of its messages, as events in _trace")
OF_TOPIC = (
    Setting("durability", "Durability", "when a publish is answered: on disk, or written",
            _DURABILITIES),
    Setting("max_depth", "Maximum depth", "messages; more are refused. 0: no bound"),
    Setting("max_age", "Maximum age", "older unfinished messages are dropped, as 24h. 0: never",
            role=Role.DESTROY),
    Setting("retain_age", "Kept for", "consumed messages, for replay, as 24h", role=Role.DESTROY),
    Setting("retain_bytes", "Kept bytes", "of consumed messages, for replay", role=Role.DESTROY),
    _RATE,
    Setting("ordered", "Ordered", "consumers have to ask for strict order", _TRUTHS),
    Setting("disable_channel_auto_create", "Channels are made by hand only",
            "consumers find those that were made for them", _TRUTHS),
)  # fmt: skip
OF_CHANNEL = (
    Setting("max_attempts", "Maximum attempts", "then a message is a dead letter. 0: no bound"),
    Setting("dead_letter_topic", "Dead-letter topic", "where those go"),
    _RATE,
    Setting("ack_retry_cnt", "Finished after attempts", "and when as old as below. 0: never",
            role=Role.DESTROY),
    Setting("ack_old_than_time", "Finished when older than", "and sent as often as above, as 24h",
            role=Role.DESTROY),
    Setting("order", "Order", "what is sent one after the other: of a key, or all of a partition",
            ("none", "key", "strict")),
    Setting("poison", "Poison messages", "those that have used their attempts: as a dead letter,"
            " or held in their place", ("dead_letter", "hold")),
)  # fmt: skip
# What a topic is made as, told beside its settings where it is not as a topic of NSQ.
SHAPE = ("partitions", "hash_partitions", "extended", "replicas")

# Flags of nsqd that hold for all its topics and channels: (key, words, form).
FLAGS = (
    ("msg_timeout", "Message timeout", "duration"),
    ("max_msg_timeout", "Longest timeout of a client", "duration"),
    ("max_req_timeout", "Longest delay", "duration"),
    ("max_msg_size", "Largest message", "bytes"),
    ("max_body_size", "Largest command body", "bytes"),
    ("max_rdy_count", "Largest RDY", "count"),
    ("max_channel_consumers", "Consumers of a channel (0: no bound)", "count"),
    ("mem_queue_size", "Messages of an ephemeral channel", "count"),
    ("min_disk_free", "Publishes refused below (free disk)", "bytes"),
    ("sync_every", "Messages between syncs (durability os)", "count"),
    ("sync_timeout", "Time between syncs (durability os)", "duration"),
    ("idle_topic_delete", "Idle topics deleted after (0: never)", "duration"),
    ("idle_channel_delete", "Idle channels deleted after (0: never)", "duration"),
)


class SettingRefused(PenstockError):
    """In nsqd's words, which name the value and the rule. Nothing was changed."""


class SettingValues(NamedTuple):
    setting: Setting
    values: Mapping[str, str]  # by node
    own: frozenset[str]  # nodes where it was chosen for this topic or channel

    @property
    def shown(self) -> str:
        """The effective value, when it is the same everywhere."""
        found = set(self.values.values())
        return found.pop() if len(found) == 1 else ""

    @property
    def chosen(self) -> str:
        """The explicit value, when it is the same everywhere; "": none, or they differ."""
        return self.shown if self.own and self.own == self.values.keys() else ""

    @property
    def origin(self) -> str:
        if len(set(self.values.values())) > 1:
            return "differs: " + ", ".join(f"{node} {value}" for node, value in self.values.items())
        if not self.own:
            return "by default"
        return "chosen here" if self.own == self.values.keys() else (
            "chosen on " + ", ".join(sorted(self.own))
        )  # fmt: skip


def settings_of(about: Mapping[str, str]) -> tuple[Setting, ...]:
    return OF_CHANNEL if "channel" in about else OF_TOPIC


def _path(about: Mapping[str, str]) -> str:
    return "/channel/config" if "channel" in about else "/topic/config"


async def read(
    upstream: Upstream, nodes: Sequence[str], about: Mapping[str, str]
) -> tuple[list[SettingValues], list[str]]:
    """And notes about nodes that did not tell. `about` names topic, and channel."""
    documents, failed = await gathered(
        {node: upstream.get(node, _path(about), about) for node in nodes}
    )
    notes = []
    for node, error in failed.items():
        is_old = error.status == _NOT_FOUND and error.code in ("", "NOT_FOUND")
        what = "has no such settings" if is_old else f"does not tell: {reason(error)}"
        notes.append(f"{node} {what}")
    return [_held(one, documents) for one in settings_of(about) if documents], notes


def _held(setting: Setting, documents: Mapping[str, Mapping[str, Any]]) -> SettingValues:
    name = setting.name
    values = {node: written(one.get(name, "")) for node, one in documents.items()}
    own = frozenset(node for node, one in documents.items() if name in (one.get("own") or ()))
    return SettingValues(setting, values, own)


def written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


async def write(
    upstream: Upstream, nodes: Sequence[str], about: Mapping[str, str], changes: Mapping[str, str]
) -> str:
    """An empty value restores the default. Returns a warning. Raises SettingRefused."""
    path, query = _path(about), {**about, **changes}
    if not nodes:
        raise SettingRefused("no node that answers has it")
    try:
        await upstream.post(nodes[0], path, query)
    except DaemonRefused as error:
        raise SettingRefused(error.code) from error
    if len(nodes) == 1:
        return ""
    asked = await upstream.ask(NSQD, nodes[1:], lambda at: upstream.post(at, path, query))
    return asked.refusals


def roles_of(about: Mapping[str, str], changes: Mapping[str, str]) -> Role:
    return max(one.role for one in settings_of(about) if one.name in changes)


def detail(changes: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value or '(default)'}" for name, value in changes.items())


async def flags(upstream: Upstream, node: str) -> list[tuple[str, str]]:
    """The flags of a node for all topics: (text, value)."""
    values, failed = await gathered(
        {key: upstream.get(node, f"/config/{key}") for key, _, _ in FLAGS}
    )
    for error in failed.values():
        if error.status not in (400, _NOT_FOUND):  # an nsqd without this flag is no fault
            raise error
    return [(words, _shown(values[key], form)) for key, words, form in FLAGS if key in values]


def _shown(value: Any, form: str) -> str:
    if not isinstance(value, int):
        return str(value)
    if form == "duration":
        return format_duration(value)
    if form == "bytes" and value >= limits.KIB:
        return f"{value:,} bytes"
    return f"{value:,}"
