"""Where one stored message stands in each channel of its topic.

A node says of each channel up to where all is finished (`low`) and what it sends next (`next`), and
lists what it holds in between. Lists are bounded: what is in none of them although one was cut
short can't be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock import limits
from penstock.errors import FetchFailed
from penstock.nsqadmin.messages import Place
from penstock.nsqadmin.upstream import Upstream
from penstock.nsqdapi.calls import stats_query

WAITING, IN_FLIGHT, DEFERRED, REQUEUED = "waiting", "in flight", "deferred", "waiting again"
FINISHED, DEAD, UNKNOWN = "finished", "dead letter", "unknown"
_LISTS = {"in_flight": IN_FLIGHT, "deferred": DEFERRED, "requeued": REQUEUED, "dead": DEAD}


class Standing(NamedTuple):
    channel: str
    state: str
    detail: str = ""  # attempts, and who holds it


async def of_message(
    upstream: Upstream, place: Place, topic: str, offset: int, message_id: str
) -> list[Standing]:
    """In every channel, sorted. Raises FetchFailed."""
    node = place.node
    query = stats_query(topic) | {"partition": str(place.partition)}
    stats = await upstream.get(node, "/stats", query)
    rows = [row for found in stats["topics"] or () for row in found["channels"] or ()]
    return [
        await _in_channel(upstream, node, topic, row, offset, message_id)
        for row in sorted(rows, key=lambda one: str(one["channel_name"]))
    ]


async def _in_channel(
    upstream: Upstream, node: str, topic: str, row: Mapping[str, Any], offset: int, message_id: str
) -> Standing:
    channel, low, following = row["channel_name"], row.get("low"), row.get("next")
    if low is None or following is None:
        return Standing(channel, UNKNOWN, "this nsqd does not tell")
    states = list(_LISTS) if offset >= low else []
    if row.get("dead_letter_count") and "dead" not in states:
        states.append("dead")
    is_whole = True
    for state in states:
        listed = await _listed(upstream, node, topic, channel, state)
        found = next((one for one in listed or () if one["id"] == message_id), None)
        if found is not None:
            return Standing(channel, _LISTS[state], _detail(state, found))
        is_whole &= listed is not None and len(listed) < limits.LISTED_MESSAGES_MAX
    if offset >= following:  # a delayed message is deferred there, too, and in one of the lists
        return Standing(channel, WAITING, f"{offset - following:,} before it")
    if offset >= low and not is_whole:
        return Standing(channel, UNKNOWN, "finished, or one of very many that it holds")
    return Standing(channel, FINISHED, "or from before the channel began" if offset < low else "")


async def _listed(
    upstream: Upstream, node: str, topic: str, channel: str, state: str
) -> Sequence[Mapping[str, Any]] | None:
    query = {"topic": topic, "channel": channel, "state": state,
             "limit": str(limits.LISTED_MESSAGES_MAX)}  # fmt: skip
    try:
        found: Sequence[Mapping[str, Any]] = (await upstream.get(node, "/channel/messages", query))[
            "messages"
        ]
    except FetchFailed:
        return None
    return found


def _detail(state: str, found: Mapping[str, Any]) -> str:
    attempts = int(found.get("attempts", 0))
    parts = [f"{attempts} attempt{'' if attempts == 1 else 's'}"] if attempts else []
    client = found.get("client")
    if client:
        parts.append(f"with {client['hostname'] or client['client_id']}")
    if "deadline_ms" in found:
        parts.append(f"{found['deadline_ms'] / 1000:.0f} s left")
    if "due_in_ms" in found:
        parts.append(f"due in {found['due_in_ms'] / 1000:.0f} s")
    return ", ".join(parts)
