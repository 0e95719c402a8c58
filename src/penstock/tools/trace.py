"""`penstock trace`: what happened to a message, from the events in topic `_trace`.

The events are read from the logs of the nodes, over HTTP, or from a data directory without a
daemon. A search begins where the message's id says that it was made, and looks at a bounded part of
the log. What was noted in the last moment and is not durable yet is asked for message by message.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

from penstock import limits
from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.ids.guid import parse
from penstock.kernel import hex_to_id
from penstock.log.disk import OsDisk
from penstock.log.inspect import NothingThere, dump_partition
from penstock.log.inspect import find as find_places
from penstock.nsqdapi import calls
from penstock.tools import completion
from penstock.tools.app import Partition, arg, group, opt, verb
from penstock.tools.connection import Http
from penstock.tools.nodes import Node, NodeFailed
from penstock.tools.output import FAILED, Output, WrongUse, when
from penstock.tools.peek import given_time
from penstock.trace.events import TOPIC, Event
from penstock.trace.search import (
    RULE,
    Only,
    Search,
    bodies_of,
    context_of,
    copies,
    read_trace_id,
    row_of,
)

SEARCH_BYTES_MAX = 1 << 30  # of one node's log
FETCH_BYTES = 4 << 20
NEWEST_MAX = 200  # messages that are committed and not durable yet
ID_AHEAD_MS = 10_000  # an id may be ahead of the clock that wrote the event
TRACE_ID_MS = 2 * 3600 * 1000  # how far back a trace id is looked for
_NOT_FOUND = 404
# Deleted, removed by retention, of a topic that was made again, or corrupt.
_NOT_THERE = (_NOT_FOUND, 410, 416, 422)


class Wanted(NamedTuple):
    message_id: int
    trace_id: int
    only: Only
    from_ms: int


class Found(NamedTuple):
    node: str
    event: Event


app = group("")


@verb(app, "penstock trace 0d2c6bf1a4c02000", "penstock trace --trace-id 42 --json")
def trace(
    at: Http,
    message_id: Annotated[str, arg("MESSAGE_ID", "16 hex digits")] = "",
    trace_id: Annotated[
        str, opt("N", "all messages with this number, or W3C trace in 32 hex digits")
    ] = "",
    topic: Annotated[str, opt("T", "only in this topic", autocompletion=completion.topics)] = "",
    partition: Partition = None,
    since: Annotated[str, opt("TIME", "from then on (the id's time; a trace id: two hours)")] = "",
    data_path: Annotated[str, opt("PATH", "read this directory, without a daemon")] = "",
) -> Output:
    """What happened to a message, as a timeline."""
    wanted = _wanted(message_id, trace_id, since, Only(topic, partition))
    found = list[Found]()
    contexts = dict[int, str]()
    if data_path:
        found += _pick("", _cold_bodies(data_path, wanted), wanted)
    else:
        asked = {node.address: node for node in at.nodes()}
        with terminal.Progress("searching"):
            for address, node in asked.items():
                found += _pick(address, _bodies(node, wanted), wanted)
            contexts = _contexts(asked, found)
    found.sort(key=lambda one: one.event.time_ns)
    rows = [row_of(event, node, contexts.get(event.message_id, "")) for node, event in found]
    if found:
        return Output(rows, _timelines(found, contexts))
    nothing = "nothing is known of it: was it traced, and does `_trace` still hold that time?"
    return Output(rows, [nothing], FAILED)


def _wanted(message_id: str, trace_id: str, since: str, only: Only) -> Wanted:
    if bool(message_id) == bool(trace_id):
        raise WrongUse("give a message id, or --trace-id")
    message = hex_to_id(message_id.encode("utf-8", "replace")) if message_id else 0
    if message_id and message <= 0:
        raise WrongUse(f"{message_id!r} is no message id: 16 hex digits")
    number = read_trace_id(trace_id) if trace_id else 0
    if trace_id and not number:
        raise WrongUse(f"--trace-id {trace_id}: must be {RULE}")
    made_ms = parse(message).time_ns // limits.MS - ID_AHEAD_MS if message else 0
    begin_ms = made_ms or time.time_ns() // limits.MS - TRACE_ID_MS
    from_ms = given_time(since) // limits.MS if since else max(begin_ms, 0)
    return Wanted(message, number, only, from_ms)


# --- where the events are ---


def _bodies(node: Node, wanted: Wanted) -> Iterator[bytes]:
    """Of one node, from the time that is wanted on."""
    try:
        offset = node.ask(calls.offset_at(TOPIC, wanted.from_ms, committed=True))
    except NodeFailed as error:
        if error.status == _NOT_FOUND:
            return  # it has not traced anything
        raise
    span = node.ask(calls.positions([TOPIC])).topics[TOPIC].partitions[0]
    left = SEARCH_BYTES_MAX
    while offset < span.end and left > 0:
        data = node.ask(calls.fetch(TOPIC, offset, span.end, FETCH_BYTES)).data
        left -= len(data)
        for base_offset, bodies in bodies_of(data, offset):
            yield from bodies[max(offset - base_offset, 0) :]
            offset = base_offset + len(bodies)
    for newest in range(max(offset, span.committed - NEWEST_MAX), span.committed):
        message = node.ask(calls.message(TOPIC, "offset", newest))
        yield base64.b64decode(message["body_base64"])


def _cold_bodies(path: str, wanted: Wanted) -> Iterator[bytes]:
    disk = OsDisk()
    try:
        places = find_places(disk, path, TOPIC).places
    except NothingThere as error:
        raise PenstockError(f"{path} holds no topic {TOPIC}") from error
    for place in places:
        for row in dump_partition(disk, place):
            if "body" in row and row["timestamp_ns"] // limits.MS >= wanted.from_ms:
                yield row["body"]


# --- which of them are about it ---


def _pick(node: str, bodies: Iterable[bytes], wanted: Wanted) -> list[Found]:
    search = Search(wanted.message_id, wanted.trace_id, wanted.only)
    search.feed(bodies)
    return [Found(node, one) for one in search.events()]


def _contexts(asked: Mapping[str, Node], found: Sequence[Found]) -> dict[int, str]:
    """The `traceparent` of messages that are still there, by message id."""
    contexts = dict[int, str]()
    for node, event in copies(found):
        call = calls.message(event.topic, "offset", event.offset, event.partition)
        try:
            message = asked[node].ask(call)
        except NodeFailed as error:
            if error.status in _NOT_THERE:
                continue
            raise
        context = context_of(event, int(message["id"], 16), message["headers"] or {})
        if context is not None:
            contexts[event.message_id] = context
    return contexts


# --- how it is shown ---


def _timelines(found: list[Found], contexts: Mapping[int, str]) -> Iterator[str]:
    """One for each message; what is about ranges is told with each."""
    several = len({one.node for one in found}) > 1
    for message_id in dict.fromkeys(one.event.message_id for one in found):
        if not message_id:
            continue
        mine = [one for one in found if one.event.message_id in (0, message_id)]
        trace_id = max(one.event.trace_id for one in mine if one.event.message_id)
        said = f"  trace id {trace_id}" if trace_id else ""
        if message_id in contexts:
            said += f"  traceparent {contexts[message_id]}"
        yield f"message {message_id:016x}{said}"
        before_ns = mine[0].event.time_ns
        for one in mine:
            passed_ns, before_ns = one.event.time_ns - before_ns, one.event.time_ns
            node = f"  on {one.node}" if several else ""
            yield f"  {_line(one.event, passed_ns)}{node}"


def _line(event: Event, passed_ns: int) -> str:
    where = event.topic + (f"/{event.channel}" if event.channel else "")
    parts = [f"{when(event.time_ns)}  {_delta(passed_ns):>10}  {event.kind.label:<13} {where}"]
    of = f"partition {event.partition} " if event.partition else ""
    if event.message_id:
        parts.append(f"{of}offset {event.offset}")
    else:
        parts.append(f"{of}offsets {event.offset} to {event.offset + event.count - 1}")
    if event.attempts:
        parts.append(f"attempt {event.attempts}")
    if event.client:
        parts.append(terminal.printable(event.client))
    return "  ".join(parts)


def _delta(passed_ns: int) -> str:
    if passed_ns < limits.MS:
        return f"+{passed_ns / 1000:.0f}us"
    if passed_ns < limits.SECOND:
        return f"+{passed_ns / limits.MS:.1f}ms"
    return f"+{passed_ns / limits.SECOND:.3f}s"
