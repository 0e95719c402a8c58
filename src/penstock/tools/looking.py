"""Looks at all nodes, one behind the other: what reports with rates are made of.

The sums and rates are nsqadmin's (`snapshot`), so a figure on the command line is the one on its
pages. A rate needs two looks; the first one is never shown.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock.command import terminal
from penstock.nsqdapi.calls import stats_query
from penstock.tools.nodes import Node, NodeFailed
from penstock.tools.verbs import DONE, FAILED

if TYPE_CHECKING:
    from penstock.nsqadmin.snapshot import NodeState, Snapshot

_AT_ONCE_MAX = 16  # nodes that are asked at the same time
_CLEAR = "\x1b[H\x1b[2J"
INTERVAL_SECONDS = (0.1, 3600.0)


def look(
    members: Sequence[Node], topic: str = "", channel: str = "", clients: bool = False
) -> Snapshot:
    """Without rates."""
    from penstock.nsqadmin.snapshot import NodeState, Snapshot, make
    from penstock.nsqadmin.upstream import Producer

    query = stats_query(topic, channel, clients)

    def ask(node: Node) -> NodeState:
        state = NodeState(node.address, Producer("", node.address, 0, 0, ""))
        try:
            state.document = node.document("/stats", query, "topics", "health")
            state.answered_s = time.monotonic()
        except NodeFailed as error:
            state.error = error.reason
        return state

    with ThreadPoolExecutor(min(_AT_ONCE_MAX, max(1, len(members)))) as pool:
        states = {state.address: state for state in pool.map(ask, members)}
    return make(time.time(), states, (), (), Snapshot())


def with_rates(now: Snapshot, before: Snapshot) -> Snapshot:
    from penstock.nsqadmin.snapshot import make

    return make(now.time_s, now.nodes, now.topics, (), before)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--watch", action="store_true", help="go on, until Ctrl-C")
    parser.add_argument(
        "--interval",
        type=interval,
        default=1.0,
        metavar="SECONDS",
        help="between two looks: rates are over this many (1)",
    )
    parser.add_argument("--count", type=int, default=0, metavar="N", help="stop after N reports")


def interval(text: str) -> float:
    low, high = INTERVAL_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not low <= seconds <= high:
        rule = f"is no number of seconds from {low:g} to {high:g}"
        raise argparse.ArgumentTypeError(f"{text!r} {rule}")
    return seconds


def report(
    arguments: argparse.Namespace,
    take: Callable[[], Snapshot],
    show: Callable[[Snapshot, Snapshot], None],
) -> int:
    """Show once, or again and again with `--watch`. The exit code: 1 when a node did not answer."""
    clears = arguments.watch and not arguments.json and terminal.is_watched(sys.stdout)
    try:
        before = take()
        for shown in itertools.count(1):
            time.sleep(arguments.interval)
            now = take()
            if clears:
                sys.stdout.write(_CLEAR)
            show(with_rates(now, before), before)
            if not arguments.watch or shown == arguments.count:
                break
            before = now
    except KeyboardInterrupt:
        if not arguments.watch:
            raise
        return DONE  # it was meant to go on until then
    return FAILED if any(node.error for node in now.nodes.values()) else DONE


def node_errors(now: Snapshot) -> list[str]:
    """Lines about nodes that do not answer."""
    return [
        f"{node.address}  {terminal.painted(node.error, terminal.RED)}"
        for node in now.nodes.values()
        if node.error
    ]
