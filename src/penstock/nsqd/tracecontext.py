"""A `traceparent` of a request becomes a header of what it publishes, on topics that have headers.

So a service whose requests carry one, as OpenTelemetry's instruments do, need do nothing for it:
who consumes the message can go on with that trace, and where the caller records it the message's
life is traced under its id (`kernel/traceparent.py`). A publisher's own header of that name wins.
What is no `traceparent` means nothing, as the W3C has it, and is left out.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from penstock import limits
from penstock.broker.rows import Sections
from penstock.kernel import Section
from penstock.kernel.traceparent import MEMBER, parse_traceparent
from penstock.net.exchange import Request

_FIELD = MEMBER.encode()


class Joined(NamedTuple):
    headers: bytes  # their JSON
    context_id: int  # the message's trace id; 0: none


def joined(request: Request, headers: bytes) -> Joined | None:
    """The headers with the trace context of the request; None where it has none, where they have
    one already, and where they have no room for it."""
    value = request.header(_FIELD)
    context = parse_traceparent(value) if value is not None else None
    if value is None or context is None:
        return None
    members = json.loads(headers)
    if MEMBER in members:
        return None
    members[MEMBER] = value.decode("latin-1")
    data = json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    if len(data) > limits.HEADERS_BYTES_MAX:
        return None
    return Joined(data, context.context_id)


def with_context(request: Request, sections: Sections | None) -> Sections | None:
    """The same for what the trailer says of a message."""
    said = sections or {}
    headers = said.get(Section.HEADERS, b"{}")
    found = joined(request, headers) if isinstance(headers, bytes) else None
    if found is None:
        return sections
    more: dict[int, int | bytes] = {**said, Section.HEADERS: found.headers}
    if found.context_id:
        more[Section.TRACE] = found.context_id
    return more
