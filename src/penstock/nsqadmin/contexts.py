"""The `traceparent` of messages whose lives are shown, out of their own headers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from penstock.errors import FetchFailed, RangeCorrupt
from penstock.nsqadmin.messages import Log
from penstock.nsqadmin.tracetable import Found
from penstock.nsqadmin.upstream import Upstream
from penstock.trace.contexts import Copy, context_of, copies


async def contexts(
    upstream: Upstream, found: Iterable[Found], hidden: Iterable[str]
) -> dict[int, str]:
    """By message id. Of a message that is not there any more, or masked, there is none."""
    wanted = copies((one.node, one.event) for one in found)
    hidden = tuple(hidden)
    values = await asyncio.gather(*(_context(upstream, copy, hidden) for copy in wanted))
    return {
        copy.event.message_id: value
        for copy, value in zip(wanted, values, strict=True)
        if value is not None
    }


async def _context(upstream: Upstream, copy: Copy, hidden: tuple[str, ...]) -> str | None:
    event = copy.event
    log = Log(upstream, copy.node, event.topic, hidden, event.partition)
    try:
        message = await log.message(event.offset)
    except (FetchFailed, RangeCorrupt):
        return None
    return None if message is None else context_of(event, int(message.id, 16), message.headers)
