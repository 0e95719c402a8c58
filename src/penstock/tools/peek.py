"""`penstock topic peek`: stored messages, read over HTTP and left as they are.

Each is asked for by itself: it is for a look at some, not for an export. Of a topic with several
partitions the messages of all come in the order of their times; an offset is a position in one of
them.
"""

import base64
import heapq
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated

from penstock import limits
from penstock.command import terminal
from penstock.nsqdapi import calls
from penstock.times import format_time, read_time
from penstock.tools.app import Partition, Topic, opt
from penstock.tools.connection import Http
from penstock.tools.envelopes import KEY, as_text
from penstock.tools.nodes import Node, NodeFailed, ask_each
from penstock.tools.output import Output, Row, WrongUse, when

_BEYOND_END = 416
_NOT_FOUND = 404


def peek(
    topic: Topic,
    at: Http,
    offset: Annotated[int | None, opt("N", "from this offset on")] = None,
    message_id: Annotated[str, opt("HEX", "from this message on (alone: only it)", "--id")] = "",
    since: Annotated[str, opt("TIME", "from then on: 2026-11-21, 24h (ago), ...", "--time")] = "",
    count: Annotated[
        int | None, opt("N", "10; without a position the newest ones", min=1, max=1000)
    ] = None,
    partition: Partition = None,
) -> Output:
    """Show stored messages; nothing is delivered."""
    if (offset is not None) + bool(message_id) + bool(since) > 1:
        raise WrongUse("--offset, --id and --time are three positions: give one of them")
    count = count or (1 if message_id else 10)
    members = at.members()

    def ask(node: Node) -> list[Row]:
        if message_id:
            return _from(node, topic, "id", message_id, partition, count)
        spans = _spans(node, topic, partition, alone=len(members) == 1)
        if not spans:
            return []  # other nodes lead it
        if offset is not None and len(spans) > 1:
            raise WrongUse(f"--offset {offset} is a position in one partition: --partition")
        if offset is not None:
            return _from(node, topic, "offset", offset, next(iter(spans)), count)
        if since:
            return _from_time(node, topic, since, spans, count)
        newest = []
        for number, span in spans.items():
            last = range(max(span.earliest, span.committed - count), span.committed)
            newest.append(_at(node, topic, number, reversed(last)))
        merged = heapq.merge(*newest, key=_time_ns, reverse=True)
        return list(islice(merged, count))[::-1]

    answers = ask_each(members, ask)
    is_split = any(one["partition"] for found in answers.good.values() for one in found)

    def lines(address: str, messages: list[Row]) -> Iterator[str]:
        if len(members) > 1 and messages:
            yield f"{address}:"
        yield from (_line(one, is_split) for one in messages)

    return answers.output(lines)


def given_time(text: str) -> int:
    """Nanoseconds since 1970. Prints on stderr how it was understood."""
    try:
        found = read_time(text, time.time_ns())
    except ValueError as error:
        raise WrongUse(str(error)) from None
    print(f"from {format_time(found)} on", file=sys.stderr)
    return found


def _from(
    node: Node, topic: str, key: str, value: int | str, partition: int | None, count: int
) -> list[Row]:
    first = node.ask(calls.message(topic, key, value, partition))
    start = first["offset"] + 1
    return [first, *_at(node, topic, first["partition"], range(start, start + count - 1))]


def _spans(node: Node, topic: str, wanted: int | None, alone: bool) -> dict[int, calls.LogSpan]:
    """The chosen partitions, of those that the node leads."""
    answer = node.ask(calls.positions([topic]))
    found, elsewhere = answer.topics.get(topic), answer.elsewhere.get(topic)
    here = found.partitions if found is not None else {}
    there = elsewhere.partitions if elsewhere is not None else {}
    if found is None and elsewhere is None:
        raise NodeFailed(node.address, f"no such topic: {topic}", _NOT_FOUND)
    if wanted is not None and wanted not in here and wanted not in there:
        raise NodeFailed(node.address, f"topic {topic} has no partition {wanted}", _NOT_FOUND)
    spans = {number: here[number] for number in here if wanted in (None, number)}
    if alone and not spans:
        led = (
            f"partition {number} by {there[number] or 'nobody'}"
            for number in there
            if wanted in (None, number)
        )
        text = f"topic {topic} is led elsewhere: {', '.join(led)}"
        raise NodeFailed(node.address, text, _NOT_FOUND)
    return spans


def _from_time(
    node: Node, topic: str, since: str, spans: dict[int, calls.LogSpan], count: int
) -> list[Row]:
    at_ms = given_time(since) // limits.MS
    found = []
    for partition in spans:
        start = node.ask(calls.offset_at(topic, at_ms, partition, committed=True))
        found.append(_at(node, topic, partition, range(start, start + count)))
    return list(islice(heapq.merge(*found, key=_time_ns), count))


def _at(node: Node, topic: str, partition: int, offsets: Iterable[int]) -> Iterator[Row]:
    """As many as there are."""
    for offset in offsets:
        try:
            yield node.ask(calls.message(topic, "offset", offset, partition))
        except NodeFailed as error:
            if error.status == _BEYOND_END:
                return
            raise


def _time_ns(message: Row) -> int:
    return int(message["timestamp_ns"])


def _line(message: Row, is_split: bool) -> str:
    body = message["body"]
    shown = f"base64 {message['body_base64']}" if body is None else terminal.printable(body)
    position = f"{message['partition']}:{message['offset']}" if is_split else message["offset"]
    return f"{position} {when(message['timestamp_ns'])} {message['id']}{_headers(message)} {shown}"


def _headers(message: Row) -> str:
    """The key among them; a blank in front."""
    headers, key = message["headers"] or {}, message["key_base64"]
    if key is not None and isinstance(headers, dict):
        text = base64.b64decode(key).decode("utf-8", "backslashreplace")
        headers = {KEY: text, **headers}
    return f" {terminal.printable(as_text(headers))}" if headers else ""
