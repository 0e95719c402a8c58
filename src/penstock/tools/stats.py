"""`penstock stats`: depth, flow and health of topics and channels, once or again and again.

Of a topic that is named the partitions are shown, too, where it has several.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.nsqdapi.calls import stats_query
from penstock.tools import nodes
from penstock.tools.looking import interval
from penstock.tools.verbs import DONE, FAILED, VerbParser, add_json, print_json, run_verb

Row = dict[str, Any]
Key = tuple[str, str]  # topic, channel ("" for the topic itself)

SUMMED = (
    "depth",
    "in_flight_count",
    "deferred_count",
    "message_count",
    "requeue_count",
    "timeout_count",
    "client_count",
)
SORTS = {
    "depth": "depth",
    "in-flight": "in_flight_count",
    "delayed": "deferred_count",
    "messages": "message_count",
    "rate": "",  # it is no field of a row
    "requeued": "requeue_count",
    "timed-out": "timeout_count",
    "connections": "client_count",
}
HEADS = ("", "DEPTH", "IN FLIGHT", "DELAYED", "MESSAGES", "RATE/s", "REQUEUED", "TIMED OUT", "CONN")


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock stats",
        description="What flows and what waits, summed over the nodes.",
        examples=["penstock stats orders", "penstock stats --watch --sort rate --limit 20"],
    )
    parser.add_argument("topic", nargs="?", default="", metavar="TOPIC", help="only this one")
    parser.add_argument("channel", nargs="?", default="", metavar="CHANNEL", help="only this one")
    parser.add_argument("--watch", action="store_true", help="go on, with rates")
    parser.add_argument(
        "--interval", type=interval, default=2.0, metavar="SECONDS", help="between looks (2)"
    )
    parser.add_argument("--count", type=int, default=0, metavar="N", help="stop after N looks")
    add_json(parser)
    parser.add_argument("--sort", choices=("name", *SORTS), default="name", help="most first")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="only the first N lines")
    nodes.add_arguments(parser)
    return parser


def stats_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


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


def look(members: Sequence[nodes.Node], topic: str, channel: str) -> Look:
    documents: dict[str, Row] = {}
    failures: dict[str, str] = {}
    query = stats_query(topic, channel)
    for node in members:
        try:
            documents[node.address] = node.document("/stats", query, "topics", "health")
        except nodes.NodeFailed as error:
            failures[node.address] = error.reason
    return Look(documents, failures)


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


def _run(arguments: argparse.Namespace) -> int:
    members = nodes.nodes(arguments)
    before: Look | None = None
    looks = 0
    while True:
        now = look(members, arguments.topic, arguments.channel)
        if not now.documents and not arguments.watch:
            raise PenstockError("; ".join(f"{a}: {why}" for a, why in now.failures.items()))
        _show(now, rates(now, before), arguments)
        looks += 1
        if not arguments.watch or looks == arguments.count:
            return FAILED if now.failures else DONE
        before = now
        try:
            time.sleep(arguments.interval)
        except KeyboardInterrupt:
            return DONE


def _show(now: Look, flow: dict[Key, float], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(as_json(now, flow), indent=None if arguments.watch else 2)
        return
    lines = [*_node_lines(now), *_table(now, flow, arguments)]
    if arguments.watch and terminal.is_watched(sys.stdout):
        sys.stdout.write("\x1b[H\x1b[2J")
    print("\n".join(lines), flush=True)


def as_json(now: Look, flow: dict[Key, float]) -> Row:
    topics: dict[str, Row] = {}
    for (topic, channel), row in sorted(now.rows.items()):
        shown = {**row, "rate": round(flow.get((topic, channel), 0.0), 1)}
        if parts := now.parts.get((topic, channel)):
            shown["partitions"] = parts
        if channel:
            topics[topic]["channels"][channel] = shown
        else:
            topics[topic] = {**shown, "channels": {}}
    health = {address: document["health"] for address, document in now.documents.items()}
    return {"nodes": {**health, **now.failures}, "topics": topics}


def _node_lines(now: Look) -> list[str]:
    lines = []
    for address, document in now.documents.items():
        healthy = document["health"].startswith("OK")  # there may be a warning behind it
        health = terminal.painted(
            document["health"], terminal.GREEN if healthy else terminal.RED, sys.stdout
        )
        up = terminal.span(time.time() - document["start_time"])
        lines.append(f"{address}  v{document['version']}  up {up}  {health}")
    lines += [
        f"{address}  {terminal.painted(reason, terminal.RED)}"
        for address, reason in now.failures.items()
    ]
    return [*lines, ""]


def _table(now: Look, flow: dict[Key, float], arguments: argparse.Namespace) -> list[str]:
    if not now.rows:
        return ["no topics"]
    keys = ordered(now, flow, arguments.sort)
    keys = keys[: arguments.limit] if arguments.limit > 0 else keys
    nested = arguments.sort == "name"
    rows = []
    for key in keys:
        rows.append(_cells(key, now.rows[key], flow.get(key), nested))
        if nested and arguments.topic:
            rows += [_part_cells(key, part, len(now.documents) > 1) for part in _parts(now, key)]
    return terminal.table(("TOPIC / CHANNEL", *HEADS[1:]), rows)


def ordered(now: Look, flow: dict[Key, float], sort: str) -> list[Key]:
    """By name, or what has most first."""
    keys = sorted(now.rows)
    field = SORTS.get(sort, "")
    if field:
        keys.sort(key=lambda key: now.rows[key][field], reverse=True)
    elif sort != "name":
        keys.sort(key=lambda key: flow.get(key, 0.0), reverse=True)
    return keys


def _parts(now: Look, key: Key) -> list[Row]:
    return sorted(now.parts.get(key, ()), key=lambda part: (part["partition"], part["node"]))


def _part_cells(key: Key, part: Row, several_nodes: bool) -> list[str]:
    """A line below that of its topic or channel. Rates are of the whole alone."""
    indent = "    " if key[1] else "  "
    name = f"{indent}partition {part['partition']}"
    if several_nodes:
        name += f" on {part['node']}"
    depth, in_flight, delayed, messages, requeued, timed_out, connections = (
        terminal.short(part[name]) if name in part else "" for name in SUMMED
    )
    return [name, depth, in_flight, delayed, messages, "", requeued, timed_out, connections]


def _cells(key: Key, row: Row, rate: float | None, nested: bool) -> list[str]:
    channel = key[1]
    name = f"  {channel}" if channel and nested else "/".join(filter(None, key))
    if row["paused"]:
        name += " (paused)"
    numbers = [terminal.short(row[name]) for name in SUMMED]
    shown_rate = "-" if rate is None else terminal.short(rate)
    depth, in_flight, delayed, messages, requeued, timed_out, connections = numbers
    if not channel:
        return [name, depth, "", "", messages, shown_rate, "", "", ""]
    cells = [depth, in_flight, delayed, messages, shown_rate, requeued, timed_out, connections]
    return [name, *cells]
