"""The whole installation at one moment, from the last answer of every nsqd; and the movement since.

Values in, values out: `Watch` (watch.py) asks and calls `make`, pages read. Counters of nsqd begin
at 0 when it starts again, so a rate is never made from a counter that fell. A node that does not
answer keeps what it said last, with the age of that, so that its topics stay on the page; sums over
it are as old. What a node has not said yet is not known: a topic is on no node only when nobody has
registered it for one (`is_idle`). In a cluster, what a silent node has led is counted where others
lead it by now.

Nodes are asked each in its own time. A rate is over the last two answers of its node, and holds
until the next one.

nsqd moves what a channel gives up to its dead-letter topic, `<topic>.<channel>.dead` unless another
one is set, and keeps it there in a channel `redrive` until it is sent back. That channel is
Penstock's own: it has no consumer, and one would drain the dead letters. How many it holds is how
many there are now; the count that a channel has itself is of all since its nsqd started.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from penstock.broker.topics.settings import is_internal
from penstock.nsqadmin.replication import Replication
from penstock.nsqadmin.upstream import NOT_OF_NSQ, NsqdAddress, whole
from penstock.wire.names import is_ephemeral

Row = Mapping[str, Any]

REDRIVE = "redrive"
NO_CLUSTER = Replication()
_TELLING = frozenset(("stored_bytes", "oldest_age_seconds", "partition"))  # 0 is not nothing
_BELOW = ("channels", "partitions")
_RATE_SPAN_MIN_S = 0.2  # two answers so close together say nothing about a rate

# What is summed over nodes: the field here, and the one of `/stats`.
_OF_TOPIC = {
    "depth": "depth", "messages": "message_count", "message_bytes": "message_bytes",
    "stored_bytes": "stored_bytes", "unsynced_bytes": "unsynced_bytes",
}  # fmt: skip
_HELD = {"depth": "depth", "in_flight": "in_flight_count", "deferred": "deferred_count"}
_OF_CHANNEL = {
    **_HELD, "messages": "message_count", "requeues": "requeue_count", "timeouts": "timeout_count",
    "given_up": "dead_letter_count",
}  # fmt: skip
_RATES = {
    "in_rate": "message_count", "requeue_rate": "requeue_count", "timeout_rate": "timeout_count"
}  # fmt: skip


class Part(NamedTuple):
    """A partition of a topic or channel. The same number on two unrelated nodes means two."""

    node: str
    partition: int
    row: Row  # of its `/stats`
    in_rate: float
    finish_rate: float  # of a channel

    @property
    def depth(self) -> int:
        """Of a topic: without a channel to hold it."""
        return int(self.row.get("depth", 0))

    @property
    def oldest_s(self) -> float:
        """0: nothing is unfinished, or it is not known."""
        return float(self.row.get("oldest_age_seconds") or 0.0)


@dataclass(slots=True, kw_only=True)
class _OnNodes:
    """What a topic and a channel have in common."""

    paused: bool = False
    nodes: list[str] = field(default_factory=list)
    paused_on: list[str] = field(default_factory=list)  # of these
    stale_s: float = 0.0  # the age of the oldest figures among those of its nodes; 0: all are new

    @property
    def is_paused_partly(self) -> bool:
        return 0 < len(self.paused_on) < len(self.nodes)


@dataclass(slots=True)
class ChannelState(_OnNodes):
    topic: str
    name: str
    depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    clients: int = 0
    messages: int = 0  # that came to it, since its nsqds started
    requeues: int = 0
    timeouts: int = 0
    given_up: int = 0  # dead letters, since its nsqds started
    dead_letters: int = 0  # of it that wait now, or of all that share its dead-letter topic
    dead_letter_topic: str = ""  # that it says it has
    holds_of: tuple[str, ...] = ()  # it holds the dead letters of these: it is Penstock's own
    oldest_s: float = 0.0  # age of the oldest unfinished message; 0 when there is none, or unknown
    tells_age: bool = False  # the official nsqd does not
    in_rate: float = 0.0  # messages a second
    finish_rate: float = 0.0  # messages a second that left it, finished
    requeue_rate: float = 0.0
    timeout_rate: float = 0.0
    partitions: list[Part] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        """Internal: without consumers."""
        return bool(self.holds_of)


def _over_channels(name: str) -> Any:
    """A property of a topic: the sum over its channels."""
    of = attrgetter(name)
    return property(lambda topic: sum(map(of, topic.channels.values())))


@dataclass(slots=True)
class TopicState(_OnNodes):
    name: str
    depth: int = 0  # without a channel to hold it
    messages: int = 0
    message_bytes: int = 0
    stored_bytes: int = 0
    unsynced_bytes: int = 0
    tells_disk: bool = False  # the official nsqd does not tell of these
    without_disk: int = 0  # nodes that do not
    refusals: list[str] = field(default_factory=list)  # why publishes are refused, by node
    damaged: int = 0  # ranges of the log that can't be read
    in_rate: float = 0.0
    byte_rate: float = 0.0
    registered: list[str] = field(default_factory=list)  # nodes that have not told of it themselves
    partitions: list[Part] = field(default_factory=list)
    channels: dict[str, ChannelState] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        """It has no nsqd."""
        return not self.nodes and not self.registered

    @property
    def is_internal(self) -> bool:
        """Internal: its messages are not traffic."""
        return is_internal(self.name)

    @property
    def backlog(self) -> int:
        """All waiting messages."""
        return self.depth + sum(one.depth for one in self.channels.values())

    in_flight = _over_channels("in_flight")
    deferred = _over_channels("deferred")
    clients = _over_channels("clients")
    finish_rate = _over_channels("finish_rate")
    timeout_rate = _over_channels("timeout_rate")

    @property
    def oldest_s(self) -> float:
        return max((one.oldest_s for one in self.channels.values()), default=0.0)


class Answer(NamedTuple):
    document: Mapping[str, Any]
    answered_s: float


@dataclass(slots=True)
class NodeState:
    address: str
    producer: NsqdAddress
    document: Mapping[str, Any] = field(default_factory=dict)  # of /stats, without clients
    answered_s: float = 0.0  # when it last did, by the monotonic clock; 0: not to this process
    took_s: tuple[float, ...] = ()  # the last answers, the newest last
    error: str = ""  # why the last question failed; "" when it did not
    stale_s: float = 0.0  # the age of its figures, where that is more than it should be
    seen_s: float = 0.0  # when it last answered, by the wall clock, to any nsqadmin; 0: never
    is_listed: bool = True  # by an nsqlookupd, or it was named to nsqadmin
    earlier: Answer | None = None  # the answer before the last one
    in_rate: float = 0.0
    out_rate: float = 0.0
    timeout_rate: float = 0.0
    depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    stored_bytes: int = 0
    unsynced_bytes: int = 0

    @property
    def is_up(self) -> bool:
        return not self.error

    @property
    def can_be_asked(self) -> bool:
        return not self.error and not self.stale_s

    @property
    def health(self) -> str:
        return str(self.document.get("health", ""))

    @property
    def is_unhealthy(self) -> bool:
        """By its own report: /ping is not OK."""
        return bool(self.health) and not self.health.startswith("OK")

    @property
    def warning(self) -> str:
        """The warnings of a node whose /ping is OK."""
        return self.health.partition("OK - warning: ")[2]

    @property
    def disk(self) -> dict[str, float]:
        """What it knows of its disk: one that is gone has no size."""
        disk = self.document.get("disk")
        pairs = disk.items() if isinstance(disk, dict) else ()
        return {name: value for name, value in pairs if isinstance(value, int | float)}

    @property
    def start_s(self) -> int:
        return whole(self.document, "start_time")

    def row(self, topic: str, channel: str = "") -> Row | None:
        """The row in its `/stats`; None when it has none."""
        rows = (one for one in self.document.get("topics") or () if one.get("topic_name") == topic)
        found: Row | None = next(rows, None)
        if not channel or found is None:
            return found
        below = found.get("channels") or ()
        return next((one for one in below if one.get("channel_name") == channel), None)


@dataclass(slots=True)
class Snapshot:
    """Never changed once it is made."""

    time_s: float = 0.0
    nodes: dict[str, NodeState] = field(default_factory=dict)
    topics: dict[str, TopicState] = field(default_factory=dict)
    errors: tuple[str, ...] = ()  # of nsqlookupds, or of everything
    cluster: Replication = NO_CLUSTER
    # By topic and partition, as its leader says: the epoch, and the messages that the follower
    # furthest behind lacks.
    lags: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    @property
    def in_rate(self) -> float:
        return sum(one.in_rate for one in self.topics.values() if not one.is_internal)

    @property
    def finish_rate(self) -> float:
        return sum(one.finish_rate for one in self.channels())

    @property
    def backlog(self) -> int:
        return sum(one.backlog for one in self.topics.values())

    @property
    def stale_s(self) -> float:
        """The age of the oldest figures in the sums; 0: all are new."""
        return max((one.stale_s for one in self.topics.values()), default=0.0)

    def can_ask(self, addresses: Iterable[str]) -> bool:
        return any(at in self.nodes and self.nodes[at].can_be_asked for at in addresses)

    def once(self, addresses: Iterable[str], *names: str) -> list[str]:
        """The nodes, but one of the cluster: it passes on what concerns these names to the others.
        Ephemeral ones are separate on each node."""
        members = set() if any(map(is_ephemeral, names)) else set(self.cluster.known.values())
        found = sorted(addresses, key=lambda at: not self.can_ask([at]))
        inside = [at for at in found if at in members]
        return [at for at in found if at not in members or at == inside[0]]

    def is_only_on(self, topic: str, address: str) -> bool:
        found = self.topics.get(topic)
        return found is not None and {*found.nodes, *found.registered} == {address}

    def channels(self) -> Iterable[ChannelState]:
        for topic in self.topics.values():
            yield from topic.channels.values()

    def channel(self, topic: str, name: str) -> ChannelState | None:
        found = self.topics.get(topic)
        return found.channels.get(name) if found else None


def lean(document: dict[str, Any]) -> dict[str, Any]:
    """`/stats` without values that mean nothing: thousands of idle topics are a fifth as large. Two
    answers are held of each nsqd, and a third while it arrives."""
    rows = document.get("topics")
    if not isinstance(rows, list):
        return document
    return {**document, "topics": [_lean_row(row) for row in rows]}


def _lean_row(row: Any) -> Any:
    if not isinstance(row, dict):
        return row
    kept = {key: value for key, value in row.items() if value or key in _TELLING}
    latency = kept.get("e2e_processing_latency")
    if isinstance(latency, dict) and not latency.get("percentiles"):
        del kept["e2e_processing_latency"]
    for below in _BELOW:
        parts = kept.get(below)
        if isinstance(parts, list):
            kept[below] = [_lean_row(one) for one in parts]
    return kept


def make(
    time_s: float, nodes: Mapping[str, NodeState], names: Iterable[str], errors: tuple[str, ...],
    before: Snapshot, cluster: Replication = NO_CLUSTER,
) -> Snapshot:  # fmt: skip
    """`nodes` have their newest documents; `names` are of topics that may have no nsqd."""
    topics = {name: TopicState(name) for name in names}
    snapshot = Snapshot(time_s, dict(nodes), topics, errors, cluster)
    epochs = cluster.epochs() if cluster.name else None
    for node in nodes.values():
        node.earlier = _earlier(node, before.nodes.get(node.address))
        try:
            _add_node(snapshot, node, epochs)
        except NOT_OF_NSQ as error:
            node.document = {}
            node.error = f"its answer is not an nsqd's: {error}"
    _add_registered(snapshot)
    _add_dead_letters(snapshot)
    return snapshot


def _earlier(node: NodeState, known: NodeState | None) -> Answer | None:
    if known is None or not known.answered_s:
        return None
    if known.answered_s == node.answered_s:
        return known.earlier  # it has not answered since
    return Answer(known.document, known.answered_s)


def _add_dead_letters(snapshot: Snapshot) -> None:
    """The channel's own dead-letter topic counts before the usual name."""
    for channel in snapshot.channels():
        dead = channel.dead_letter_topic or f"{channel.topic}.{channel.name}.dead"
        holder = snapshot.channel(dead, REDRIVE)
        if holder is not None and dead != channel.topic:
            holder.holds_of += (f"{channel.topic}/{channel.name}",)
            channel.dead_letters = holder.depth + holder.in_flight + holder.deferred
            channel.dead_letter_topic = dead


