"""Reports on topics and channels: the requests to the nodes, and their interval; those on nodes are
in `node.py`.

The sums and rates are nsqadmin's (`snapshot`), so a figure on the command line is the one on its
pages. For programs there is one document of topics and their channels; what people see are columns
of it. A rate needs two looks.

    CHANNEL         DEPTH  IN FLIGHT  DELAYED  OLDEST  IN/s  OUT/s  EMPTY IN  CONN
    orders/billing  12k          100        0   3m12s   950   1.2k     48s       4

`OLDEST` is the age of the oldest unfinished message, `EMPTY IN` the time until nothing is left at
the present rates; "never" when more comes than goes. A channel that is up to date in all partitions
but one looks well in a sum. So, where topics have several, `BEHIND IN` names the partition in which
most waits and how many wait there.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal

from penstock import limits
from penstock.command import terminal
from penstock.command.terminal import short, span
from penstock.errors import PenstockError
from penstock.nsqdapi.calls import stats_query
from penstock.tools.app import Json, Limit, OnlyChannel, OnlyTopic, app, opt, switch, verb
from penstock.tools.connection import Http, Options
from penstock.tools.nodes import Node, ask_all
from penstock.tools.output import DONE, FAILED, Output, Row, columns_table, figures, texts

if TYPE_CHECKING:
    from penstock.nsqadmin.snapshot import ChannelState, Part, Snapshot, TopicState

# What a snapshot has, under the names of /stats.
COUNTS = {"depth": "depth", "in_flight_count": "in_flight", "deferred_count": "deferred",
          "message_count": "messages", "requeue_count": "requeues", "timeout_count": "timeouts",
          "client_count": "clients"}  # fmt: skip
_STORED = {"depth": "depth", "message_count": "messages", "message_bytes": "message_bytes",
           "stored_bytes": "stored_bytes", "in_rate": "in_rate"}  # fmt: skip
_FLOW = {"in_rate": "in_rate", "out_rate": "finish_rate"}
_AGE = {"oldest_age_seconds": "oldest_s"}


def fields(one: object, names: Mapping[str, str]) -> Row:
    return {name: round(getattr(one, field), 3 if name in _AGE else 1)
            for name, field in names.items()}  # fmt: skip


# --- looks ---


def look(
    members: Sequence[Node], topic: str = "", channel: str = "", clients: bool = False
) -> Snapshot:
    """Without rates."""
    from penstock.nsqadmin.snapshot import NodeState, Snapshot, make
    from penstock.nsqadmin.upstream import NsqdAddress

    query = stats_query(topic, channel, clients)

    def ask(node: Node) -> tuple[Row, float]:
        return node.get("/stats", query, "topics", "health"), time.monotonic()

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


def failures(now: Snapshot) -> Row:
    """Why nodes did not answer, by address."""
    return {address: node.error for address, node in now.nodes.items() if node.error}


def need_answer(now: Snapshot) -> Snapshot:
    """PenstockError when no node has answered."""
    failed = failures(now)
    if len(failed) == len(now.nodes):
        raise PenstockError("; ".join(f"{address}: {why}" for address, why in failed.items()))
    return now


def failure_lines(now: Snapshot) -> Iterator[str]:
    for address, why in failures(now).items():
        yield f"{address}  {terminal.painted(why, terminal.RED)}"


Show = Callable[["Snapshot", "Snapshot | None"], Output]  # what is now, and what was before


class Pace(Options):
    """The interval of a report, and its form."""

    as_json: Json = False
    goes_on: Annotated[bool, switch("go on, until Ctrl-C", "--watch")] = False
    interval: Annotated[float, opt("SECONDS", "between two looks", min=0.1, max=3600)] = 1.0
    count: Annotated[int, opt("N", "stop after N reports", min=0)] = 0

    def watch(
        self, members: Sequence[Node], show: Show, *wanted: Any, at_once: bool = False
    ) -> int:
        """Show a `look`, once or until Ctrl-C. Rates are between two looks, and the first is not
        shown, unless `at_once`: then it has none. Returns the exit code: 1 when a node did not
        answer, 0 after Ctrl-C."""
        before = None if at_once else look(members, *wanted)
        try:
            for shown in itertools.count(1):
                if before is not None:
                    time.sleep(self.interval)
                now = look(members, *wanted)
                if before is not None:
                    now = with_rates(now, before)
                self._print(show(now, before))
                code = FAILED if failures(now) else DONE
                if not self.goes_on or shown == self.count:
                    return code
                before = now
        except KeyboardInterrupt:
            if not self.goes_on:
                raise
        return DONE  # it was meant to go on until then

    def report(self, members: Sequence[Node], show: Show, *wanted: Any) -> int:
        """With rates, and silent nodes above the others' figures."""

        def below(now: Snapshot, before: Snapshot | None) -> Output:
            need_answer(now)
            output = show(now, before)
            return output._replace(lines=[*failure_lines(now), *output.lines])

        return self.watch(members, below, *wanted)

    def _print(self, output: Output) -> None:
        if self.goes_on and not self.as_json and terminal.is_watched(sys.stdout):
            sys.stdout.write("\x1b[H\x1b[2J")
        output._replace(one_line=self.goes_on).print(self.as_json)


