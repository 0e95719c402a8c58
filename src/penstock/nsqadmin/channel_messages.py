"""The messages of a channel on each node, and commands on them: one message finished, requeued or
sent back from the dead letters, and the channel's position in the log changed.

The nodes do it (docs/http.md, "What is inside a channel"); here they are asked, and positions
that people type become those that they know.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock import limits
from penstock.errors import FetchFailed, PenstockError
from penstock.nsqadmin.messages import InputInvalid, Log, LogAddress, is_id, preview, typed_time_ns
from penstock.nsqadmin.upstream import NSQD, Asked, Upstream, UpstreamFailed, gathered, reason
from penstock.nsqadmin.words import count
from penstock.nsqdapi.calls import stats_query
from penstock.times import format_seconds

# What a channel can be moved to, by kind: the words, and a hint where something has to be typed.
POSITIONS = {
    "time": ("A time", "2026-11-21 06:00 (UTC)"),
    "back": ("Back this many messages", "How many"),
    "offset": ("An offset", "Offset"),
    "id": ("A message's id", "16 hex digits"),
    "earliest": ("All that is stored", ""),
    "latest": ("The end", ""),
}
_ELSEWHERE = ("PARTITION_NOT_FOUND", "MESSAGE_NOT_FOUND")


class HeldMessage(NamedTuple):
    node: str
    id: str


class DeadLetterRef(NamedTuple):
    node: str
    topic: str
    partition: int
    offset: int


def dead_letter(node: str, row: Mapping[str, Any]) -> DeadLetterRef:
    topic = str(row["dead_letter_topic"])
    return DeadLetterRef(node, topic, int(row.get("partition", 0)), int(row["offset"]))


Listed = Asked[Sequence[Mapping[str, Any]]]  # messages of one state


class Move(NamedTuple):
    """The effect of a new position on one node. Several partitions have no single offset."""

    node: str
    offset: int | None
    again: int
    skipped: int  # never sent so far
    given_up: int  # in flight or deferred below the offset
    offsets: tuple[tuple[int, int], ...] = ()  # offsets by partition, where there are several


def position_of(kind: str, text: str) -> str:
    """In the form of `/channel/setoffset`. Raises InputInvalid."""
    text = text.strip()
    if kind in ("earliest", "latest"):
        return kind
    if kind == "time":
        return f"timestamp:{format_seconds(typed_time_ns(text))}"
    if kind == "id":
        if not is_id(text):
            raise InputInvalid(f"{text!r} is not an id: it has 16 hex digits")
        return f"id:{text.lower()}"
    digits = text.replace(",", "").replace("_", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise InputInvalid(f"{text!r} is not a whole number")
    return f"{kind}:{digits}"


class ChannelMessages:
    def __init__(
        self, upstream: Upstream, topic: str, channel: str, hidden: Sequence[str] = ()
    ) -> None:
        """`hidden`: names of fields whose values are masked in bodies."""
        self._upstream = upstream
        self._names = {"topic": topic, "channel": channel}
        self._hidden = hidden
        self._bodies: dict[DeadLetterRef, str] = {}  # of dead letters, in a line
        self._reading = asyncio.Semaphore(limits.ADMIN_BODIES_AT_ONCE)

    async def messages(
        self, nodes: Iterable[str], state: str, most: int = limits.ADMIN_LISTED
    ) -> Listed:
        """Also when no node answers."""
        query = self._names | {"state": state, "limit": str(most)}

        async def ask(node: str) -> Any:
            return (await self._upstream.get(node, "/channel/messages", query))["messages"]

        try:
            return await self._upstream.ask(NSQD, nodes, ask)
        except UpstreamFailed as error:
            return Asked({}, error.failed)

    async def bodies(self, listed: Listed) -> Mapping[DeadLetterRef, str]:
        """The bodies of the listed dead letters, each in a line. None is read twice."""
        wanted = {dead_letter(node, one) for node, found in listed.answers.items() for one in found}
        self._bodies = {key: text for key, text in self._bodies.items() if key in wanted}
        await asyncio.gather(*map(self._read, wanted - self._bodies.keys()))
        return self._bodies

    async def _read(self, key: DeadLetterRef) -> None:
        node, topic, partition, offset = key
        async with self._reading:
            try:
                log = Log(self._upstream, node, topic, self._hidden, partition)
                found = await log.message(offset)
            except PenstockError as error:
                self._bodies[key] = f"its body can't be read: {error}"
                return
        gone = "its body is not stored any more"
        self._bodies[key] = gone if found is None else preview(found.body)

    async def finish(self, held: Sequence[HeldMessage]) -> str:
        return await self._each(held, "/channel/message/finish", {})

    async def requeue(self, held: Sequence[HeldMessage], delay_ms: int) -> str:
        query = {"delay_ms": str(delay_ms)}
        return await self._each(held, "/channel/message/requeue", query)

    async def redrive(self, held: Sequence[HeldMessage]) -> str:
        return await self._each(held, "/channel/redrive", {"count": "1"})

    async def redrive_all(self, nodes: Iterable[str]) -> str:
        path, post = "/channel/redrive", self._upstream.post
        asked = await self._upstream.ask(NSQD, nodes, lambda at: post(at, path, self._names))
        return asked.refusals

    async def _each(self, held: Sequence[HeldMessage], path: str, query: dict[str, str]) -> str:
        """Returns a warning about failures; raises when all fail."""
        failed: dict[str, FetchFailed] = {}
        for one in held:
            try:
                await self._upstream.post(one.node, path, self._names | {"id": one.id} | query)
            except FetchFailed as error:
                failed[one.id] = error
        if failed and len(failed) == len(held):
            raise UpstreamFailed(NSQD, failed)
        return Asked({}, failed).refusals

    async def preview(
        self, nodes: Iterable[str], position: str, partition: int | None = None
    ) -> tuple[list[Move], list[str]]:
        """The effect of such a move on each node, and the errors of nodes that cannot tell. Without
        a partition, in all of them."""
        asked = {node: self._seek(node, position, partition, dry_run=True) for node in nodes}
        found, failed = await gathered(asked)  # of a cluster, also of nodes that lead none of it
        moves = [one for one in found.values() if one.offset is not None or one.offsets]
        return moves, [f"{at}: {reason(one)}" for at, one in failed.items()
                       if not (moves and one.code in _ELSEWHERE)]  # fmt: skip

    async def seek(self, move: Move) -> None:
        """Seek to the very offsets of the preview."""
        for partition, offset in move.offsets or ((None, move.offset),):
            await self._seek(move.node, f"offset:{offset}", partition, dry_run=False)

    async def _seek(self, node: str, position: str, partition: int | None, dry_run: bool) -> Move:
        query = self._names | {"position": position, "dry_run": str(dry_run).lower()}
        if dry_run:  # of a cluster's nodes each answers for what it leads itself
            query["only_here"] = "true"
        if partition is not None:
            query["partition"] = str(partition)
        answer = await self._upstream.post(node, "/channel/setoffset", query)
        again, skipped = int(answer["messages_again"]), int(answer["messages_skipped"])
        given_up = int(answer.get("messages_given_up", 0))
        offset = None if answer["offset"] is None else int(answer["offset"])
        offsets = tuple((int(one["partition"]), int(one["offset"]))
                       for one in answer.get("partitions") or ())  # fmt: skip
        return Move(node, offset, again, skipped, given_up, offsets)


WAITING, IN_FLIGHT, DEFERRED, REQUEUED = "waiting", "in flight", "deferred", "waiting again"
FINISHED, DEAD, UNKNOWN = "finished", "dead letter", "unknown"
_LISTS = {"in_flight": IN_FLIGHT, "deferred": DEFERRED, "requeued": REQUEUED, "dead": DEAD}


class Standing(NamedTuple):
    channel: str
    state: str
    detail: str = ""  # attempts, and who holds it


async def of_message(
    upstream: Upstream, address: LogAddress, topic: str, offset: int, message_id: str
) -> list[Standing]:
    """In every channel, sorted. Raises FetchFailed."""
    node = address.node
    query = stats_query(topic) | {"partition": str(address.partition)}
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
    inside, most = ChannelMessages(upstream, topic, channel), limits.LISTED_MESSAGES_MAX
    for state in states:
        listed = (await inside.messages([node], state, most)).answers.get(node)
        found = next((one for one in listed or () if one["id"] == message_id), None)
        if found is not None:
            return Standing(channel, _LISTS[state], _detail(found))
        is_whole &= listed is not None and len(listed) < most
    if offset >= following:  # a delayed message is deferred there, too, and in one of the lists
        return Standing(channel, WAITING, f"{offset - following:,} before it")
    if offset >= low and not is_whole:
        return Standing(channel, UNKNOWN, "finished, or one of very many that it holds")
    return Standing(channel, FINISHED, "or from before the channel began" if offset < low else "")


def _detail(found: Mapping[str, Any]) -> str:
    attempts = int(found.get("attempts", 0))
    parts = [count(attempts, "attempt")] if attempts else []
    client = found.get("client")
    if client:
        parts.append(f"with {client['hostname'] or client['client_id']}")
    if "deadline_ms" in found:
        parts.append(f"{found['deadline_ms'] / 1000:.0f} s left")
    if "due_in_ms" in found:
        parts.append(f"due in {found['due_in_ms'] / 1000:.0f} s")
    return ", ".join(parts)
