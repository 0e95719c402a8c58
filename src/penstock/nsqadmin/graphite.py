"""Graphite, for those who have it: the rate of a counter, and its pictures through our address."""

from __future__ import annotations

import json
from urllib.parse import urlencode

from penstock import limits
from penstock.errors import FetchFailed
from penstock.net.fetch import Fetched, Fetcher


async def rate(fetcher: Fetcher, url: str, target: str, interval_ns: int) -> str:
    """What one counter grew by in a second of the interval before the last; "N/A" when graphite has
    no value of it. FetchFailed."""
    interval_s = interval_ns // limits.SECOND
    query = {
        "target": target,
        "format": "json",
        "from": f"-{2 * interval_s}s",
        "until": f"-{interval_s}s",
    }
    answer = await fetcher.get_json(f"{url.rstrip('/')}/render?{urlencode(query)}")
    points = answer[0].get("datapoints") if isinstance(answer, list) and answer else None
    if not points or points[0][0] is None:
        return "N/A"
    return f"{float(points[0][0]) / max(interval_s, 1):.2f}"


async def render(fetcher: Fetcher, url: str, query: str) -> Fetched:
    """What graphite answers to the same query."""
    return await fetcher.request("GET", f"{url.rstrip('/')}/render?{query}")


def message(error: FetchFailed) -> str:
    """The official form of an error of graphite."""
    return json.dumps({"message": f"INTERNAL_ERROR: {error.reason}"})
