"""`penstock stats`: depth, flow and health of topics and channels, once or again and again.

Of a topic that is named the partitions are shown, too, where it has several.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Literal

from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.tools import reports
from penstock.tools.app import Limit, OnlyChannel, OnlyTopic, app, opt, verb
from penstock.tools.connection import Http
from penstock.tools.output import Output, Row, columns_table, figures, texts
from penstock.tools.reports import Pace

if TYPE_CHECKING:
    from penstock.nsqadmin.snapshot import Snapshot

COLUMNS = (
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
            reports.need_answer(now)
            if topic and topic not in now.topics:
                raise PenstockError(f"no such topic: {topic}")
        found = reports.document(now, rated=before is not None)
        rows = _rows(found["topics"], sort, bool(topic), before is not None)[: limit or None]
        table = columns_table(COLUMNS, rows) if rows else ["no topics"]
        return Output(found, [*_node_lines(now), "", *table])

    return pace.watch(at.members(), show, topic, channel, at_once=True)


def _node_lines(now: Snapshot) -> Iterator[str]:
    for address, node in now.nodes.items():
        if node.error:
            continue
        is_well = node.health.startswith("OK")  # there may be a warning behind it
        shown = terminal.painted(node.health, terminal.GREEN if is_well else terminal.RED)
        up = terminal.span(time.time() - node.start_s)
        yield f"{address}  v{node.document.get('version', '')}  up {up}  {shown}"
    for address, why in reports.failures(now).items():
        yield f"{address}  {terminal.painted(why, terminal.RED)}"


def _rows(topics: Row, sort: str, with_parts: bool, rated: bool) -> list[Row]:
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
        rows.append(_row(topic, channel, row, nested, rated))
        if nested and with_parts:
            parts = sorted(row.get("partitions", ()), key=itemgetter("partition", "node"))
            rows += _part_rows(parts, "    " if channel else "  ")
    return rows


def _row(topic: str, channel: str, row: Row, nested: bool, rated: bool) -> Row:
    name = f"  {channel}" if channel and nested else "/".join(filter(None, (topic, channel)))
    shown = row if channel else {field: row[field] for field in _OF_TOPICS}
    rate = terminal.short(row["rate"]) if rated else "-"
    return {**shown, "rate": rate, "name": name + (" (paused)" if row["paused"] else "")}


def _part_rows(parts: Sequence[Row], indent: str) -> Iterator[Row]:
    """Lines below that of their topic or channel. Rates are of the whole alone."""
    is_of_several = len({part["node"] for part in parts}) > 1
    for part in parts:
        name = f"{indent}partition {part['partition']}"
        yield {**part, "name": f"{name} on {part['node']}" if is_of_several else name}
