"""`penstock node`: version, uptime, what flows, disk left, how long ago it was synced.

An official nsqd does not tell of its disk; there those columns are empty.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.tools import looking, nodes, where
from penstock.tools.nodes import Node, NodeFailed
from penstock.tools.verbs import VerbParser, add_json, print_json, run_verb
from penstock.tools.where import Where

if TYPE_CHECKING:
    from penstock.nsqadmin.snapshot import NodeState, Snapshot

Row = dict[str, Any]

HEADS = ("NODE", "VERSION", "HEALTH", "UP", "TOPICS", "CHANNELS", "CONN", "DEPTH", "IN/s", "OUT/s",
         "DISK LEFT", "LAST SYNC", "UNSYNCED")  # fmt: skip
_SUMMED = ("topic_count", "channel_count", "client_count", "depth", "in_flight_count",
           "deferred_count", "in_rate", "out_rate", "stored_bytes", "unsynced_bytes")  # fmt: skip


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock node",
        description="The nsqds, and the nsqlookupds that know them.",
        examples=["penstock node list", "penstock node show 127.0.0.1:4151"],
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser(
        "list",
        help="one line each, and their sum",
        examples=["penstock node list --watch --count 2", "penstock node list --json"],
    )
    show = verbs.add_parser(
        "show",
        help="one of them, with its topics",
        examples=["penstock node show", "penstock node show 127.0.0.1:4151 --json"],
    )
    show.add_argument("node", nargs="?", default="", metavar="ADDRESS", help="when there are more")
    for below in (listing, show):
        looking.add_arguments(below)
        add_json(below)
        nodes.add_arguments(below)
    return parser


def node_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    found = where.find(arguments)
    members = nodes.nodes_of(found)
    if arguments.verb == "list":
        take = partial(looking.look, members)
        return looking.report(arguments, take, partial(_show_list, arguments, found))
    member = _the_one(members, arguments.node)
    take = partial(looking.look, [member])
    return looking.report(arguments, take, partial(_show_one, arguments, member))


def _the_one(members: Sequence[Node], address: str) -> Node:
    chosen = [one for one in members if not address or one.address == address]
    if len(chosen) == 1:
        return chosen[0]
    there_are = ", ".join(one.address for one in members)
    what = f"there is no node {address}" if address else "name one"
    raise PenstockError(f"{what}; there are {there_are}")


# --- all ---


def _show_list(
    arguments: argparse.Namespace, found: Where, now: Snapshot, before: Snapshot
) -> None:
    rows = {address: node_row(now, node) for address, node in now.nodes.items()}
    lookupds = {one: _lookupd(one, found) for one in found.context.lookupd_http_address}
    total = {name: sum(row.get(name, 0) for row in rows.values()) for name in _SUMMED}
    total["topic_count"] = len(now.topics)  # the same topic on two nodes is one
    total["channel_count"] = sum(len(topic.channels) for topic in now.topics.values())
    if arguments.json:
        document = {"nodes": rows, "lookupds": lookupds, "total": total}
        print_json(document, None if arguments.watch else 2)
        return
    cells = [_cells(address, row) for address, row in rows.items()]
    if len(cells) > 1:
        cells.append(_cells("total", total | {"version": "", "health": ""}))
    lines = terminal.table(HEADS, cells, left=3)
    lines += _lookupd_lines(lookupds)
    print("\n".join(lines), flush=True)


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
        "disk_free_bytes": disk.get("free_bytes"),
        "disk_size_bytes": disk.get("size_bytes"),
        "last_sync_seconds_ago": disk.get("last_sync_seconds_ago"),
        "sync_slowest_seconds": disk.get("sync_slowest_seconds"),
    }


def _sum(rows: Sequence[Row], name: str) -> int:
    return sum(row.get(name) or 0 for row in rows)


def _cells(address: str, row: Row) -> list[str]:
    if "error" in row:
        return [address, "", terminal.painted(row["error"], terminal.RED), *[""] * 10]
    health = "draining" if row.get("draining") else row["health"]
    free, size = row.get("disk_free_bytes"), row.get("disk_size_bytes")
    ago = row.get("last_sync_seconds_ago")
    return [
        address,
        row["version"],
        health,
        terminal.span(row["up_seconds"]) if "up_seconds" in row else "",
        *(terminal.short(row[name]) for name in ("topic_count", "channel_count", "client_count")),
        *(terminal.short(row[name]) for name in ("depth", "in_rate", "out_rate")),
        f"{terminal.short(free)}B ({100 * free // size} %)" if free and size else "",
        "" if ago is None else f"{terminal.span(ago)} ago",
        f"{terminal.short(row['unsynced_bytes'])}B" if row.get("unsynced_bytes") else "",
    ]


def _lookupd(address: str, found: Where) -> Row:
    try:
        node = Node(address, tls=found.tls())
        version = node.document("/info", None, "version")["version"]
        count = len(node.document("/nodes", None, "producers")["producers"])
    except NodeFailed as error:
        return {"error": error.reason}
    return {"version": version, "node_count": count}


def _lookupd_lines(lookupds: dict[str, Row]) -> list[str]:
    if not lookupds:
        return []
    rows = [
        [address, row.get("version", ""), str(row.get("node_count", row.get("error")))]
        for address, row in lookupds.items()
    ]
    return ["", *terminal.table(("NSQLOOKUPD", "VERSION", "NODES"), rows, left=2)]


# --- one ---


def _show_one(arguments: argparse.Namespace, member: Node, now: Snapshot, before: Snapshot) -> None:
    state = now.nodes[member.address]
    if state.error:
        raise PenstockError(f"{member.address}: {state.error}")
    info = member.document("/info")
    own = ("hostname", "broadcast_address", "tcp_port", "http_port")
    row = {name: info.get(name) for name in own} | node_row(now, state)
    topics = {name: _topic_row(now, name) for name in sorted(now.topics)}
    if arguments.json:
        document = {"node": member.address, **row, "topics": topics}
        print_json(document, None if arguments.watch else 2)
        return
    lines = [member.address, *(f"  {name:<22} {_text(value)}" for name, value in row.items()), ""]
    heads = ("TOPIC", "DEPTH", "CHANNELS", "IN/s", "STORED", "UNSYNCED")
    cells = [
        [name, *(terminal.short(topics[name][key]) for key in
                 ("depth", "channel_count", "in_rate", "stored_bytes", "unsynced_bytes"))]
        for name in topics
    ]  # fmt: skip
    lines += terminal.table(heads, cells) if cells else ["no topics"]
    print("\n".join(lines), flush=True)


def _topic_row(now: Snapshot, name: str) -> Row:
    topic = now.topics[name]
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


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
