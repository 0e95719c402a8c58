"""Reports with rates: of nodes, of channels and of a topic's partitions.

The sums and rates are nsqadmin's (`snapshot`), so a figure on the command line is the one on its
pages. A rate needs two looks; the first one is never shown.

    CHANNEL         DEPTH  IN FLIGHT  DELAYED  OLDEST  IN/s  OUT/s  EMPTY IN  CONN
    orders/billing  12k          100        0   3m12s   950   1.2k     48s       4

`OLDEST` is the age of the oldest unfinished message, `EMPTY IN` the time until nothing is left at
the present rates; "never" when more comes than goes. A channel that is up to date in all partitions
but one looks well in a sum. So, where topics have several, `BEHIND IN` names the partition in which
most waits and how many wait there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.command import terminal
from penstock.command.terminal import short, span
from penstock.errors import PenstockError
from penstock.nsqdapi.calls import stats_query
from penstock.tools.nodes import Node, ask_all
from penstock.tools.output import DONE, FAILED, Column, Output, Row, columns_table, size
from penstock.tools.stats import Pace

if TYPE_CHECKING:
    from penstock.nsqadmin.snapshot import (
        ChannelPart,
        ChannelState,
        NodeState,
        Snapshot,
        TopicPart,
        TopicState,
    )


def look(
    members: Sequence[Node], topic: str = "", channel: str = "", clients: bool = False
) -> Snapshot:
    """Without rates."""
    from penstock.nsqadmin.snapshot import NodeState, Snapshot, make
    from penstock.nsqadmin.upstream import Producer

    query = stats_query(topic, channel, clients)

    def ask(node: Node) -> tuple[Row, float]:
        return node.document("/stats", query, "topics", "health"), time.monotonic()

    answers = ask_all(members, ask)
    states = {}
    for address in (node.address for node in members):
        state = states[address] = NodeState(address, Producer("", address, 0, 0, ""))
        if address in answers.bad:
            state.error = answers.bad[address].reason
        else:
            state.document, state.answered_s = answers.good[address]
    return make(time.time(), states, (), (), Snapshot())


def with_rates(now: Snapshot, before: Snapshot) -> Snapshot:
    from penstock.nsqadmin.snapshot import make

    return make(now.time_s, now.nodes, now.topics, (), before)


def report(
    take: Callable[[], Snapshot],
    document: Callable[[Snapshot, Snapshot], Row],
    lines: Callable[[Row, Snapshot], list[str]],
    pace: Pace,
) -> int:
    """The exit code: 1 when a node did not answer."""

    def show(now: Snapshot, before: Snapshot | None) -> Output:
        now = with_rates(now, before or now)
        shown = document(now, before or now)
        code = FAILED if any(node.error for node in now.nodes.values()) else DONE
        return Output(shown, () if pace.given["json"] else lines(shown, now), code)

    return pace.watch(take, show, take())


def need_answer(now: Snapshot) -> None:
    if all(node.error for node in now.nodes.values()):
        reasons = [f"{node.address}: {node.error}" for node in now.nodes.values()]
        raise PenstockError("; ".join(reasons))


def node_errors(now: Snapshot) -> list[str]:
    """Lines about nodes that do not answer."""
    failed = [node for node in now.nodes.values() if node.error]
    return [f"{node.address}  {terminal.painted(node.error, terminal.RED)}" for node in failed]


def _age(seconds: float) -> str:
    return span(seconds) if seconds else "-"


# --- nodes: an official nsqd does not tell of its disk; there those columns are empty ---

NODE_COLUMNS: tuple[Column, ...] = (
    ("NODE", "node", str),
    ("VERSION", "version", str),
    ("HEALTH", "health", str),
    ("UP", "up_seconds", span),
    ("TOPICS", "topic_count", short),
    ("CHANNELS", "channel_count", short),
    ("CONN", "client_count", short),
    ("DEPTH", "depth", short),
    ("IN/s", "in_rate", short),
    ("OUT/s", "out_rate", short),
    ("DISK LEFT", "disk_left", str),
    ("LAST SYNC", "last_sync_seconds_ago", lambda seconds: f"{span(seconds)} ago"),
    ("UNSYNCED", "unsynced_bytes", lambda count: size(count) if count else ""),
)
TOPIC_COLUMNS: tuple[Column, ...] = (
    ("TOPIC", "name", str),
    ("DEPTH", "depth", short),
    ("CHANNELS", "channel_count", short),
    ("IN/s", "in_rate", short),
    ("STORED", "stored_bytes", short),
    ("UNSYNCED", "unsynced_bytes", short),
)


def node_row(now: Snapshot, node: NodeState) -> Row:
    if node.error:
        return {"error": node.error}
    document = node.document
    topics = document.get("topics") or ()
    channels = [channel for topic in topics for channel in topic.get("channels") or ()]
    disk = document.get("disk") or {}
    return {
        "version": document.get("version", ""),
        "health": node.health,
        "draining": bool(document.get("draining")),
        "start_time": node.start_s,
        "up_seconds": max(0, int(now.time_s) - node.start_s),
        "topic_count": len(topics),
        "channel_count": len(channels),
        "client_count": _sum(channels, "client_count"),
        "depth": _sum(topics, "depth") + _sum(channels, "depth"),
        "in_flight_count": _sum(channels, "in_flight_count"),
        "deferred_count": _sum(channels, "deferred_count"),
        "in_rate": round(node.in_rate, 1),
        "out_rate": round(node.out_rate, 1),
        "stored_bytes": _sum(topics, "stored_bytes"),
        "unsynced_bytes": _sum(topics, "unsynced_bytes"),
        **{name: disk.get(name.removeprefix("disk_")) for name in
           ("disk_free_bytes", "disk_size_bytes", "last_sync_seconds_ago", "sync_slowest_seconds")},
    }  # fmt: skip


def _sum(rows: Sequence[Row], name: str) -> int:
    return sum(row.get(name) or 0 for row in rows)


def node_lines(rows: Mapping[str, Row]) -> list[str]:
    shown = []
    for address, row in rows.items():
        free, of = row.get("disk_free_bytes"), row.get("disk_size_bytes")
        health = "draining" if row.get("draining") else row.get("health")
        wrong = terminal.painted(row["error"], terminal.RED) if "error" in row else health
        left = f"{size(free)} ({100 * free // of} %)" if free and of else None
        shown.append({**row, "node": address, "health": wrong, "disk_left": left})
    return columns_table(NODE_COLUMNS, shown, left=3)


def topic_row(topic: TopicState) -> Row:
    return {
        "depth": topic.backlog,
        "channel_count": len(topic.channels),
        "message_count": topic.messages,
        "in_rate": round(topic.in_rate, 1),
        "stored_bytes": topic.stored_bytes,
        "unsynced_bytes": topic.unsynced_bytes,
        "paused": topic.paused,
        "refusals": topic.refusals,
    }


# --- channels ---

_FLOW: tuple[Column, ...] = (
    ("DEPTH", "depth", short),
    ("IN FLIGHT", "in_flight_count", short),
    ("DELAYED", "deferred_count", short),
    ("OLDEST", "oldest_age_seconds", _age),
    ("IN/s", "in_rate", short),
    ("OUT/s", "out_rate", short),
)
CHANNEL_COLUMNS: tuple[Column, ...] = (
    ("CHANNEL", "name", str), *_FLOW, ("EMPTY IN", "empty_in", str),
    ("CONN", "client_count", short),
)  # fmt: skip
PART_COLUMNS: tuple[Column, ...] = (
    ("PARTITION", "partition", str), ("NODE", "node", str), *_FLOW,
    ("REQUEUED", "requeue_count", short), ("TIMED OUT", "timeout_count", short),
    ("CONN", "client_count", short),
)  # fmt: skip
CLIENT_COLUMNS: tuple[Column, ...] = (
    ("CONSUMER", "client_id", terminal.printable),
    ("ADDRESS", "remote_address", terminal.printable),
    ("NODE", "node", str),
    ("IN FLIGHT", "in_flight_count", short),
    ("READY", "ready_count", short),
    ("OUT/s", "out_rate", short),
    ("FINISHED", "finish_count", short),
    ("REQUEUED", "requeue_count", short),
    ("CONNECTED", "connected_seconds", span),
)


def empty_s(channel: ChannelState) -> float | None:
    """Until nothing waits at the present rates. None: never. One that keeps up is empty: what its
    consumers have in hand is no backlog."""
    left = channel.depth
    if not left or (channel.finish_rate and left <= limits.ADMIN_KEEPS_UP_S * channel.in_rate):
        return 0.0
    gain = channel.finish_rate - channel.in_rate
    return left / gain if gain > 0 else None


def channels_document(now: Snapshot, before: Snapshot, found: list[ChannelState]) -> Row:
    topics: dict[str, Row] = {}
    for one in found:
        topics.setdefault(one.topic, {"channels": {}})["channels"][one.name] = channel_row(one)
    return {
        "nodes": {address: node.error or node.health for address, node in now.nodes.items()},
        "topics": topics,
        "consumers": consumers(now, before),
    }


def channel_row(one: ChannelState) -> Row:
    left_s = empty_s(one)
    parts = [_flow(part) | {"node": part.node} for part in one.partitions]
    return {
        **_flow(one),
        "message_count": one.messages,
        "dead_letter_count": one.dead_letters,
        "paused": one.paused,
        "empty_seconds": None if left_s is None else round(left_s, 1),
        "nodes": one.nodes,
        **({"partitions": parts} if parts else {}),
    }


def _flow(one: ChannelState | ChannelPart) -> Row:
    partition = getattr(one, "partition", None)
    return {
        **({} if partition is None else {"partition": partition}),
        "depth": one.depth,
        "in_flight_count": one.in_flight,
        "deferred_count": one.deferred,
        "requeue_count": one.requeues,
        "timeout_count": one.timeouts,
        "client_count": one.clients,
        "oldest_age_seconds": round(one.oldest_s, 3),
        "in_rate": round(one.in_rate, 1),
        "out_rate": round(one.finish_rate, 1),
    }


def channel_lines(found: Row, order: Sequence[ChannelState], is_one: bool) -> list[str]:
    """With one channel its partitions and its consumers follow."""
    rows = [
        {**found["topics"][one.topic]["channels"][one.name],
         "name": f"{one.topic}/{one.name}" + (" (paused)" if one.paused else "")}
        for one in order
    ]  # fmt: skip
    if not rows:
        return ["no channels"]
    parts = [part for row in rows for part in row.get("partitions", ())]
    for row in rows:
        left_s = row["empty_seconds"]
        row["empty_in"] = "never" if left_s is None else _age(left_s)
        row["behind"] = _behind(row.get("partitions", ()))
    behind: tuple[Column, ...] = (("BEHIND IN", "behind", str),) if parts else ()
    lines = columns_table((*CHANNEL_COLUMNS, *behind), rows)
    if is_one and parts:
        lines += ["", *columns_table(PART_COLUMNS, parts, left=2)]
    if is_one and found["consumers"]:
        clients = [{**one, "client_id": one["client_id"] or one["hostname"]}
                   for one in found["consumers"]]  # fmt: skip
        lines += ["", *columns_table(CLIENT_COLUMNS, clients, left=3)]
    return lines


def _behind(parts: Sequence[Row]) -> str:
    """ "3: 12k": what waits in the partition in which most does."""
    worst = max(parts, key=lambda part: int(part["depth"]), default=None)
    return f"{worst['partition']}: {short(worst['depth'])}" if worst and worst["depth"] else "-"


def consumers(now: Snapshot, before: Snapshot) -> list[Row]:
    """Of the channel that was asked about, those with most in flight first."""
    earlier = {(one["node"], one["remote_address"]): one for one in _clients(before)}
    rows = list(_clients(now))
    for row in rows:
        known = earlier.get((row["node"], row["remote_address"]))
        seconds = now.time_s - before.time_s
        done = row["finish_count"] - known["finish_count"] if known else 0
        row["out_rate"] = round(max(0, done) / seconds, 1) if seconds > 0 else 0.0
    return sorted(rows, key=lambda row: (-row["in_flight_count"], row["remote_address"]))


def _clients(snapshot: Snapshot) -> Iterator[Row]:
    for node in snapshot.nodes.values():
        for topic in node.document.get("topics") or ():
            for channel in topic.get("channels") or ():
                for row in channel.get("clients") or ():
                    yield _client_row(node.address, row)


def _client_row(address: str, row: Mapping[str, Any]) -> Row:
    counts = ("in_flight_count", "ready_count", "finish_count", "requeue_count", "message_count")
    return {
        "node": address,
        **{name: row.get(name, "") for name in ("client_id", "hostname", "remote_address")},
        **{name: row.get(name, 0) for name in counts},
        "connected_seconds": max(0, int(time.time()) - int(row.get("connect_ts") or 0)),
    }


# --- one topic ---

_PARTITION_COLUMNS: tuple[Column, ...] = (
    ("PARTITION", "partition", str),
    ("NODE", "node", str),
    ("MESSAGES", "message_count", short),
    ("OFFSETS", "offsets", str),
    ("STORED", "stored_bytes", size),
    ("IN/s", "in_rate", short),
)


def topic_document(topic: TopicState, partition: int | None) -> Row:
    return {
        "topic": topic.name,
        "nodes": topic.nodes,
        **_stored(topic),
        "paused": topic.paused,
        "channels": {name: one.depth for name, one in sorted(topic.channels.items())},
        "partitions": [_partition_row(topic, one) for one in _chosen(topic, partition)],
    }


def _stored(one: TopicState | TopicPart) -> Row:
    return {
        "depth": one.depth,
        "message_count": one.messages,
        "message_bytes": one.message_bytes,
        "stored_bytes": one.stored_bytes,
        "in_rate": round(one.in_rate, 1),
    }


def _partition_row(topic: TopicState, one: TopicPart) -> Row:
    waits = {
        name: part.depth
        for name, channel in sorted(topic.channels.items())
        for part in channel.partitions
        if (part.node, part.partition) == (one.node, one.partition)
    }
    return {
        "partition": one.partition,
        "node": one.node,
        **_stored(one),
        "start_offset": one.start_offset,
        "end_offset": one.end_offset,
        "refusal": one.refusal,
        "channels": waits,
    }


def _chosen(topic: TopicState, partition: int | None) -> list[TopicPart]:
    if partition is None or (partition == 0 and not topic.partitions):
        return topic.partitions
    found = [one for one in topic.partitions if one.partition == partition]
    if not found:
        raise PenstockError(f"topic {topic.name} has no partition {partition}")
    return found


def topic_lines(found: Row) -> list[str]:
    """Below a channel's name stands what waits in it. A topic with one partition has the line of
    the total alone."""
    rows = []
    for one in found["partitions"]:
        refuses = " (refuses publishes)" if one["refusal"] else ""
        offsets = f"{one['start_offset']}-{one['end_offset']}"
        rows.append({**one, "partition": f"{one['partition']}{refuses}", "offsets": offsets})
    rows.append({**found, "partition": "total" + (" (paused)" if found["paused"] else "")})
    columns = (*_PARTITION_COLUMNS, *((name, f"in {name}", short) for name in found["channels"]))
    for row in rows:
        row |= {f"in {name}": depth for name, depth in row["channels"].items()}
    return columns_table(columns, rows, left=2)
