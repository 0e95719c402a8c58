"""`penstock drain`: take a node out: refuse publishes, deliver what is there, and stop."""

from __future__ import annotations

import time
from typing import Annotated

from penstock.command import terminal
from penstock.tools.app import Json, Yes, group, switch, verb
from penstock.tools.connection import Http
from penstock.tools.nodes import Node, NodeFailed
from penstock.tools.output import DONE, FAILED, Column, Row, columns_table, confirm, tell

LOOK_SECONDS = 0.5
COLUMNS: tuple[Column, ...] = (
    ("CHANNEL", "name", str), ("DEPTH", "depth", str), ("IN FLIGHT", "in_flight_count", str),
    ("DELAYED", "deferred_count", str), ("CONN", "client_count", str),
)  # fmt: skip

app = group("")


@verb(
    app,
    "penstock drain --status",
    "penstock drain --nsqd-http-address 127.0.0.1:4151 --yes --watch",
)
def drain(
    at: Http,
    status: Annotated[bool, switch("--status", "only show what is left")] = False,
    cancel: Annotated[bool, switch("--cancel", "call it off")] = False,
    no_delayed: Annotated[
        bool, switch("--no-delayed", "do not wait for delayed ones, which stay on disk")
    ] = False,
    topics: Annotated[bool, switch("--topics", "wait for topics without a channel")] = False,
    goes_on: Annotated[bool, switch("--watch", "wait until it has stopped")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> int:
    """Take a node out.

    Publishes are refused, deliveries go on, and the daemon stops when nothing is left. It takes one
    node, and asks first."""
    members = at.nodes(changes=not status)
    if len(members) != 1:
        found = ", ".join(node.address for node in members)
        raise NodeFailed(found, "name one node: a drain ends its daemon")
    node = members[0]
    if status or cancel:
        return _tell(node, node.get("/drain") if status else node.post("/drain/cancel"), as_json)
    if not confirm(yes, f"drain {node.address}, which then stops", node.address):
        return FAILED
    wanted = {"delayed": not no_delayed, "topics": topics}
    report = node.post("/drain", {name: str(value).lower() for name, value in wanted.items()})
    _tell(node, report, as_json, goes_on)
    return _watch(node, report["left"], as_json) if goes_on else DONE


def _watch(node: Node, total: int, as_json: bool) -> int:
    """It answers until it has stopped, and then no more."""
    report: Row = {"left": total, "state": "draining"}
    code, text = FAILED, "goes on: the drain was called off, {left} are left"
    with terminal.Progress("drained", total) as progress:
        while report["state"] not in ("off", "stopped"):
            progress.show(max(0, total - report["left"]))
            time.sleep(LOOK_SECONDS)
            try:
                report = node.get("/drain")
            except NodeFailed as error:
                if error.status:
                    raise
                code, text, report = DONE, "has stopped", {"state": "stopped", "left": 0}
    line = f"{node.address} {text.format_map(report)}"
    tell(as_json, {"node": node.address, **report}, [line], one_line=True)
    return code


def _tell(node: Node, report: Row, as_json: bool, one_line: bool = False) -> int:
    lines = [f"{report['state']}: {report['left']} left"]
    rows = [{**row, "name": f"{row['topic_name']}/{row['channel_name']}"}
            for row in report["channels"]]  # fmt: skip
    if rows:
        lines += columns_table(COLUMNS, rows)
    for row in report["topics"]:
        if not row["channel_count"]:
            lines.append(f"topic {row['topic_name']}: {row['depth']} that no channel wants")
    return tell(as_json, {"node": node.address, **report}, lines, one_line)
