"""Whether a topic or channel is there: only what everybody denies is not."""

from __future__ import annotations

from penstock.nsqadmin import aggregate
from penstock.nsqadmin.upstream import Upstream, UpstreamFailed


async def is_absent(upstream: Upstream, topic: str, channel: str = "") -> bool:
    """False also when somebody who may know it can't be asked."""
    try:
        return await _is_absent(upstream, topic, channel)
    except UpstreamFailed:
        return False


async def _is_absent(upstream: Upstream, topic: str, channel: str) -> bool:
    names, warning = await upstream.topics()
    producers, missed = await upstream.producers()
    if warning or missed:
        return False
    if topic in names and not channel:
        return False
    if topic in names and upstream.lookupds and channel in await upstream.channels(topic):
        return False
    if not producers:
        return True
    asked = await upstream.stats(producers, topic, channel)
    return not asked.failed and not any(
        _has(row, channel)
        for document in asked.answers.values()
        for row in aggregate.topic_rows(document, topic)
    )


def _has(row: aggregate.Row, channel: str) -> bool:
    names = [one.get("channel_name") for one in row.get("channels") or ()]
    return not channel or channel in names
