"""`penstock topic peek`: stored messages, read over HTTP and left as they are.

Each is asked for by itself: it is for a look at some, not for an export.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from penstock import limits
from penstock.command import terminal
from penstock.nsqdapi import calls
from penstock.tools import nodes
from penstock.tools.verbs import WrongUse, print_json

COUNT_MAX = 1000
_BEYOND_END = 416
_NOT_FOUND = 404


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--offset", type=int, metavar="N", help="from this offset on")
    place.add_argument("--id", metavar="HEX", help="from this message on (alone: only it)")
    place.add_argument("--time", metavar="TIME", help="from then on: 2026-11-21T06:00:00Z, seconds")
    parser.add_argument(
        "--count", type=int, metavar="N", help="this many (10; without a place: the newest ones)"
    )


def run(arguments: argparse.Namespace) -> int:
    count = arguments.count
    if count is None:
        count = 1 if arguments.id else 10
    if not 1 <= count <= COUNT_MAX:
        raise WrongUse(f"--count {count}: must be between 1 and {COUNT_MAX}")
    members = nodes.nodes(arguments)
    found = nodes.ask_each(members, lambda node: list(_messages(node, arguments, count)))
    if arguments.json:
        print_json(found.as_json())
        return found.code
    for address, messages in found.good.items():
        if len(members) > 1:
            print(f"{address}:")
        for message in messages:
            print(_line(message))
    found.tell_errors()
    return found.code


def epoch_ms(text: str) -> int:
    """Seconds since 1970, or an ISO time; one without a zone is UTC."""
    try:
        if text.isascii() and text.isdigit():
            return int(text) * 1000
        moment = datetime.fromisoformat(text)
    except ValueError:
        rule = "is neither a time such as 2026-11-21T06:00:00Z nor seconds since 1970"
        raise WrongUse(f"{text!r} {rule}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def when(time_ns: int) -> str:
    moment = datetime.fromtimestamp(time_ns // limits.SECOND, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns % limits.SECOND // 1000:06d}Z"


def _messages(node: nodes.Node, arguments: argparse.Namespace, count: int) -> Iterator[Any]:
    topic = arguments.topic
    if arguments.id:
        first = node.ask(calls.message(topic, "id", arguments.id))
        yield first
        start, end = first["offset"] + 1, first["offset"] + count
    else:
        start = _start(node, arguments, count)
        end = start + count
    for offset in range(start, end):
        try:
            yield node.ask(calls.message(topic, "offset", offset))
        except nodes.NodeFailed as error:
            if error.status == _BEYOND_END and arguments.offset != offset:
                return
            raise


def _start(node: nodes.Node, arguments: argparse.Namespace, count: int) -> int:
    if arguments.offset is not None:
        return int(arguments.offset)
    if arguments.time:
        at_ms = epoch_ms(arguments.time)
        return node.ask(calls.offset_at(arguments.topic, at_ms, committed=True))
    spans = node.ask(calls.positions([arguments.topic])).topics.get(arguments.topic)
    if spans is None:
        raise nodes.NodeFailed(node.address, f"no such topic: {arguments.topic}", _NOT_FOUND)
    span = spans.partitions[0]
    return max(span.earliest, span.committed - count)


def _line(message: dict[str, Any]) -> str:
    moment = datetime.fromtimestamp(message["timestamp_ns"] / limits.SECOND, UTC)
    when = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    body = message["body"]
    shown = f"base64 {message['body_base64']}" if body is None else terminal.printable(body)
    return f"{message['offset']} {when} {message['id']} {shown}"
