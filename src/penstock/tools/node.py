"""`penstock node`: version, uptime, rates, free disk, time of the last sync."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.tools import completion, reports
from penstock.tools.app import arg, group, verb
from penstock.tools.connection import Http
from penstock.tools.nodes import Node, NodeFailed
from penstock.tools.output import Column, Output, Row, columns_table, figures, size, texts
from penstock.tools.reports import Pace

if TYPE_CHECKING:
    from penstock.nsqadmin.snapshot import NodeState, Snapshot, TopicState

# An official nsqd does not tell of its disk; there those columns are empty.
_NODE_COLUMNS: tuple[Column, ...] = (
    *texts(node="NODE", version="VERSION", health="HEALTH"),
    *figures("up_seconds", "topic_count", "channel_count", "client_count", "depth", "in_rate",
             "out_rate"),
    *texts(disk_left="DISK LEFT"),
    ("LAST SYNC", "last_sync_seconds_ago", lambda seconds: f"{terminal.span(seconds)} ago"),
    ("UNSYNCED", "unsynced_bytes", lambda count: size(count) if count else ""),
)  # fmt: skip
_TOPIC_COLUMNS = (*texts(name="TOPIC"), *figures("depth", "channel_count", "in_rate",
                                                 "stored_bytes", "unsynced_bytes"))  # fmt: skip
_NODE = {"depth": "depth", "in_flight_count": "in_flight", "deferred_count": "deferred",
         "in_rate": "in_rate", "out_rate": "out_rate", "stored_bytes": "stored_bytes",
         "unsynced_bytes": "unsynced_bytes"}  # fmt: skip
_TOPIC = {"depth": "backlog", "message_count": "messages", "in_rate": "in_rate",
          "stored_bytes": "stored_bytes", "unsynced_bytes": "unsynced_bytes"}  # fmt: skip
_SUMMED = ("topic_count", "channel_count", "client_count", *_NODE)

app = group(
    "The nsqds, and the nsqlookupds that know them.", "node list", "node show 127.0.0.1:4151"
)


@verb(app, "node list --watch --count 2", "node list --json", name="list")
def list_nodes(at: Http, pace: Pace) -> int:
    """List the nsqds with their total."""

    def output(now: Snapshot, before: Snapshot | None) -> Output:
        rows = {address: _node_row(now, node) for address, node in now.nodes.items()}
        total = {name: sum(row.get(name, 0) for row in rows.values()) for name in _SUMMED}
        total["topic_count"] = len(now.topics)  # the same topic on two nodes is one
        total["channel_count"] = sum(len(topic.channels) for topic in now.topics.values())
        lookupds = {one: _lookupd(one, at) for one in at.where.context.lookupd_http_address}
        lines = _node_lines(rows | ({"total": total} if len(rows) > 1 else {}))
        document = {"nodes": rows, "lookupds": lookupds, "total": total}
        return Output(document, [*lines, *_lookupd_lines(lookupds)])

    return pace.watch(at.members(), output)


def _node_row(now: Snapshot, node: NodeState) -> Row:
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
        "client_count": sum(channel.get("client_count") or 0 for channel in channels),
        **reports.fields(node, _NODE),
        **{name: disk.get(name.removeprefix("disk_")) for name in
           ("disk_free_bytes", "disk_size_bytes", "last_sync_seconds_ago", "sync_slowest_seconds")},
    }  # fmt: skip


def _node_lines(rows: Mapping[str, Row]) -> list[str]:
    shown = []
    for address, row in rows.items():
        free, of = row.get("disk_free_bytes"), row.get("disk_size_bytes")
        health = "draining" if row.get("draining") else row.get("health")
        wrong = terminal.painted(row["error"], terminal.RED) if "error" in row else health
        left = f"{size(free)} ({100 * free // of} %)" if free and of else None
        shown.append({**row, "node": address, "health": wrong, "disk_left": left})
    return columns_table(_NODE_COLUMNS, shown, left=3)


def _lookupd(address: str, at: Http) -> Row:
    try:
        node = Node(address, tls=at.where.tls())
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


@verb(app, "node show", "node show 127.0.0.1:4151 --json")
def show(
    at: Http,
    pace: Pace,
    node: Annotated[
        str, arg("ADDRESS", "when there are more", autocompletion=completion.nodes)
    ] = "",
) -> int:
    """Show one nsqd with its topics."""
    member = _the_one(at.nodes(), node)

    def output(now: Snapshot, before: Snapshot | None) -> Output:
        info = member.document("/info")
        names = "hostname", "broadcast_address", "tcp_port", "http_port"
        row = {name: info.get(name) for name in names}
        row |= _node_row(now, now.nodes[member.address])
        lines = [member.address, *(f"  {name:<22} {_text(value)}" for name, value in row.items())]
        topics = {name: _topic_row(now.topics[name]) for name in sorted(now.topics)}
        shown = [{**one, "name": name} for name, one in topics.items()]
        table = columns_table(_TOPIC_COLUMNS, shown) if shown else ["no topics"]
        return Output({"node": member.address, **row, "topics": topics}, [*lines, "", *table])

    return pace.report([member], output)


def _topic_row(topic: TopicState) -> Row:
    return {**reports.fields(topic, _TOPIC), "channel_count": len(topic.channels),
            "paused": topic.paused, "refusals": topic.refusals}  # fmt: skip


def _the_one(members: Sequence[Node], address: str) -> Node:
    chosen = [one for one in members if not address or one.address == address]
    if len(chosen) == 1:
        return chosen[0]
    there_are = ", ".join(one.address for one in members)
    what = f"there is no node {address}" if address else "name one"
    raise PenstockError(f"{what}; there are {there_are}")


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