def names_output(now: Snapshot, document: Row, names: Iterable[str]) -> Output:
    failed = failures(now)
    errors = [f"{address}: {why}" for address, why in failed.items()]
    return Output(document, names, FAILED if failed else DONE, errors)


# --- topics and channels, for programs ---


def document(
    now: Snapshot, rated: bool = False, chosen: Iterable[ChannelState] | None = None
) -> Row:
    """`chosen`: only these channels. What follows from rates is there when these are."""
    topics: dict[str, Row] = {}
    if chosen is None:
        topics = {name: _topic_row(topic) for name, topic in sorted(now.topics.items())}
        chosen = sorted(now.channels(), key=lambda one: (one.topic, one.name))
    for one in chosen:
        above = topics.setdefault(one.topic, {"channels": {}})
        above["channels"][one.name] = _channel_row(one, rated)
    nodes = {address: node.error or node.health for address, node in now.nodes.items()}
    return {"nodes": nodes, "topics": topics}


def _topic_row(topic: TopicState) -> Row:
    counts = {"depth": topic.depth, "message_count": topic.messages}
    own = {"paused": topic.paused, "rate": round(topic.in_rate, 1), **_parts(topic, False)}
    return {**dict.fromkeys(COUNTS, 0), **counts, **own, "channels": {}}


def _channel_row(one: ChannelState, rated: bool) -> Row:
    row = {**fields(one, COUNTS), "paused": one.paused, "rate": round(one.in_rate, 1)}
    row |= {**fields(one, _AGE), "dead_letter_count": one.dead_letters, "nodes": one.nodes}
    if rated:
        left_s = empty_s(one)
        row |= {**fields(one, _FLOW), "empty_seconds": None if left_s is None else round(left_s, 1)}
    return {**row, **_parts(one, rated)}


def _parts(of: TopicState | ChannelState, rated: bool) -> Row:
    """The partitions on each node, where there are several: counts, and for a channel the
    rates."""
    found = [
        {"node": one.node, "partition": one.partition,
         **{name: one.row[name] for name in COUNTS if name in one.row},
         **({**fields(one, _FLOW), **fields(one, _AGE)} if rated else {})}
        for one in of.partitions
    ]  # fmt: skip
    return {"partitions": found} if found else {}


def empty_s(channel: ChannelState) -> float | None:
    """The time until nothing waits at the present rates. None: never. A channel that keeps up is
    empty: messages in flight are no backlog."""
    left = channel.depth
    if not left or (channel.finish_rate and left <= limits.ADMIN_KEEPS_UP_S * channel.in_rate):
        return 0.0
    gain = channel.finish_rate - channel.in_rate
    return left / gain if gain > 0 else None