def _add_registered(snapshot: Snapshot) -> None:
    """For topics that no nsqd has reported: their nodes according to nsqlookupds."""
    unseen = {name for name, topic in snapshot.topics.items() if not topic.nodes}
    for node in snapshot.nodes.values() if unseen else ():
        for name, _ in node.producer.topics:
            if name in unseen:
                topic = snapshot.topics[name]
                topic.registered.append(node.address)
                topic.stale_s = max(topic.stale_s, node.stale_s)


def _add_node(
    snapshot: Snapshot, node: NodeState, epochs: Mapping[tuple[str, int], int] | None
) -> None:
    rates = _Rates(node)
    node.in_rate = node.out_rate = node.timeout_rate = 0.0
    node.depth = node.in_flight = node.deferred = node.stored_bytes = node.unsynced_bytes = 0
    before = node.earlier.document if node.earlier else {}
    for row, last in _pairs(node.document, before, "topics", "topic_name"):
        name = str(row.get("topic_name", ""))
        if epochs is not None and not node.can_be_asked and _is_led_elsewhere(epochs, name, row):
            continue
        topic = snapshot.topics.setdefault(name, TopicState(name))
        _add_topic(topic, node, row)
        topic.partitions += _parts(node, row, last, rates)
        in_rate = rates.of(row, last, "message_count")
        topic.in_rate += in_rate
        topic.byte_rate += rates.of(row, last, "message_bytes")
        node.in_rate += in_rate
        _add_counts(node, row, ("depth", "stored_bytes", "unsynced_bytes"), _OF_TOPIC)
        for one in row.get("replicas") or ():
            if one["role"] == "leader":  # a node that is down may have led it in an older epoch
                lag, led = (one["epoch"], one["lag"]), (name, one["partition"])
                snapshot.lags[led] = max(lag, snapshot.lags.get(led, lag))
        for part, last_part in _pairs(row, last, "channels", "channel_name"):
            key = str(part.get("channel_name", ""))
            channel = topic.channels.setdefault(key, ChannelState(name, key))
            _add_channel(channel, node, part)
            for field_, counter in _RATES.items():
                rate = getattr(channel, field_) + rates.of(part, last_part, counter)
                setattr(channel, field_, rate)
            left = rates.left(part, last_part)
            channel.finish_rate += left
            channel.partitions += _parts(node, part, last_part, rates)
            _add_counts(node, part, _HELD, _HELD)
            node.timeout_rate += rates.of(part, last_part, "timeout_count")
            node.out_rate += left


