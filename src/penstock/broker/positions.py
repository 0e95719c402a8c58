"""Places in a topic's log by name, for replaying a channel: `timestamp:1780000000`, `offset:12`.

The first four are Youzan's, where `virtual_queue` is a byte position; here the log is numbered by
messages from its beginning, so it is the same as `msgcount` and `offset`.

    timestamp:SECONDS   what was stored then or later
    virtual_queue:N     the message with offset N
    msgcount:N          the same
    special:-1          the end
    offset:N            the message with offset N
    back:N              the newest N messages
    id:HEX              that message
    earliest            all that is stored
    latest              the end
"""

from __future__ import annotations

import re
from collections.abc import Generator
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.broker.reading import TopicReader
from penstock.errors import NotFound, OffsetBeyondEnd, OffsetGone

if TYPE_CHECKING:
    from penstock.broker.channel import Channel
    from penstock.broker.topic import Topic

RULE = (
    "timestamp:SECONDS, offset:N, virtual_queue:N, msgcount:N, back:N, id:HEX, special:-1, "
    "earliest or latest"
)
_WHOLE = re.compile(r"[0-9]{1,18}")
_SECONDS = re.compile(r"[0-9]{1,10}(\.[0-9]{1,9})?")
_HEX = re.compile(r"[0-9a-fA-F]{16}")
_OFFSETS = ("offset", "virtual_queue", "msgcount")


class Position(NamedTuple):
    kind: str  # timestamp (nanoseconds), offset, back, id, earliest, latest
    value: int = 0


class Move(NamedTuple):
    """What setting a channel's cursor to `offset` does."""

    offset: int
    again: int  # messages that were sent, or dropped, before and come again
    skipped: int  # messages that were still to be sent for the first time and will not be
    given_up: int  # in flight, requeued or delayed ones below it: they don't come again


def parse_position(text: str) -> Position:
    """Raises ValueError."""
    kind, _, value = text.strip().partition(":")
    if text.strip() in ("earliest", "latest"):
        return Position(kind)
    if (kind, value) == ("special", "-1"):
        return Position("latest")
    if kind == "timestamp" and _SECONDS.fullmatch(value):
        return Position(kind, int(Decimal(value) * limits.SECOND))
    if kind in _OFFSETS and _WHOLE.fullmatch(value):
        return Position("offset", int(value))
    if kind == "back" and _WHOLE.fullmatch(value):
        return Position(kind, int(value))
    if kind == "id" and _HEX.fullmatch(value):
        return Position(kind, int(value, 16))
    raise ValueError(f"one of {RULE}")


def resolve(topic: Topic, position: Position, partition: int = 0) -> Generator[None, None, int]:
    """The offset, between the earliest and the point up to which channels have been given
    messages. Raises OffsetGone, OffsetBeyondEnd, NotFound, StorageError."""
    kind, value = position
    offset = value
    if kind == "id":
        found = yield from TopicReader(topic, partition).find_id(value)
        if found is None:
            raise NotFound("message", f"{value:016x}")
        offset = found
    leader = topic.leader(partition)
    earliest, end = leader.log.start_offset, leader.tail.handed_end
    if kind == "earliest":
        return earliest
    if kind == "latest":
        return end
    if kind == "back":
        return max(end - value, earliest)
    if kind == "timestamp":
        return TopicReader(topic, partition).find_time(value, end)
    if offset < earliest:
        raise OffsetGone(offset, earliest)
    if offset > end:
        raise OffsetBeyondEnd(offset, end)
    return offset


def move_of(channel: Channel, offset: int, partition: int = 0) -> Move:
    window = channel.windows[partition]
    next_offset = window.next
    again, skipped = max(next_offset - offset, 0), max(offset - next_offset, 0)
    return Move(offset, again, skipped, window.unfinished_below(offset))
