"""`penstock drain`: take a node out: refuse publishes, deliver what is there, and stop."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from penstock.command import terminal
from penstock.tools import nodes
from penstock.tools.verbs import (
    DONE,
    FAILED,
    VerbParser,
    add_json,
    add_yes,
    confirm,
    print_json,
    run_verb,
)

LOOK_SECONDS = 0.5


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock drain",
        description="Publishes are refused, deliveries go on, and the daemon stops when nothing is "
        "left. It takes one node, and asks first.",
        examples=[
            "penstock drain --status",
            "penstock drain --nsqd-http-address 127.0.0.1:4151 --yes --watch",
        ],
    )
    add_yes(parser)
    parser.add_argument("--status", action="store_true", help="only show what is left")
    parser.add_argument("--cancel", action="store_true", help="call it off")
    parser.add_argument("--no-delayed", action="store_true", help="do not wait for delayed ones: "
                        "they are on disk, and due after the next start")  # fmt: skip
    parser.add_argument("--topics", action="store_true", help="wait for topics without a channel")
    parser.add_argument("--watch", action="store_true", help="wait until it has stopped")
    add_json(parser)
    nodes.add_arguments(parser)
    parser.set_defaults(verb="drain")
    return parser


def drain_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    members = nodes.nodes(arguments, changes=not arguments.status)
    if len(members) != 1:
        found = ", ".join(node.address for node in members)
        raise nodes.NodeFailed(found, "name one node: a drain ends its daemon")
    node = members[0]
    if arguments.status:
        return _tell(node, node.get("/drain"), arguments)
    if arguments.cancel:
        return _tell(node, node.post("/drain/cancel"), arguments)
    if not confirm(arguments, f"drain {node.address}, which then stops", node.address):
        return FAILED
    parameters = {
        "delayed": "false" if arguments.no_delayed else "true",
        "topics": "true" if arguments.topics else "false",
    }
    report = node.post("/drain", parameters)
    _tell(node, report, arguments)
    return _watch(node, report["left"], arguments) if arguments.watch else DONE


def _watch(node: nodes.Node, total: int, arguments: argparse.Namespace) -> int:
    """It answers until it has stopped, and then no more."""
    progress = terminal.Progress("drained", total)
    report: dict[str, Any] = {"left": total, "state": "draining"}
    while report["state"] != "off":
        progress.show(max(0, total - report["left"]))
        time.sleep(LOOK_SECONDS)
        try:
            report = node.get("/drain")
        except nodes.NodeFailed as error:
            progress.end()
            if error.status:
                raise
            gone = {"state": "stopped", "left": 0}
            return _end(DONE, {"node": node.address, **gone}, "has stopped", arguments)
    progress.end()
    text = f"goes on: the drain was called off, {report['left']} are left"
    return _end(FAILED, {"node": node.address, **report}, text, arguments)


def _end(code: int, report: dict[str, Any], text: str, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print_json(report, indent=None)
    else:
        print(f"{report['node']} {text}")
    return code


def _tell(node: nodes.Node, report: dict[str, Any], arguments: argparse.Namespace) -> int:
    if arguments.json:
        print_json({"node": node.address, **report}, indent=None if arguments.watch else 2)
        return DONE
    print(f"{report['state']}: {report['left']} left")
    rows = [
        [
            f"{row['topic_name']}/{row['channel_name']}",
            str(row["depth"]),
            str(row["in_flight_count"]),
            str(row["deferred_count"]),
            str(row["client_count"]),
        ]
        for row in report["channels"]
    ]
    if rows:
        heads = ("CHANNEL", "DEPTH", "IN FLIGHT", "DELAYED", "CONN")
        print("\n".join(terminal.table(heads, rows)))
    for row in report["topics"]:
        if not row["channel_count"]:
            print(f"topic {row['topic_name']}: {row['depth']} that no channel wants")
    return DONE
