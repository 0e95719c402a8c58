"""`penstock node`: version, uptime, rates, free disk, time of the last sync; and `penstock drain`,
which takes a node out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.tools import completion, reports
from penstock.tools.app import Json, Yes, arg, group, switch, verb
from penstock.tools.app import app as verbs
from penstock.tools.connection import OTHERS_SECONDS_MAX, Http
from penstock.tools.nodes import Node, NodeFailed
from penstock.tools.output import FAILED, Output, Row, columns_table, confirm, figures, size, texts
from penstock.tools.reports import Pace

if TYPE_CHECKING:
    from penstock.nsqadmin.snapshot import NodeState, Snapshot, TopicState

# An official nsqd does not tell of its disk; there those columns are empty.
_NODE_COLUMNS = (
    *texts(node="NODE", version="VERSION", health="HEALTH"),
    *figures("up_seconds", "topic_count", "channel_count", "client_count", "depth", "in_rate",
             "out_rate"),
    *texts(disk_left="DISK LEFT", last_sync="LAST SYNC", unsynced="UNSYNCED"),
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
        synced_s, waits = row.get("last_sync_seconds_ago"), row.get("unsynced_bytes")
        synced = None if synced_s is None else f"{terminal.span(synced_s)} ago"
        shown.append({**row, "node": address, "health": wrong, "disk_left": left,
                      "last_sync": synced, "unsynced": size(waits) if waits else ""})  # fmt: skip
    return columns_table(_NODE_COLUMNS, shown, left=3)


def _lookupd(address: str, at: Http) -> Row:
    try:
        node = Node(address, OTHERS_SECONDS_MAX, at.where.tls())
        version = node.get("/info", None, "version")["version"]
        count = len(node.get("/nodes", None, "producers")["producers"])
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
        info = member.get("/info", None, "version")
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


# --- `penstock drain`: refuse publishes, deliver the rest, and stop ---

_LOOK_SECONDS = 0.5
_DRAIN_COLUMNS = texts(name="CHANNEL", depth="DEPTH", in_flight_count="IN FLIGHT",
                       deferred_count="DELAYED", client_count="CONN")  # fmt: skip
_DRAIN = ("state", "left", "channels", "topics")  # of nsqd's report


@verb(verbs, "drain --status", "drain --nsqd-http-address 127.0.0.1:4151 --yes --watch")
def drain(
    at: Http,
    status: Annotated[bool, switch("only show what is left")] = False,
    cancel: Annotated[bool, switch("call it off")] = False,
    no_delayed: Annotated[bool, switch("do not wait for delayed ones, which stay on disk")] = False,
    topics: Annotated[bool, switch("wait for topics without a channel")] = False,
    goes_on: Annotated[bool, switch("wait until it has stopped", "--watch")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> int:
    """Drain a node.

    Publishes are refused, deliveries go on, and the daemon stops when nothing is left. It takes one
    node, and asks first."""
    members = at.nodes(changes=not status)
    if len(members) != 1:
        found = ", ".join(node.address for node in members)
        raise NodeFailed(found, "name one node: a drain ends its daemon")
    node = members[0]
    if status or cancel:
        ask, path = (node.get, "/drain") if status else (node.post, "/drain/cancel")
        report = ask(path, None, *_DRAIN)
        return _output(node, report).print(as_json)
    confirm(yes, f"drain {node.address}, which then stops", node.address)
    wanted = {"delayed": not no_delayed, "topics": topics}
    report = node.post("/drain", wanted, *_DRAIN)
    code = _output(node, report)._replace(one_line=goes_on).print(as_json)
    return _watch(node, report["left"]).print(as_json) if goes_on else code


def _watch(node: Node, total: int) -> Output:
    """It answers until it has stopped."""
    report: Row = {"left": total, "state": "draining"}
    with terminal.Progress("drained") as progress:
        while report["state"] not in ("off", "stopped"):
            progress.show(max(0, total - report["left"]), total)
            time.sleep(_LOOK_SECONDS)
            try:
                report = node.get("/drain", None, *_DRAIN)
            except NodeFailed as error:
                if error.status:
                    raise
                report = {"state": "stopped", "left": 0}
    document = {"node": node.address, **report}
    if report["state"] == "stopped":
        return Output(document, [f"{node.address} has stopped"], one_line=True)
    text = f"{node.address} goes on: the drain was called off, {report['left']} are left"
    return Output(document, [text], FAILED, one_line=True)


def _output(node: Node, report: Row) -> Output:
    lines = [f"{report['state']}: {report['left']} left"]
    rows = [{**row, "name": f"{row['topic_name']}/{row['channel_name']}"}
            for row in report["channels"]]  # fmt: skip
    lines += columns_table(_DRAIN_COLUMNS, rows) if rows else []
    for row in report["topics"]:
        if not row["channel_count"]:
            lines.append(f"topic {row['topic_name']}: {row['depth']} that no channel wants")
    return Output({"node": node.address, **report}, lines)
