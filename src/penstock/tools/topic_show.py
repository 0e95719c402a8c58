"""`penstock topic show`: one topic, its partitions, and how far each channel is behind in them.

    PARTITION  NODE            MESSAGES  OFFSETS  STORED  IN/s  billing  mail
    0          127.0.0.1:4151         2      0-2    300B     0        0     0
    1          127.0.0.1:4151        36     0-36   2.1kB     0       36     0
    total                            38            2.4kB     0       36     0

Below a channel's name stands what waits in it. A topic with one partition has the line of the total
alone.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.tools import looking, nodes
from penstock.tools.verbs import VerbParser, add_json, print_json

if TYPE_CHECKING:
    from penstock.nsqadmin.snapshot import Snapshot, TopicState
    from penstock.nsqadmin.split import TopicPart

Row = dict[str, Any]

HEADS = ("PARTITION", "NODE", "MESSAGES", "OFFSETS", "STORED", "IN/s")


def add_parser(verbs: argparse._SubParsersAction[VerbParser]) -> None:
    show = verbs.add_parser(
        "show",
        help="its partitions, and how far each channel is behind in them",
        examples=["penstock topic show orders", "penstock topic show orders --watch --count 2"],
    )
    show.add_argument("topic", metavar="TOPIC")
    show.add_argument("--partition", type=int, metavar="N", help="only this one")
    looking.add_arguments(show)
    add_json(show)
    nodes.add_arguments(show)


def run(arguments: argparse.Namespace) -> int:
    take = partial(looking.look, nodes.nodes(arguments), arguments.topic)
    return looking.report(arguments, take, partial(_show, arguments))


def _show(arguments: argparse.Namespace, now: Snapshot, before: Snapshot) -> None:
    if all(node.error for node in now.nodes.values()):
        reasons = [f"{node.address}: {node.error}" for node in now.nodes.values()]
        raise PenstockError("; ".join(reasons))
    topic = now.topics.get(arguments.topic)
    if topic is None:
        raise PenstockError(f"no such topic: {arguments.topic}")
    parts = _chosen(topic, arguments.partition)
    if arguments.json:
        print_json(as_json(topic, parts), None if arguments.watch else 2)
        return
    lines = [*looking.node_errors(now), *_lines(topic, parts)]
    print("\n".join(lines), flush=True)


def _chosen(topic: TopicState, partition: int | None) -> list[TopicPart]:
    if partition is None or (partition == 0 and not topic.partitions):
        return topic.partitions
    found = [one for one in topic.partitions if one.partition == partition]
    if not found:
        raise PenstockError(f"topic {topic.name} has no partition {partition}")
    return found


def as_json(topic: TopicState, parts: list[TopicPart]) -> Row:
    waits = _waits(topic)
    return {
        "topic": topic.name,
        "nodes": topic.nodes,
        "depth": topic.depth,
        "message_count": topic.messages,
        "message_bytes": topic.message_bytes,
        "stored_bytes": topic.stored_bytes,
        "in_rate": round(topic.in_rate, 1),
        "paused": topic.paused,
        "channels": {name: one.depth for name, one in sorted(topic.channels.items())},
        "partitions": [
            {
                "partition": one.partition,
                "node": one.node,
                "depth": one.depth,
                "message_count": one.messages,
                "message_bytes": one.message_bytes,
                "start_offset": one.start_offset,
                "end_offset": one.end_offset,
                "stored_bytes": one.stored_bytes,
                "refusal": one.refusal,
                "in_rate": round(one.in_rate, 1),
                "channels": {
                    name: waits[one.node, one.partition, name] for name in sorted(topic.channels)
                },
            }
            for one in parts
        ],
    }


def _waits(topic: TopicState) -> dict[tuple[str, int, str], int]:
    """By node, partition and channel."""
    return {
        (part.node, part.partition, name): part.depth
        for name, channel in topic.channels.items()
        for part in channel.partitions
    }


def _lines(topic: TopicState, parts: list[TopicPart]) -> list[str]:
    names, waits = sorted(topic.channels), _waits(topic)
    rows = [
        [
            f"{one.partition}" + (" (refuses publishes)" if one.refusal else ""),
            one.node,
            terminal.short(one.messages),
            f"{one.start_offset}-{one.end_offset}",
            f"{terminal.short(one.stored_bytes)}B",
            terminal.short(one.in_rate),
            *(terminal.short(waits[one.node, one.partition, name]) for name in names),
        ]
        for one in parts
    ]
    total = [
        "total" + (" (paused)" if topic.paused else ""),
        "",
        terminal.short(topic.messages),
        "",
        f"{terminal.short(topic.stored_bytes)}B",
        terminal.short(topic.in_rate),
        *(terminal.short(topic.channels[name].depth) for name in names),
    ]
    return terminal.table((*HEADS, *names), [*rows, total], left=2)