def _is_led_elsewhere(epochs: Mapping[tuple[str, int], int], topic: str, row: Row) -> bool:
    """All partitions of a topic that the node led have a newer leader, or are gone."""
    led = [one for one in row.get("replicas") or () if one["role"] == "leader"]
    is_clustered = bool(row.get("replicas"))
    return is_clustered and all(
        epochs.get((topic, one["partition"]), math.inf) > one["epoch"] for one in led
    )


def _add_counts(state: Any, row: Row, fields: Iterable[str], keys: Mapping[str, str]) -> None:
    for name in fields:
        setattr(state, name, getattr(state, name) + whole(row, keys[name]))


def _add_topic(topic: TopicState, node: NodeState, row: Row) -> None:
    _add_partitions(topic, node, row)
    _add_counts(topic, row, _OF_TOPIC, _OF_TOPIC)
    topic.tells_disk = topic.tells_disk or "stored_bytes" in row
    topic.without_disk += "stored_bytes" not in row
    topic.damaged += len(row.get("damaged") or ())
    if row.get("refusal"):
        topic.refusals.append(f"{node.address}: {row['refusal']}")


def _add_channel(channel: ChannelState, node: NodeState, row: Row) -> None:
    _add_partitions(channel, node, row)
    _add_counts(channel, row, _OF_CHANNEL, _OF_CHANNEL)
    channel.clients += whole(row, "client_count") or len(row.get("clients") or ())
    channel.dead_letter_topic = channel.dead_letter_topic or str(row.get("dead_letter_topic", ""))
    age_s = row.get("oldest_age_seconds")
    channel.tells_age = channel.tells_age or "oldest_age_seconds" in row
    channel.oldest_s = max(channel.oldest_s, float(age_s) if age_s else 0.0)


