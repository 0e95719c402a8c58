"""`penstock topic peek`: stored messages, read over HTTP and left as they are.

Each is asked for by itself: it is for a look at some, not for an export. Of a topic with several
partitions the messages of all come in the order of their times; an offset is a place in one of
them.
"""

from __future__ import annotations

import argparse
import base64
import heapq
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from penstock import limits
from penstock.command import terminal
from penstock.nsqdapi import calls
from penstock.times import format_time, read_time
from penstock.tools import nodes
from penstock.tools.envelopes import KEY, as_text
from penstock.tools.verbs import WrongUse, print_json

COUNT_MAX = 1000
_BEYOND_END = 416
_NOT_FOUND = 404


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--offset", type=int, metavar="N", help="from this offset on")
    place.add_argument("--id", metavar="HEX", help="from this message on (alone: only it)")
    place.add_argument(
        "--time", metavar="TIME", help="from then on: 2026-11-21T06:00:00Z, 24h (ago), seconds"
    )
    parser.add_argument(
        "--count", type=int, metavar="N", help="this many (10; without a place: the newest ones)"
    )
    parser.add_argument("--partition", type=int, metavar="N", help="only this partition")


def run(arguments: argparse.Namespace) -> int:
    count = arguments.count
    if count is None:
        count = 1 if arguments.id else 10
    if not 1 <= count <= COUNT_MAX:
        raise WrongUse(f"--count {count}: must be between 1 and {COUNT_MAX}")
    members = nodes.nodes(arguments)
    found = nodes.ask_each(members, lambda node: _messages(node, arguments, count))
    if arguments.json:
        print_json(found.as_json())
        return found.code
    for address, messages in found.good.items():
        if len(members) > 1:
            print(f"{address}:")
        for message in messages:
            print(_line(message, any(one["partition"] for one in messages)))
    found.tell_errors()
    return found.code


def given_time(text: str) -> int:
    """Nanoseconds since 1970. What it was understood as is said on stderr."""
    try:
        found = read_time(text, time.time_ns())
    except ValueError as error:
        raise WrongUse(str(error)) from None
    print(f"from {format_time(found)} on", file=sys.stderr)
    return found


def when(time_ns: int) -> str:
    moment = datetime.fromtimestamp(time_ns // limits.SECOND, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns % limits.SECOND // 1000:06d}Z"


def _messages(node: nodes.Node, arguments: argparse.Namespace, count: int) -> list[Any]:
    topic = arguments.topic
    if arguments.id:
        first = node.ask(calls.message(topic, "id", arguments.id, arguments.partition))
        place = first["partition"], first["offset"] + 1
        following = _onward(node, topic, *place, place[1] + count - 1)
        return [first, *following]
    spans = _spans(node, arguments)
    if arguments.offset is not None:
        if len(spans) > 1:
            raise WrongUse(f"--offset {arguments.offset} is a place in one partition: --partition")
        (partition,) = spans
        asked = node.ask(calls.message(topic, "offset", arguments.offset, partition))
        start, end = arguments.offset + 1, arguments.offset + count
        return [asked, *_onward(node, topic, partition, start, end)]
    if arguments.time:
        return _from_time(node, arguments, spans, count)
    newest = [_back(node, topic, partition, span, count) for partition, span in spans.items()]
    merged = heapq.merge(*newest, key=_time_ns, reverse=True)
    return list(islice(merged, count))[::-1]


def _spans(node: nodes.Node, arguments: argparse.Namespace) -> dict[int, calls.Span]:
    """The partitions that are wanted."""
    found = node.ask(calls.positions([arguments.topic])).topics.get(arguments.topic)
    if found is None:
        raise nodes.NodeFailed(node.address, f"no such topic: {arguments.topic}", _NOT_FOUND)
    wanted = arguments.partition
    if wanted is None:
        return found.partitions
    if wanted not in found.partitions:
        text = f"topic {arguments.topic} has no partition {wanted}"
        raise nodes.NodeFailed(node.address, text, _NOT_FOUND)
    return {wanted: found.partitions[wanted]}


def _from_time(
    node: nodes.Node, arguments: argparse.Namespace, spans: dict[int, calls.Span], count: int
) -> list[Any]:
    at_ms, topic = given_time(arguments.time) // limits.MS, arguments.topic
    found = []
    for partition in spans:
        start = node.ask(calls.offset_at(topic, at_ms, partition, committed=True))
        found.append(_onward(node, topic, partition, start, start + count))
    return list(islice(heapq.merge(*found, key=_time_ns), count))


def _onward(
    node: nodes.Node, topic: str, partition: int, start: int, end: int
) -> Iterator[dict[str, Any]]:
    """As many as there are."""
    for offset in range(start, end):
        try:
            yield node.ask(calls.message(topic, "offset", offset, partition))
        except nodes.NodeFailed as error:
            if error.status == _BEYOND_END:
                return
            raise


def _back(
    node: nodes.Node, topic: str, partition: int, span: calls.Span, count: int
) -> Iterator[dict[str, Any]]:
    """The newest first."""
    first = max(span.earliest, span.committed - count)
    for offset in range(span.committed - 1, first - 1, -1):
        yield node.ask(calls.message(topic, "offset", offset, partition))


def _time_ns(message: dict[str, Any]) -> int:
    return int(message["timestamp_ns"])


def _line(message: dict[str, Any], is_split: bool) -> str:
    moment = datetime.fromtimestamp(message["timestamp_ns"] / limits.SECOND, UTC)
    when = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    body = message["body"]
    shown = f"base64 {message['body_base64']}" if body is None else terminal.printable(body)
    place = f"{message['partition']}:{message['offset']}" if is_split else message["offset"]
    return f"{place} {when} {message['id']}{_headers(message)} {shown}"


def _headers(message: dict[str, Any]) -> str:
    """The key among them; a blank in front."""
    headers, key = message["headers"] or {}, message["key_base64"]
    if key is not None and isinstance(headers, dict):
        text = base64.b64decode(key).decode("utf-8", "backslashreplace")
        headers = {KEY: text, **headers}
    return f" {terminal.printable(as_text(headers))}" if headers else ""
