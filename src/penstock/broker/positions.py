"""Places in a topic's log by name, for replaying a channel: `timestamp:1780000000`, `offset:12`.

The first four are Youzan's, where `virtual_queue` is a byte position; here the log is numbered by
messages from its beginning, so it is the same as `msgcount` and `offset`.

    timestamp:TIME      what was stored then or later; a time as `times.py` has it
    virtual_queue:N     the message with offset N
    msgcount:N          the same
    special:-1          the end
    offset:N            the message with offset N
    back:N              the newest N messages
    id:HEX              that message
    earliest            all that is stored
    latest              the end

Each partition has a log of its own. A time and the two ends are a place in every one of them, an id
in the one that has the message; an offset or a number of messages needs its partition named.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.reading import TopicReader
from penstock.broker.search import find_id
from penstock.errors import NotFound, OffsetBeyondEnd, OffsetGone
from penstock.times import read_time

if TYPE_CHECKING:
    from penstock.broker.channel import Channel
    from penstock.broker.topic import Topic

RULE = (
    "timestamp:TIME, offset:N, virtual_queue:N, msgcount:N, back:N, id:HEX, special:-1, "
    "earliest or latest"
)
_WHOLE = re.compile(r"[0-9]{1,18}")
_HEX = re.compile(r"[0-9a-fA-F]{16}")
_OFFSETS = ("offset", "virtual_queue", "msgcount")
OF_ONE = ("offset", "back")  # of one partition's log


class Position(NamedTuple):
    kind: str  # timestamp (nanoseconds), offset, back, id, earliest, latest
    value: int = 0


Places = dict[int, int]  # offsets by partition


class Move(NamedTuple):
    """What setting a channel's cursor to `offset` does in one partition."""

    offset: int
    again: int  # messages that were sent, or dropped, before and come again
    skipped: int  # messages that were still to be sent for the first time and will not be
    given_up: int  # in flight, requeued or delayed ones below it: they don't come again


def parse_position(text: str, now_ns: int) -> Position:
    """Raises ValueError."""
    kind, _, value = text.strip().partition(":")
    if text.strip() in ("earliest", "latest"):
        return Position(kind)
    if (kind, value) == ("special", "-1"):
        return Position("latest")
    if kind == "timestamp":
        return Position(kind, read_time(value, now_ns))
    if kind in _OFFSETS and _WHOLE.fullmatch(value):
        return Position("offset", int(value))
    if kind == "back" and _WHOLE.fullmatch(value):
        return Position(kind, int(value))
    if kind == "id" and _HEX.fullmatch(value):
        return Position(kind, int(value, 16))
    raise ValueError(f"one of {RULE}")


def resolve(
    topic: Topic, position: Position, partitions: Sequence[int] = (0,)
) -> Generator[None, None, Places]:
    """The place in each of these partitions; of an id, in the one that has it. Raises OffsetGone,
    OffsetBeyondEnd, NotFound, StorageError."""
    if position.kind != "id":
        return {number: _resolve(topic, position, number) for number in partitions}
    readers = [TopicReader(topic, number) for number in partitions]
    found = yield from find_id(readers, position.value)
    if found is None:
        raise NotFound("message", f"{position.value:016x}")
    partition, offset = found
    return {partition: _resolve(topic, Position("offset", offset), partition)}


def _resolve(topic: Topic, position: Position, partition: int) -> int:
    """The offset, between the earliest and the point up to which channels have been given
    messages."""
    kind, value = position
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
    if value < earliest:
        raise OffsetGone(value, earliest)
    if value > end:
        raise OffsetBeyondEnd(value, end)
    return value


def move_of(channel: Channel, offset: int, partition: int = 0) -> Move:
    window = channel.windows[partition]
    next_offset = window.next
    again, skipped = max(next_offset - offset, 0), max(offset - next_offset, 0)
    return Move(offset, again, skipped, window.unfinished_below(offset))
