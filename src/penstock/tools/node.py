"""`penstock node`: version, uptime, what flows, disk left, how long ago it was synced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.tools import completion, reports
from penstock.tools.app import arg, group, verb
from penstock.tools.connection import Http
from penstock.tools.nodes import Node, NodeFailed
from penstock.tools.output import Row, columns_table
from penstock.tools.stats import Pace

if TYPE_CHECKING:
    from penstock.nsqadmin.snapshot import Snapshot

_SUMMED = ("topic_count", "channel_count", "client_count", "depth", "in_flight_count",
           "deferred_count", "in_rate", "out_rate", "stored_bytes", "unsynced_bytes")  # fmt: skip

app = group(
    "The nsqds, and the nsqlookupds that know them.",
    "penstock node list",
    "penstock node show 127.0.0.1:4151",
)


@verb(app, "penstock node list --watch --count 2", "penstock node list --json", name="list")
def list_nodes(at: Http, pace: Pace) -> int:
    """One line for each, and their sum."""

    def document(now: Snapshot, before: Snapshot) -> Row:
        rows = {address: reports.node_row(now, node) for address, node in now.nodes.items()}
        total = {name: sum(row.get(name, 0) for row in rows.values()) for name in _SUMMED}
        total["topic_count"] = len(now.topics)  # the same topic on two nodes is one
        total["channel_count"] = sum(len(topic.channels) for topic in now.topics.values())
        lookupds = at.where.context.lookupd_http_address
        return {"nodes": rows, "lookupds": {one: _lookupd(one, at) for one in lookupds},
                "total": total}  # fmt: skip

    def lines(found: Row, now: Snapshot) -> list[str]:
        total = {"total": found["total"]} if len(found["nodes"]) > 1 else {}
        return [*reports.node_lines(found["nodes"] | total), *_lookupd_lines(found["lookupds"])]

    members = at.nodes()
    return reports.report(lambda: reports.look(members), document, lines, pace)


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


@verb(app, "penstock node show", "penstock node show 127.0.0.1:4151 --json")
def show(
    at: Http,
    pace: Pace,
    node: Annotated[
        str, arg("ADDRESS", "when there are more", autocompletion=completion.nodes)
    ] = "",
) -> int:
    """One of them, with its topics."""
    member = _the_one(at.nodes(), node)

    def document(now: Snapshot, before: Snapshot) -> Row:
        reports.need_answer(now)
        info = member.document("/info")
        own = {name: info.get(name) for name in
               ("hostname", "broadcast_address", "tcp_port", "http_port")}  # fmt: skip
        topics = {name: reports.topic_row(now.topics[name]) for name in sorted(now.topics)}
        row = reports.node_row(now, now.nodes[member.address])
        return {"node": member.address, **own, **row, "topics": topics}

    return reports.report(lambda: reports.look([member]), document, _one_node, pace)


def _the_one(members: Sequence[Node], address: str) -> Node:
    chosen = [one for one in members if not address or one.address == address]
    if len(chosen) == 1:
        return chosen[0]
    there_are = ", ".join(one.address for one in members)
    what = f"there is no node {address}" if address else "name one"
    raise PenstockError(f"{what}; there are {there_are}")


def _one_node(found: Row, now: Snapshot) -> list[str]:
    fields = {name: value for name, value in found.items() if name not in ("node", "topics")}
    lines = [found["node"], *(f"  {name:<22} {_text(value)}" for name, value in fields.items()), ""]
    topics = [{**row, "name": name} for name, row in found["topics"].items()]
    return lines + (columns_table(reports.TOPIC_COLUMNS, topics) if topics else ["no topics"])


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
