"""`penstock stats`: depth, flow and health of topics and channels, once or again and again.

Of a topic that is named the partitions are shown, too, where it has several.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Annotated, Literal, TypeVar

from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.nsqdapi.calls import stats_query
from penstock.tools.app import Json, Limit, OnlyChannel, OnlyTopic, group, opt, switch, verb
from penstock.tools.connection import Http, Options
from penstock.tools.nodes import Node, ask_all
from penstock.tools.output import DONE, FAILED, Output, Row, columns_table, figures, texts

T = TypeVar("T")
Key = tuple[str, str]  # topic, channel ("" for the topic itself)

COLUMNS = (
    *texts(name="TOPIC / CHANNEL"),
    *figures("depth", "in_flight_count", "deferred_count", "message_count"),
    *texts(rate="RATE/s"),
    *figures("requeue_count", "timeout_count", "client_count"),
)
SUMMED = ("depth", "in_flight_count", "deferred_count", "message_count", "requeue_count",
          "timeout_count", "client_count")  # fmt: skip
_OF_TOPICS = ("depth", "message_count")
_SORTS = {"depth": "depth", "in-flight": "in_flight_count", "delayed": "deferred_count",
          "messages": "message_count", "requeued": "requeue_count", "timed-out": "timeout_count",
          "connections": "client_count"}  # fmt: skip
Sort = Literal["name", "rate", "depth", "in-flight", "delayed", "messages", "requeued", "timed-out",
               "connections"]  # fmt: skip

app = group("")


class Look:
    """The state of all nodes at one moment."""

    def __init__(self, documents: dict[str, Row], failures: dict[str, str]) -> None:
        self.at = time.monotonic()
        self.documents = documents
        self.failures = failures
        self.rows: dict[Key, Row] = {}
        self.parts: dict[Key, list[Row]] = {}  # by partition, where a node has several
        for node, document in documents.items():
            for topic in document["topics"] or ():
                self._add(node, (topic["topic_name"], ""), topic)
                for channel in topic["channels"]:
                    self._add(node, (topic["topic_name"], channel["channel_name"]), channel)

    def _add(self, node: str, key: Key, row: Row) -> None:
        total = self.rows.setdefault(key, dict.fromkeys(SUMMED, 0) | {"paused": False})
        for name in SUMMED:
            total[name] += row.get(name, 0)
        total["paused"] = total["paused"] or row["paused"]
        for part in row.get("partitions") or ():
            counts = {name: part[name] for name in SUMMED if name in part}
            place = {"node": node, "partition": part["partition"]}
            self.parts.setdefault(key, []).append({**place, **counts})

    def reasons(self) -> str:
        return "; ".join(f"{address}: {why}" for address, why in self.failures.items())

    def as_json(self, before: Look | None = None) -> Row:
        topics: dict[str, Row] = {}
        flow = rates(self, before)
        for (topic, channel), row in sorted(self.rows.items()):
            shown = {**row, "rate": round(flow.get((topic, channel), 0.0), 1)}
            if parts := self.parts.get((topic, channel)):
                shown["partitions"] = parts
            if channel:
                topics[topic]["channels"][channel] = shown
            else:
                topics[topic] = {**shown, "channels": {}}
        health = {address: document["health"] for address, document in self.documents.items()}
        return {"nodes": {**health, **self.failures}, "topics": topics}

    def output(self, document: Row, names: Sequence[str]) -> Output:
        """Names of topics or channels, for people."""
        reasons = [f"{address}: {reason}" for address, reason in self.failures.items()]
        return Output(document, names, FAILED if self.failures else DONE, reasons)


def look(members: Sequence[Node], topic: str = "", channel: str = "") -> Look:
    query = stats_query(topic, channel)
    found = ask_all(members, lambda node: node.document("/stats", query, "topics", "health"))
    return Look(found.good, {address: error.reason for address, error in found.bad.items()})


def rates(now: Look, before: Look | None) -> dict[Key, float]:
    """Messages a second into each topic and channel."""
    if before is None:
        return {}
    seconds = max(now.at - before.at, 1e-9)
    return {
        key: max(0, row["message_count"] - before.rows[key]["message_count"]) / seconds
        for key, row in now.rows.items()
        if key in before.rows
    }


class Pace(Options):
    """How often a report comes, and in which form."""

    as_json: Json = False
    goes_on: Annotated[bool, switch("--watch", "go on, until Ctrl-C")] = False
    interval: Annotated[float, opt("SECONDS", "between two looks", min=0.1, max=3600)] = 1.0
    count: Annotated[int, opt("N", "stop after N reports")] = 0

    def watch(
        self, take: Callable[[], T], show: Callable[[T, T | None], Output], before: T | None
    ) -> int:
        """Show what is taken, once or until Ctrl-C; first at once, or an interval after `before`.
        The exit code: that of the last output, 0 after Ctrl-C."""
        try:
            for shown in itertools.count(1):
                if before is not None:
                    time.sleep(self.interval)
                now = take()
                output = show(now, before)._replace(one_line=self.goes_on)
                if self.goes_on and not self.as_json and terminal.is_watched(sys.stdout):
                    sys.stdout.write("\x1b[H\x1b[2J")
                code = output.print(self.as_json)
                if not self.goes_on or shown == self.count:
                    return code
                before = now
        except KeyboardInterrupt:
            if not self.goes_on:
                raise
        return DONE  # it was meant to go on until then


@verb(app, "penstock stats orders", "penstock stats --watch --sort rate --limit 20")
def stats(
    at: Http,
    pace: Pace,
    topic: OnlyTopic = "",
    channel: OnlyChannel = "",
    sort: Annotated[Sort, opt("", "most first")] = "name",
    limit: Limit = 0,
) -> int:
    """Show depth, counts and rates, summed over the nodes; one node speaks for its cluster."""

    def show(now: Look, before: Look | None) -> Output:
        if not now.documents and not pace.goes_on:
            raise PenstockError(now.reasons())
        rows = _rows(now, before, sort, bool(topic))[: limit or None]
        table = columns_table(COLUMNS, rows) if rows else ["no topics"]
        code = FAILED if now.failures else DONE
        lines = [*_node_lines(now), "", *table]
        return Output(now.as_json(before), lines, code)

    members = at.members()
    return pace.watch(lambda: look(members, topic, channel), show, None)


def _node_lines(now: Look) -> list[str]:
    lines = []
    for address, document in now.documents.items():
        health = document["health"]
        is_well = health.startswith("OK")  # there may be a warning behind it
        shown = terminal.painted(health, terminal.GREEN if is_well else terminal.RED)
        up = terminal.span(time.time() - document["start_time"])
        lines.append(f"{address}  v{document['version']}  up {up}  {shown}")
    failures = now.failures.items()
    return lines + [f"{one}  {terminal.painted(why, terminal.RED)}" for one, why in failures]


def _rows(now: Look, before: Look | None, sort: str, with_parts: bool) -> list[Row]:
    """By name, channels below their topics; or what has most first."""
    flow = rates(now, before)
    keys, nested = sorted(now.rows), sort == "name"
    if field := _SORTS.get(sort):
        keys.sort(key=lambda key: now.rows[key][field], reverse=True)
    elif not nested:
        keys.sort(key=lambda key: flow.get(key, 0.0), reverse=True)
    rows = []
    for key in keys:
        rate = terminal.short(flow[key]) if key in flow else "-"
        rows.append(_row(key, now.rows[key], nested) | {"rate": rate})
        if nested and with_parts:
            parts = sorted(now.parts.get(key, ()), key=itemgetter("partition", "node"))
            rows += [_part_row(key, part, len(now.documents) > 1) for part in parts]
    return rows


def _row(key: Key, row: Row, nested: bool) -> Row:
    channel = key[1]
    name = f"  {channel}" if channel and nested else "/".join(filter(None, key))
    shown = row if channel else {field: row[field] for field in _OF_TOPICS}
    return {**shown, "name": name + (" (paused)" if row["paused"] else "")}


def _part_row(key: Key, part: Row, several_nodes: bool) -> Row:
    """A line below that of its topic or channel. Rates are of the whole alone."""
    name = f"{'    ' if key[1] else '  '}partition {part['partition']}"
    return {**part, "name": f"{name} on {part['node']}" if several_nodes else name}