# --- channels, for people ---

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


def channels_output(
    now: Snapshot, before: Snapshot | None, order: Sequence[ChannelState], is_one: bool
) -> Output:
    """A single channel is followed by its partitions and its consumers."""
    found = document(now, True, order) | {"consumers": consumers(now, before or now)}
    rows = []
    for one in order:
        row = found["topics"][one.topic]["channels"][one.name]
        name = f"{one.topic}/{one.name}" + (" (paused)" if one.paused else "")
        left_s = row["empty_seconds"]
        empty_in = "never" if left_s is None else _age(left_s)
        behind = _behind(row.get("partitions", ()))
        rows.append({**_aged(row), "name": name, "empty_in": empty_in, "behind": behind})
    if not rows:
        return Output(found, ["no channels"])
    parts = [_aged(part) for row in rows for part in row.get("partitions", ())]
    lines = columns_table((*_CHANNEL_COLUMNS, *(texts(behind="BEHIND IN") if parts else ())), rows)
    if is_one and parts:
        lines += ["", *columns_table(_PART_COLUMNS, parts, left=2)]
    if is_one and found["consumers"]:
        clients = [{**one, "client_id": terminal.printable(one["client_id"] or one["hostname"]),
                    "remote_address": terminal.printable(one["remote_address"])}
                   for one in found["consumers"]]  # fmt: skip
        lines += ["", *columns_table(_CLIENT_COLUMNS, clients, left=3)]
    return Output(found, lines)


def _aged(row: Row) -> Row:
    return {**row, "oldest": _age(row["oldest_age_seconds"])}


def _age(seconds: float) -> str:
    return span(seconds) if seconds else "-"


def _behind(parts: Sequence[Row]) -> str:
    """ "3: 12k": the backlog of the partition with most."""
    worst = max(parts, key=lambda part: int(part["depth"]), default=None)
    return f"{worst['partition']}: {short(worst['depth'])}" if worst and worst["depth"] else "-"


def consumers(now: Snapshot, before: Snapshot) -> list[Row]:
    """Of the requested channel, those with most in flight first."""
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


# --- `penstock stats`: topics and channels, once or again and again ---

_STATS_COLUMNS = (
    *texts(name="TOPIC / CHANNEL"),
    *figures("depth", "in_flight_count", "deferred_count", "message_count"),
    *texts(rate="RATE/s"),
    *figures("requeue_count", "timeout_count", "client_count"),
)
_OF_TOPICS = ("depth", "message_count", "rate")
_SORTS = {"rate": "rate", "depth": "depth", "in-flight": "in_flight_count",
          "delayed": "deferred_count", "messages": "message_count", "requeued": "requeue_count",
          "timed-out": "timeout_count", "connections": "client_count"}  # fmt: skip
Sort = Literal["name", "rate", "depth", "in-flight", "delayed", "messages", "requeued", "timed-out",
               "connections"]  # fmt: skip


@verb(app, "stats orders", "stats --watch --sort rate --limit 20")
def stats(
    at: Http,
    pace: Pace,
    topic: OnlyTopic = "",
    channel: OnlyChannel = "",
    sort: Annotated[Sort, opt("", "most first")] = "name",
    limit: Limit = 0,
) -> int:
    """Show depth, counts and rates, summed over the nodes; one node speaks for its cluster."""

    def show(now: Snapshot, before: Snapshot | None) -> Output:
        if not pace.goes_on:
            need_answer(now)
            if topic and topic not in now.topics:
                raise PenstockError(f"no such topic: {topic}")
        found = document(now, rated=before is not None)
        rows = _stats_rows(found["topics"], sort, bool(topic), before is not None)[: limit or None]
        table = columns_table(_STATS_COLUMNS, rows) if rows else ["no topics"]
        return Output(found, [*_node_lines(now), "", *table])

    return pace.watch(at.members(), show, topic, channel, at_once=True)