def _add_partitions(state: TopicState | ChannelState, node: NodeState, row: Row) -> None:
    state.nodes.append(node.address)
    state.stale_s = max(state.stale_s, node.stale_s)
    if row.get("paused"):
        state.paused = True
        state.paused_on.append(node.address)


class _Rates:
    """From two answers of one start of one nsqd."""

    def __init__(self, node: NodeState) -> None:
        earlier = node.earlier
        self.span_s = node.answered_s - earlier.answered_s if earlier else 0.0
        self.is_known = (
            earlier is not None
            and node.is_up
            and node.start_s == whole(earlier.document, "start_time")
            and self.span_s >= _RATE_SPAN_MIN_S
        )

    def of(self, row: Row, last: Row, key: str) -> float:
        if not self.is_known or not last:
            return 0.0
        return max(0.0, (whole(row, key) - whole(last, key)) / self.span_s)

    def left(self, row: Row, last: Row) -> float:
        """The messages that left a channel: the incoming ones less the growth."""
        if not self.is_known or not last:
            return 0.0
        held = sum(whole(row, key) - whole(last, key) for key in _HELD.values())
        return max(0.0, self.of(row, last, "message_count") - held / self.span_s)


def _pairs(row: Row, last: Row, below: str, name: str) -> Iterator[tuple[Row, Row]]:
    """The rows below this one, each with its predecessor."""
    earlier = {one.get(name, ""): one for one in last.get(below) or ()}
    for one in row.get(below) or ():
        yield one, earlier.get(one.get(name, ""), {})


def _parts(node: NodeState, row: Row, last: Row, rates: _Rates) -> Iterator[Part]:
    for part, before in _pairs(row, last, "partitions", "partition"):
        in_rate, finish_rate = rates.of(part, before, "message_count"), rates.left(part, before)
        yield Part(node.address, part["partition"], part, in_rate, finish_rate)


def lagging(parts: Sequence[Part]) -> Part | None:
    """The one with at least twice its share of the backlog."""
    waits = sum(one.depth for one in parts)
    worst = max(parts, key=lambda one: one.depth) if waits and len(parts) > 1 else None
    return worst if worst is not None and worst.depth * len(parts) >= 2 * waits else None
