"""Calls from an event loop, through `net.fetch`."""

from typing import Any

from penstock.net.fetch import Fetcher
from penstock.net.outgoing import Headers, HttpAnswer
from penstock.nsqdapi.calls import Call


async def exchange(
    fetcher: Fetcher,
    address: str,
    call: Call[Any],
    headers: Headers | None = None,
    credentials: str = "",
) -> HttpAnswer:
    """Returns the answer, whatever its status. `address` is host:port or a URL. Raises
    FetchFailed."""
    base = address if "://" in address else f"http://{address}"
    more = {**(headers or {}), "Content-Type": call.content_type} if call.body else headers
    url = base + call.target
    return await fetcher.request(call.method, url, call.body or b"", more, credentials)
