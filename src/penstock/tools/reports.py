"""Reports with rates: of channels and of a topic's partitions; those of nodes are in `node.py`.

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
from typing import TYPE_CHECKING

from penstock import limits
from penstock.command import terminal
from penstock.command.terminal import short, span
from penstock.errors import PenstockError
from penstock.nsqdapi.calls import stats_query
from penstock.tools.nodes import Node, ask_all
from penstock.tools.output import DONE, FAILED, Output, Row, columns_table, figures, texts
from penstock.tools.stats import Pace

if TYPE_CHECKING:
    from penstock.nsqadmin.snapshot import ChannelState, Snapshot, TopicPart, TopicState

# What a snapshot has, under the names of /stats.
_STORED = {"depth": "depth", "message_count": "messages", "message_bytes": "message_bytes",
           "stored_bytes": "stored_bytes", "in_rate": "in_rate"}  # fmt: skip
_FLOW = {"depth": "depth", "in_flight_count": "in_flight", "deferred_count": "deferred",
         "requeue_count": "requeues", "timeout_count": "timeouts", "client_count": "clients",
         "oldest_age_seconds": "oldest_s", "in_rate": "in_rate",
         "out_rate": "finish_rate"}  # fmt: skip


def fields(one: object, names: Mapping[str, str]) -> Row:
    return {name: round(getattr(one, field), 3 if name == "oldest_age_seconds" else 1)
            for name, field in names.items()}  # fmt: skip


def look(
    members: Sequence[Node], topic: str = "", channel: str = "", clients: bool = False
) -> Snapshot:
    """Without rates."""
    from penstock.nsqadmin.snapshot import NodeState, Snapshot, make
    from penstock.nsqadmin.upstream import NsqdAddress

    query = stats_query(topic, channel, clients)

    def ask(node: Node) -> tuple[Row, float]:
        return node.document("/stats", query, "topics", "health"), time.monotonic()

    answers = ask_all(members, ask)
    states = {}
    for address in (node.address for node in members):
        state = states[address] = NodeState(address, NsqdAddress("", address, 0, 0, ""))
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
    show: Callable[[Snapshot, Snapshot], Output],
    pace: Pace,
    needs_answer: bool = True,
) -> int:
    """The exit code: 1 when a node did not answer. Those are named above what others say."""

    def rated(now: Snapshot, before: Snapshot | None) -> Output:
        failed = [node for node in now.nodes.values() if node.error]
        if needs_answer and len(failed) == len(now.nodes):
            raise PenstockError("; ".join(f"{node.address}: {node.error}" for node in failed))
        output = show(with_rates(now, before or now), before or now)
        errors = [f"{node.address}  {terminal.painted(node.error, terminal.RED)}"
                  for node in failed if needs_answer]  # fmt: skip
        return output._replace(lines=[*errors, *output.lines], code=FAILED if failed else DONE)

    return pace.watch(take, rated, take())


# --- channels ---

_FLOWING = (*figures("depth", "in_flight_count", "deferred_count"), *texts(oldest="OLDEST"),
            *figures("in_rate", "out_rate"))  # fmt: skip
_CHANNEL_COLUMNS = (
    *texts(name="CHANNEL"), *_FLOWING, *texts(empty_in="EMPTY IN"), *figures("client_count"),
)  # fmt: skip
_PART_COLUMNS = (*texts(partition="PARTITION", node="NODE"), *_FLOWING,
                 *figures("requeue_count", "timeout_count", "client_count"))  # fmt: skip
_CLIENT_COLUMNS = (
    *texts(client_id="CONSUMER", remote_address="ADDRESS", node="NODE"),
    *figures("in_flight_count", "ready_count", "out_rate", "finish_count", "requeue_count",
             "connected_seconds"),
)  # fmt: skip


def empty_s(channel: ChannelState) -> float | None:
    """Until nothing waits at the present rates. None: never. One that keeps up is empty: what its
    consumers have in hand is no backlog."""
    left = channel.depth
    if not left or (channel.finish_rate and left <= limits.ADMIN_KEEPS_UP_S * channel.in_rate):
        return 0.0
    gain = channel.finish_rate - channel.in_rate
    return left / gain if gain > 0 else None


def channels_output(
    now: Snapshot, before: Snapshot, found: Sequence[ChannelState], is_one: bool
) -> Output:
    topics: dict[str, Row] = {}
    for one in found:
        topics.setdefault(one.topic, {"channels": {}})["channels"][one.name] = _channel_row(one)
    nodes = {address: node.error or node.health for address, node in now.nodes.items()}
    document = {"nodes": nodes, "topics": topics, "consumers": consumers(now, before)}
    return Output(document, _channel_lines(document, found, is_one))


def _channel_row(one: ChannelState) -> Row:
    left_s = empty_s(one)
    parts = [{"partition": part.partition, **fields(part, _FLOW), "node": part.node}
             for part in one.partitions]  # fmt: skip
    return {
        **fields(one, _FLOW),
        "message_count": one.messages,
        "dead_letter_count": one.dead_letters,
        "paused": one.paused,
        "empty_seconds": None if left_s is None else round(left_s, 1),
        "nodes": one.nodes,
        **({"partitions": parts} if parts else {}),
    }


def _channel_lines(found: Row, order: Sequence[ChannelState], is_one: bool) -> list[str]:
    """With one channel its partitions and its consumers follow."""
    rows = []
    for one in order:
        row = found["topics"][one.topic]["channels"][one.name]
        name = f"{one.topic}/{one.name}" + (" (paused)" if one.paused else "")
        left_s = row["empty_seconds"]
        empty_in = "never" if left_s is None else _age(left_s)
        behind = _behind(row.get("partitions", ()))
        rows.append({**_aged(row), "name": name, "empty_in": empty_in, "behind": behind})
    if not rows:
        return ["no channels"]
    parts = [_aged(part) for row in rows for part in row.get("partitions", ())]
    lines = columns_table((*_CHANNEL_COLUMNS, *(texts(behind="BEHIND IN") if parts else ())), rows)
    if is_one and parts:
        lines += ["", *columns_table(_PART_COLUMNS, parts, left=2)]
    if is_one and found["consumers"]:
        clients = [{**one, "client_id": terminal.printable(one["client_id"] or one["hostname"]),
                    "remote_address": terminal.printable(one["remote_address"])}
                   for one in found["consumers"]]  # fmt: skip
        lines += ["", *columns_table(_CLIENT_COLUMNS, clients, left=3)]
    return lines


def _aged(row: Row) -> Row:
    return {**row, "oldest": _age(row["oldest_age_seconds"])}


def _age(seconds: float) -> str:
    return span(seconds) if seconds else "-"


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
    names = ("client_id", "hostname", "remote_address")
    counts = ("in_flight_count", "ready_count", "finish_count", "requeue_count", "message_count")
    for node in snapshot.nodes.values():
        for topic in node.document.get("topics") or ():
            for channel in topic.get("channels") or ():
                for row in channel.get("clients") or ():
                    connected_s = max(0, int(time.time()) - int(row.get("connect_ts") or 0))
                    yield {"node": node.address, **{name: row.get(name, "") for name in names},
                           **{name: row.get(name, 0) for name in counts},
                           "connected_seconds": connected_s}  # fmt: skip


# --- one topic ---

_TOPIC_COLUMNS = (*texts(partition="PARTITION", node="NODE"), *figures("message_count"),
                  *texts(offsets="OFFSETS"), *figures("stored_bytes", "in_rate"))  # fmt: skip


def topic_output(topic: TopicState, partition: int | None) -> Output:
    document = {
        "topic": topic.name,
        "nodes": topic.nodes,
        **fields(topic, _STORED),
        "paused": topic.paused,
        "channels": {name: one.depth for name, one in sorted(topic.channels.items())},
        "partitions": [_partition_row(topic, one) for one in _chosen(topic, partition)],
    }
    return Output(document, _topic_lines(document))


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
        **fields(one, _STORED),
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


def _topic_lines(found: Row) -> list[str]:
    """Below a channel's name stands what waits in it. A topic with one partition has the line of
    the total alone."""
    rows = []
    for one in found["partitions"]:
        refuses = " (refuses publishes)" if one["refusal"] else ""
        offsets = f"{one['start_offset']}-{one['end_offset']}"
        rows.append({**one, "partition": f"{one['partition']}{refuses}", "offsets": offsets})
    rows.append({**found, "partition": "total" + (" (paused)" if found["paused"] else "")})
    columns = (*_TOPIC_COLUMNS, *((name, f"in {name}", short) for name in found["channels"]))
    for row in rows:
        row |= {f"in {name}": depth for name, depth in row["channels"].items()}
    return columns_table(columns, rows, left=2)
