"""Where the `traceparent` of traced messages is read: an event has a part of its trace id at most
(`kernel/traceparent.py`), the message's own headers have all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock.kernel.traceparent import MEMBER, parse_traceparent
from penstock.limits import TRACE_CONTEXTS_SHOWN
from penstock.trace.events import Event


class Copy(NamedTuple):
    """Where a message lies."""

    node: str
    event: Event


def copies(found: Iterable[tuple[str, Event]]) -> list[Copy]:
    """The first place of each message, of those that a node has; bounded."""
    first: dict[int, Copy] = {}
    for node, event in found:
        if node and event.message_id:
            first.setdefault(event.message_id, Copy(node, event))
    return list(first.values())[:TRACE_CONTEXTS_SHOWN]


def context_of(event: Event, message_id: int, headers: Mapping[str, Any]) -> str | None:
    """The `traceparent` of the message of this event; None: it has none. Where the topic was made
    again, another message lies at the place."""
    value = headers.get(MEMBER)
    if message_id != event.message_id or not isinstance(value, str):
        return None
    return value if parse_traceparent(value.encode("utf-8", "replace")) else None
