"""`penstock channel report`: which channels fall behind, and who reads them.

    CHANNEL         DEPTH  IN FLIGHT  DELAYED  OLDEST  IN/s  OUT/s  EMPTY IN  CONN
    orders/billing  12k          100        0   3m12s   950   1.2k     48s       4

`OLDEST` is the age of the oldest unfinished message, `EMPTY IN` the time until nothing is left at
the present rates; "never" when more comes than goes. With a channel its consumers follow.

A channel that is up to date in all partitions but one looks well in a sum. So, where topics have
several, `BEHIND IN` names the partition in which most waits and how many wait there; with a channel
all of its partitions follow.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.nsqadmin.split import ChannelPart, behind
from penstock.tools import looking, nodes
from penstock.tools.verbs import VerbParser, add_json, print_json

if TYPE_CHECKING:
    from penstock.nsqadmin.snapshot import ChannelState, Snapshot

Row = dict[str, Any]

HEADS = ("CHANNEL", "DEPTH", "IN FLIGHT", "DELAYED", "OLDEST", "IN/s", "OUT/s", "EMPTY IN", "CONN")
PARTITION_HEADS = ("PARTITION", "NODE", "DEPTH", "IN FLIGHT", "DELAYED", "OLDEST", "IN/s", "OUT/s",
                   "REQUEUED", "TIMED OUT", "CONN")  # fmt: skip
CLIENT_HEADS = ("CONSUMER", "ADDRESS", "NODE", "IN FLIGHT", "READY", "OUT/s", "FINISHED",
                "REQUEUED", "CONNECTED")  # fmt: skip
SORTS: Mapping[str, Callable[[ChannelState], float]] = {
    "depth": lambda one: one.depth + one.in_flight,
    "oldest": lambda one: one.oldest_s,
    "in": lambda one: one.in_rate,
    "out": lambda one: one.finish_rate,
    "in-flight": lambda one: one.in_flight,
    "delayed": lambda one: one.deferred,
}


def add_parser(verbs: argparse._SubParsersAction[VerbParser]) -> None:
    report = verbs.add_parser(
        "report",
        help="depth, age of the oldest, rates, time until empty; of one channel its consumers too",
        examples=[
            "penstock channel report --sort oldest --limit 10",
            "penstock channel report orders billing --watch --count 2",
        ],
    )
    report.add_argument("topic", nargs="?", default="", metavar="TOPIC", help="only this one")
    report.add_argument("channel", nargs="?", default="", metavar="CHANNEL", help="only this one")
    report.add_argument(
        "--sort", choices=("name", *SORTS), default="depth", help="most first (depth)"
    )
    report.add_argument("--limit", type=int, default=0, metavar="N", help="only the first N")
    looking.add_arguments(report)
    add_json(report)
    nodes.add_arguments(report)


def run(arguments: argparse.Namespace) -> int:
    members = nodes.nodes(arguments)
    topic, channel = arguments.topic, arguments.channel
    take = partial(looking.look, members, topic, channel, bool(channel))
    return looking.report(arguments, take, partial(_show, arguments))


def _show(arguments: argparse.Namespace, now: Snapshot, before: Snapshot) -> None:
    if all(node.error for node in now.nodes.values()):
        reasons = [f"{node.address}: {node.error}" for node in now.nodes.values()]
        raise PenstockError("; ".join(reasons))
    found = chosen(now, arguments)
    if arguments.topic and not found and not arguments.watch:
        name = " ".join(filter(None, (arguments.topic, arguments.channel)))
        raise PenstockError(f"no such channel: {name}")
    if arguments.json:
        print_json(as_json(now, before, found), None if arguments.watch else 2)
        return
    lines = looking.node_errors(now)
    lines += _table(found) if found else ["no channels"]
    parts = [part for one in found for part in one.partitions] if arguments.channel else []
    if parts:
        cells = [_partition_cells(part) for part in parts]
        lines += ["", *terminal.table(PARTITION_HEADS, cells, left=2)]
    clients = consumers(now, before) if arguments.channel else []
    if clients:
        cells = [_client_cells(one) for one in clients]
        lines += ["", *terminal.table(CLIENT_HEADS, cells, left=3)]
    print("\n".join(lines), flush=True)


def chosen(now: Snapshot, arguments: argparse.Namespace) -> list[ChannelState]:
    found = sorted(now.channels(), key=lambda one: (one.topic, one.name))
    if arguments.sort != "name":
        found.sort(key=SORTS[arguments.sort], reverse=True)
    return found[: arguments.limit] if arguments.limit > 0 else found


def empty_s(channel: ChannelState) -> float | None:
    """Until nothing waits at the present rates. None: never. One that keeps up is empty: what its
    consumers have in hand is no backlog."""
    left = channel.depth
    if not left or (channel.finish_rate and left <= limits.ADMIN_KEEPS_UP_S * channel.in_rate):
        return 0.0
    gain = channel.finish_rate - channel.in_rate
    return left / gain if gain > 0 else None


def as_json(now: Snapshot, before: Snapshot, found: list[ChannelState]) -> Row:
    topics: dict[str, Row] = {}
    for one in found:
        topics.setdefault(one.topic, {"channels": {}})["channels"][one.name] = channel_row(one)
    return {
        "nodes": {address: node.error or node.health for address, node in now.nodes.items()},
        "topics": topics,
        "consumers": consumers(now, before),
    }


def channel_row(one: ChannelState) -> Row:
    left_s = empty_s(one)
    return {
        "depth": one.depth,
        "in_flight_count": one.in_flight,
        "deferred_count": one.deferred,
        "message_count": one.messages,
        "requeue_count": one.requeues,
        "timeout_count": one.timeouts,
        "dead_letter_count": one.dead_letters,
        "client_count": one.clients,
        "paused": one.paused,
        "oldest_age_seconds": round(one.oldest_s, 3),
        "in_rate": round(one.in_rate, 1),
        "out_rate": round(one.finish_rate, 1),
        "empty_seconds": None if left_s is None else round(left_s, 1),
        "nodes": one.nodes,
        **({"partitions": [_partition_row(part) for part in one.partitions]}
           if one.partitions else {}),
    }  # fmt: skip


def _partition_row(part: ChannelPart) -> Row:
    return {
        "partition": part.partition,
        "node": part.node,
        "depth": part.depth,
        "in_flight_count": part.in_flight,
        "deferred_count": part.deferred,
        "requeue_count": part.requeues,
        "timeout_count": part.timeouts,
        "client_count": part.clients,
        "oldest_age_seconds": round(part.oldest_s, 3),
        "in_rate": round(part.in_rate, 1),
        "out_rate": round(part.finish_rate, 1),
    }


def _table(found: list[ChannelState]) -> list[str]:
    if not any(one.partitions for one in found):
        return terminal.table(HEADS, [_cells(one) for one in found])
    rows = [[*_cells(one), _behind(one)] for one in found]
    return terminal.table((*HEADS, "BEHIND IN"), rows)


def _behind(one: ChannelState) -> str:
    """ "3: 12k": what waits in the partition in which most does."""
    worst = behind(one.partitions)
    return f"{worst.partition}: {terminal.short(worst.depth)}" if worst else "-"


def _partition_cells(part: ChannelPart) -> list[str]:
    return [
        str(part.partition),
        part.node,
        terminal.short(part.depth),
        terminal.short(part.in_flight),
        terminal.short(part.deferred),
        terminal.span(part.oldest_s) if part.oldest_s else "-",
        terminal.short(part.in_rate),
        terminal.short(part.finish_rate),
        terminal.short(part.requeues),
        terminal.short(part.timeouts),
        terminal.short(part.clients),
    ]


def _cells(one: ChannelState) -> list[str]:
    left_s = empty_s(one)
    return [
        f"{one.topic}/{one.name}" + (" (paused)" if one.paused else ""),
        terminal.short(one.depth),
        terminal.short(one.in_flight),
        terminal.short(one.deferred),
        terminal.span(one.oldest_s) if one.oldest_s else "-",
        terminal.short(one.in_rate),
        terminal.short(one.finish_rate),
        "never" if left_s is None else terminal.span(left_s) if left_s else "-",
        terminal.short(one.clients),
    ]


# --- who reads ---


def consumers(now: Snapshot, before: Snapshot) -> list[Row]:
    """Of the channel that was asked about, those with most in flight first."""
    earlier = {(one["node"], one["remote_address"]): one for one in _clients(before)}
    rows = list(_clients(now))
    for row in rows:
        known = earlier.get((row["node"], row["remote_address"]))
        seconds = now.time_s - before.time_s
        done = row["finish_count"] - known["finish_count"] if known else 0
        row["out_rate"] = round(max(0, done) / seconds, 1) if seconds > 0 else 0.0
    return sorted(rows, key=lambda row: (-row["in_flight_count"], row["remote_address"]))


def _clients(snapshot: Snapshot) -> Iterator[Row]:
    for node in snapshot.nodes.values():
        for topic in node.document.get("topics") or ():
            for channel in topic.get("channels") or ():
                for row in channel.get("clients") or ():
                    yield _client_row(node.address, row)


def _client_row(address: str, row: Mapping[str, Any]) -> Row:
    counts = ("in_flight_count", "ready_count", "finish_count", "requeue_count", "message_count")
    return {
        "node": address,
        **{name: row.get(name, "") for name in ("client_id", "hostname", "remote_address")},
        **{name: row.get(name, 0) for name in counts},
        "connected_seconds": max(0, int(time.time()) - int(row.get("connect_ts") or 0)),
    }


def _client_cells(row: Row) -> list[str]:
    return [
        terminal.printable(row["client_id"] or row["hostname"]),
        terminal.printable(row["remote_address"]),
        row["node"],
        terminal.short(row["in_flight_count"]),
        terminal.short(row["ready_count"]),
        terminal.short(row["out_rate"]),
        terminal.short(row["finish_count"]),
        terminal.short(row["requeue_count"]),
        terminal.span(row["connected_seconds"]),
    ]
