"""The page of a topic or channel that there is not: a 404 that says so."""

from __future__ import annotations

import asyncio

from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqadmin import aggregate
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.upstream import Upstream, UpstreamFailed
from penstock.wire.names import is_valid_name

RULE = f"1 to {limits.NAME_BYTES_MAX} of . a-z A-Z 0-9 _ -"


class NoSuchPage(PenstockError):
    """What the page would be about is not there."""


async def check(here: Opened, topic: str, channel: str = "") -> None:
    """Raises NoSuchPage. Who can't be asked may have it: then the page is drawn, and its banner
    names them."""
    for kind, name in (("topic", topic), ("channel", channel)):
        if name and not is_valid_name(name.encode("utf-8", "replace")):
            raise NoSuchPage(f"{name!r} is not a valid name of a {kind}: {RULE}")
    latest = here.ground.watch.latest
    if latest.channel(topic, channel) if channel else topic in latest.topics:
        return
    asking = is_absent(here.ground.upstream, topic, channel)
    try:
        absent = await asyncio.wait_for(asking, limits.ADMIN_READY_S)
    except TimeoutError:
        return
    if absent:
        what = f"channel {topic}/{channel}" if channel else f"topic {topic}"
        raise NoSuchPage(f"There is no {what}: every nsqd and nsqlookupd that may have it says so")
    here.ground.watch.hurry()  # it is younger than the last look


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
