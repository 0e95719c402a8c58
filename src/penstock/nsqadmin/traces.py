"""One message's life, from the events that nsqds keep in topic `_trace`."""

from __future__ import annotations

import base64
import time
from typing import NamedTuple

from penstock import limits
from penstock.errors import FetchFailed, PenstockError
from penstock.ids.guid import parse
from penstock.kernel import hex_to_id
from penstock.log.traceevents import TOPIC, Event
from penstock.log.tracesearch import Search, bodies_of
from penstock.nsqadmin.upstream import Upstream

_ID_AHEAD_MS = 10_000  # an id may be ahead of the clock that wrote the event
_TRACE_ID_MS = 2 * 3600 * 1000  # how far back a trace id is looked for
_NEWEST_MAX = 100  # events' messages that are committed and not durable yet


class Wanted(NamedTuple):
    message_id: int
    trace_id: int
    from_ms: int


class Found(NamedTuple):
    node: str
    event: Event


class IdInvalid(PenstockError):
    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is neither a message id (16 hex digits) nor trace:N")
        self.text = text


def wanted(text: str) -> Wanted:
    """What somebody has typed: a message id, or "trace:" and a number."""
    text = text.strip()
    if text.startswith("trace:") and text[6:].isascii() and text[6:].isdigit():
        trace_id = int(text[6:])
        if 0 < trace_id < 1 << 64:
            return Wanted(0, trace_id, max(0, time.time_ns() // limits.MS - _TRACE_ID_MS))
    number = hex_to_id(text.encode("utf-8", "replace"))
    if number <= 0:
        raise IdInvalid(text)
    return Wanted(number, 0, max(0, parse(number).time_ns // limits.MS - _ID_AHEAD_MS))


async def life(upstream: Upstream, nodes: list[str], ask: Wanted, topic: str) -> list[Found]:
    """The events on these nodes, in the order of time."""
    found: list[Found] = []
    for node in nodes:
        found += [Found(node, one) for one in await _of_node(upstream, node, ask, topic)]
    return sorted(found, key=lambda one: one.event.time_ns)


async def _of_node(upstream: Upstream, node: str, ask: Wanted, topic: str) -> list[Event]:
    target = {"topic": TOPIC}
    at = {"timestamp_ms": str(ask.from_ms), "committed": "true"}
    try:
        offset = int((await upstream.get(node, "/log/offset", target | at))["offset"])
    except FetchFailed as error:
        if error.status == 404:
            return []  # it has not traced anything
        raise
    topics = (await upstream.get(node, "/log/positions", target))["topics"]
    partition = topics[TOPIC]["partitions"]["0"]
    search = Search(ask.message_id, ask.trace_id, topic)
    left = limits.ADMIN_TRACE_BYTES
    while offset < partition["end"] and left > 0:
        span = {"from": str(offset), "to": str(partition["end"]),
                "bytes_max": str(limits.ADMIN_FETCH_BYTES)}  # fmt: skip
        data = (await upstream.fetch(node, "/log/fetch", target | span)).body
        left -= len(data)
        before = offset
        for base_offset, bodies in bodies_of(data):
            search.feed(bodies[max(offset - base_offset, 0) :])
            offset = base_offset + len(bodies)
        if offset == before:
            break
    newest = max(offset, partition["committed"] - _NEWEST_MAX)
    for number in range(newest, partition["committed"]):
        message = await upstream.get(node, "/message/get", target | {"offset": str(number)})
        search.feed([base64.b64decode(message["body_base64"])])
    return search.events()
