"""The events of one message, or of one trace id, among the bodies of `_trace`.

Trace ids as people write them: a decimal number of 64 bits, or the 32 hex digits of a trace of
the W3C, whose last 64 bits are what messages and events have of it (`kernel/traceparent.py`).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from penstock.kernel.traceparent import MEMBER, parse_traceparent
from penstock.limits import TRACE_CONTEXTS_SHOWN
from penstock.trace.events import Event, find, ranges

RANGES_MAX = 10_000
RULE = "1 to 2^64 - 1, or the 32 hex digits of a W3C trace id"
W3C_DIGITS = 32
_MAX = (1 << 64) - 1
_decimal = re.compile(r"[0-9]{1,20}").fullmatch
_w3c = re.compile(r"[0-9a-fA-F]{16}([0-9a-fA-F]{16})").fullmatch


def read_trace_id(text: str) -> int:
    """0: it is none."""
    found = _w3c(text)
    if found is not None:
        return int(found[1], 16)
    number = int(text) if _decimal(text) else 0
    return number if number <= _MAX else 0


class Only(NamedTuple):
    """Where the events happened: in one topic, in one partition, or anywhere."""

    topic: str = ""
    partition: int | None = None

    def takes(self, event: Event) -> bool:
        return self.topic in ("", event.topic) and self.partition in (None, event.partition)


ANYWHERE = Only()


def row_of(event: Event, node: str, context: str = "") -> dict[str, Any]:
    """An event as a document shows it. `node`: where it was read; empty: not on one. `context`: the
    `traceparent` of its message; empty: none is known."""
    row = event._asdict() | {"kind": event.kind.label}
    row["message_id"] = f"{event.message_id:016x}" if event.message_id else None
    row["trace_id"] = event.trace_id or None
    if context:
        row["traceparent"] = context
    return row | ({"node": node} if node else {})


class Search:
    """Feed it bodies, then ask for `events`. One of the two ids is 0."""

    def __init__(self, message_id: int, trace_id: int, only: Only = ANYWHERE) -> None:
        self._message_id = message_id
        self._trace_id = trace_id
        self._only = only
        self._events: list[Event] = []
        self._spans: list[Event] = []  # of ranges of messages: whose, is known at the end

    def feed(self, bodies: Iterable[bytes]) -> None:
        for body in bodies:
            self._events += find(body, self._message_id, self._trace_id)
            if len(self._spans) < RANGES_MAX:
                self._spans += ranges(body)

    def events(self, known: Collection[tuple[str, int, int]] = ()) -> list[Event]:
        """`known` are positions (topic, partition, offset) of the message that others know of."""
        positions = {(event.topic, event.partition, event.offset) for event in self._events}
        positions.update(known)
        found = [*self._events, *(span for span in self._spans if _holds(span, positions))]
        return [one for one in found if self._only.takes(one)]


def _holds(span: Event, positions: set[tuple[str, int, int]]) -> bool:
    return any(
        (topic, partition) == (span.topic, span.partition)
        and span.offset <= offset < span.offset + span.count
        for topic, partition, offset in positions
    )


# --- the `traceparent` of traced messages ---


class Copy(NamedTuple):
    """The position of a message."""

    node: str
    event: Event


def copies(found: Iterable[tuple[str, Event]]) -> list[Copy]:
    """The first position of each message, if a node has it; bounded."""
    first: dict[int, Copy] = {}
    for node, event in found:
        if node and event.message_id:
            first.setdefault(event.message_id, Copy(node, event))
    return list(first.values())[:TRACE_CONTEXTS_SHOWN]


def context_of(event: Event, message_id: int, headers: Mapping[str, Any]) -> str | None:
    """The `traceparent` of the message of this event, which has a part of its trace id at most
    (`kernel/traceparent.py`); None: it has none. Where the topic was recreated, another message is
    at the position."""
    value = headers.get(MEMBER)
    if message_id != event.message_id or not isinstance(value, str):
        return None
    return value if parse_traceparent(value.encode("utf-8", "replace")) else None