def _node_lines(now: Snapshot) -> Iterator[str]:
    for address, node in now.nodes.items():
        if node.error:
            continue
        is_well = node.health.startswith("OK")  # there may be a warning behind it
        shown = terminal.painted(node.health, terminal.GREEN if is_well else terminal.RED)
        up = span(time.time() - node.start_s)
        yield f"{address}  v{node.document.get('version', '')}  up {up}  {shown}"
    yield from failure_lines(now)


def _stats_rows(topics: Row, sort: str, with_parts: bool, rated: bool) -> list[Row]:
    """By name, channels below their topics; or the largest first."""
    found: list[tuple[str, str, Row]] = []
    for topic, row in topics.items():
        channels = row["channels"].items()
        found += [(topic, "", row), *((topic, name, below) for name, below in channels)]
    nested = sort == "name"
    if not nested:
        found.sort(key=lambda one: one[2][_SORTS[sort]], reverse=True)
    rows = []
    for topic, channel, row in found:
        rows.append(_stats_row(topic, channel, row, nested, rated))
        if nested and with_parts:
            parts = sorted(row.get("partitions", ()), key=itemgetter("partition", "node"))
            rows += _part_rows(parts, "    " if channel else "  ")
    return rows


def _stats_row(topic: str, channel: str, row: Row, nested: bool, rated: bool) -> Row:
    name = f"  {channel}" if channel and nested else "/".join(filter(None, (topic, channel)))
    shown = row if channel else {field: row[field] for field in _OF_TOPICS}
    rate = short(row["rate"]) if rated else "-"
    return {**shown, "rate": rate, "name": name + (" (paused)" if row["paused"] else "")}


def _part_rows(parts: Sequence[Row], indent: str) -> Iterator[Row]:
    """Lines below that of their topic or channel. Rates are of the whole alone."""
    is_of_several = len({part["node"] for part in parts}) > 1
    for part in parts:
        name = f"{indent}partition {part['partition']}"
        yield {**part, "name": f"{name} on {part['node']}" if is_of_several else name}


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


def _partition_row(topic: TopicState, one: Part) -> Row:
    waits = {
        name: part.depth
        for name, channel in sorted(topic.channels.items())
        for part in channel.partitions
        if (part.node, part.partition) == (one.node, one.partition)
    }
    return {
        "partition": one.partition,
        "node": one.node,
        **{name: one.row.get(name, 0) for name in _STORED},
        "in_rate": round(one.in_rate, 1),
        "start_offset": one.row.get("start_offset", 0),
        "end_offset": one.row.get("committed_end", 0),
        "refusal": one.row.get("refusal", ""),
        "channels": waits,
    }


def _chosen(topic: TopicState, partition: int | None) -> list[Part]:
    if partition is None or (partition == 0 and not topic.partitions):
        return topic.partitions
    found = [one for one in topic.partitions if one.partition == partition]
    if not found:
        raise PenstockError(f"topic {topic.name} has no partition {partition}")
    return found


def _topic_lines(found: Row) -> list[str]:
    """The backlog is below a channel's name. Where nodes do not list partitions there is one line:
    of partition 0, or of the total over several nodes."""
    rows = []
    for one in found["partitions"]:
        refuses = " (refuses publishes)" if one["refusal"] else ""
        offsets = f"{one['start_offset']}-{one['end_offset']}"
        rows.append({**one, "partition": f"{one['partition']}{refuses}", "offsets": offsets})
    name, one = "total", {}
    if not rows and len(found["nodes"]) == 1:
        name, one = "0", {"node": found["nodes"][0]}
    rows.append({**found, **one, "partition": name + (" (paused)" if found["paused"] else "")})
    columns = (*_TOPIC_COLUMNS, *((name, f"in {name}", short) for name in found["channels"]))
    for row in rows:
        row |= {f"in {name}": depth for name, depth in row["channels"].items()}
    return columns_table(columns, rows, left=2)
