"""`penstock drain`: take a node out: refuse publishes, deliver the rest, and stop."""

import time
from typing import Annotated

from penstock.command import terminal
from penstock.tools.app import Json, Yes, app, switch, verb
from penstock.tools.connection import Http
from penstock.tools.nodes import Node, NodeFailed
from penstock.tools.output import DONE, FAILED, Column, Output, Row, columns_table, confirm

LOOK_SECONDS = 0.5
COLUMNS: tuple[Column, ...] = (
    ("CHANNEL", "name", str), ("DEPTH", "depth", str), ("IN FLIGHT", "in_flight_count", str),
    ("DELAYED", "deferred_count", str), ("CONN", "client_count", str),
)  # fmt: skip


@verb(app, "drain --status", "drain --nsqd-http-address 127.0.0.1:4151 --yes --watch")
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
        report = node.get("/drain") if status else node.post("/drain/cancel")
        return _output(node, report).print(as_json)
    confirm(yes, f"drain {node.address}, which then stops", node.address)
    report = node.post("/drain", {"delayed": not no_delayed, "topics": topics})
    _output(node, report)._replace(one_line=goes_on).print(as_json)
    return _watch(node, report["left"]).print(as_json) if goes_on else DONE


def _watch(node: Node, total: int) -> Output:
    """It answers until it has stopped."""
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
    return Output({"node": node.address, **report}, [line], code, one_line=True)


def _output(node: Node, report: Row) -> Output:
    lines = [f"{report['state']}: {report['left']} left"]
    rows = [{**row, "name": f"{row['topic_name']}/{row['channel_name']}"}
            for row in report["channels"]]  # fmt: skip
    lines += columns_table(COLUMNS, rows) if rows else []
    for row in report["topics"]:
        if not row["channel_count"]:
            lines.append(f"topic {row['topic_name']}: {row['depth']} that no channel wants")
    return Output({"node": node.address, **report}, lines)
