"""The page of a topic or channel that there is not: a 404 that says so."""

from __future__ import annotations

import asyncio

from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqadmin import presence
from penstock.nsqadmin.pages.layout import Opened
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
    asking = presence.is_absent(here.ground.upstream, topic, channel)
    try:
        is_absent = await asyncio.wait_for(asking, limits.ADMIN_READY_S)
    except TimeoutError:
        return
    if is_absent:
        what = f"channel {topic}/{channel}" if channel else f"topic {topic}"
        raise NoSuchPage(f"There is no {what}: every nsqd and nsqlookupd that may have it says so")
    here.ground.watch.hurry()  # it is younger than the last look
