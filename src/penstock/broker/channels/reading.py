"""Reading a topic's log without a channel: nothing is delivered, nothing is finished, no cursor
moves.

What can be read ends at the durable end: what is committed and on the disk. A reader that keeps an
offset below it will find the same message there after any crash. An ephemeral topic has nothing on
the disk to lose, so there the committed end counts.

Work that may be long is a generator which yields after each piece, so that whoever runs it can let
others have their turn. Between two pieces anything can happen: retention takes segments away, the
topic is deleted. So each piece looks again.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.broker.partition.appends import MessagePosition
from penstock.errors import LogDamaged, NotFound, OffsetBeyondEnd, OffsetGone, StorageError
from penstock.kernel import Section, decode_sections
from penstock.kernel.layout import FLAG_TRAILER, HEADER_BYTES, head_at
from penstock.times import read_time

if TYPE_CHECKING:
    from penstock.broker.channels.channel import Channel
    from penstock.broker.topics.topic import Topic
    from penstock.log.messages import Message
    from penstock.log.reader import FileRange


class Range(NamedTuple):
    """Whole batches, one after the other."""

    base_offset: int  # of the first batch
    next_offset: int  # after the last one
    blocks: list[memoryview]


class TopicReader:
    def __init__(self, topic: Topic, partition: int = 0) -> None:
        self.partition = partition
        self._topic = topic
        self._leader = topic.leader(partition)
        self.log = self._leader.log

    @property
    def earliest(self) -> int:
        return self.log.start_offset

    @property
    def end(self) -> int:
        """Messages below it survive any crash."""
        committed = self.committed
        return committed if self._topic.ephemeral else min(committed, self.log.synced_end)

    @property
    def committed(self) -> int:
        return self._leader.tail.committed_end

    # --- batches ---

    def fetch(
        self, from_offset: int, to_offset: int, bytes_max: int
    ) -> Generator[None, None, Range]:
        """The batches that hold [from, to), as far as they are below the end and fit; at least the
        first. Damage further on, or a removed segment, ends the range before it. Raises OffsetGone,
        OffsetBeyondEnd, NotFound, LogDamaged, StorageError."""
        check_offset(from_offset, self.earliest, self.end)
        blocks: list[memoryview] = []
        base_offset = offset = from_offset
        left = bytes_max
        while offset < min(to_offset, self.end):
            try:
                block = self._read(offset, min(left, limits.READ_BLOCK_BYTES))
            except (OffsetGone, NotFound, StorageError):
                if not blocks:
                    raise
                break
            first, next_offset, length = _until(block, min(to_offset, self.end))
            if blocks and length > left:
                break
            if not blocks:
                base_offset = first
            blocks.append(block[:length])
            left -= length
            offset = next_offset
            if left < HEADER_BYTES:
                break
            yield
        return Range(base_offset, offset, blocks)

    # --- batches, read beside the loop ---

    def file_range(self, from_offset: int) -> FileRange | None:
        """The segment file that holds `from_offset`, for a thread that reads it; None where `fetch`
        has to do it: at the end, where damage is known, and on disks without descriptors. Raises
        as `fetch` does. To be released."""
        check_offset(from_offset, self.earliest, self.end)
        if from_offset == self.end or self.log.damage.holds(from_offset):
            return None
        self._topic.touch()
        return self.log.file_range(from_offset)

    def _read(self, offset: int, bytes_max: int) -> memoryview:
        if self._topic.deleted:
            raise NotFound("topic", self._topic.name)
        check_offset(offset, self.earliest, self.committed)
        self._topic.touch()
        return self.log.read(offset, bytes_max)

    # --- one message ---

    def message(self, offset: int) -> Message:
        """Raises as `fetch` does, but also serves committed messages that are not on disk yet."""
        check_offset(offset, self.earliest, self.committed)
        if offset == self.committed:
            raise OffsetBeyondEnd(offset, self.committed)
        self._topic.touch()
        return self.log.message(offset)

    def find_time(self, timestamp_ns: int, end: int) -> int:
        """The first offset whose batch was written then or later; `end` beyond it."""
        self._topic.touch()
        return min(self.log.find_time(timestamp_ns), end)

    def after_bytes(self, offset: int, length: int, end: int) -> int:
        """Roughly the offset that lies `length` bytes of log behind `offset`; `end` beyond it.
        Raises OffsetGone, OffsetBeyondEnd."""
        check_offset(offset, self.earliest, end)
        self._topic.touch()
        return offset if offset == end else min(self.log.after_bytes(offset, length), end)

    def bytes_from(self, offset: int) -> int:
        """About how many bytes of log there are from `offset` on, to the end of all."""
        offset = max(offset, self.earliest)
        if offset >= self.end:
            return 0
        self._topic.touch()
        return self.log.bytes_from(offset)

    def find_own_id(self, id: int) -> int | None:
        """The offset of the message with this id, if it was given out here: no walk."""
        self._topic.touch()
        offset = self.log.find_id(id)
        return None if offset is None or offset >= self.committed else offset

    def find_value(self, section: Section, value: int) -> Generator[None, None, int | None]:
        """The first offset whose message has this value in a section. Damage is skipped."""
        offset, end = self.earliest, self.committed
        while offset < end:
            offset = max(offset, self.earliest)
            try:
                block = self._read(offset, limits.READ_BLOCK_BYTES)
            except LogDamaged as error:
                offset = max(error.to_offset, offset + 1)
                continue
            found, offset = _look(block, section, value)
            if found is not None:
                return found if found < end else None
            yield
        return None


def check_offset(offset: int, earliest: int, end: int) -> None:
    """Raises OffsetGone and OffsetBeyondEnd."""
    if offset < earliest:
        raise OffsetGone(offset, earliest)
    if offset > end:
        raise OffsetBeyondEnd(offset, end)


def _until(block: memoryview, end_offset: int) -> tuple[int, int, int]:
    """The batches of a block that begin below `end_offset`, at least one: the first one's offset,
    that after the last one, and their bytes."""
    length, _, first, count = head_at(block, 0)
    position, next_offset = length, first + count
    while position < len(block):
        length, _, base_offset, count = head_at(block, position)
        if base_offset >= end_offset:
            break
        position += length
        next_offset = base_offset + count
    return first, next_offset, position


def _look(block: memoryview, section: Section, value: int) -> tuple[int | None, int]:
    """The offset of the first message with this value, and the offset after the block."""
    position, next_offset = 0, 0
    while position < len(block):
        length, flags, base_offset, count = head_at(block, position)
        if flags & FLAG_TRAILER:
            for index, found in decode_sections(block, position).get(section, {}).items():
                if found == value:
                    return base_offset + index, base_offset + count
        position += length
        next_offset = base_offset + count
    return None, next_offset


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


Offsets = dict[int, int]  # offsets by partition


class CursorMove(NamedTuple):
    """The effect of setting a channel's cursor to `offset`, in one partition."""

    offset: int
    again: int  # messages that were sent, or dropped, before and come again
    skipped: int  # messages that were still to be sent for the first time and will not be
    given_up: int  # in flight, requeued or delayed ones below it: they don't come again


def parse_position(text: str, now_ns: int) -> Position:
    """A position in a topic's log by name, for replaying a channel: `timestamp:1780000000`. Raises
    ValueError.

    The first four are Youzan's, where `virtual_queue` is a byte position; here the log is numbered
    by messages from its beginning, so it is the same as `msgcount` and `offset`.

        timestamp:TIME      what was stored then or later; a time as `times.py` has it
        virtual_queue:N     the message with offset N
        msgcount:N          the same
        special:-1          the end
        offset:N            the message with offset N
        back:N              the newest N messages
        id:HEX              that message
        earliest            all that is stored
        latest              the end

    Each partition has a log of its own. A time and the two ends are a position in every one of
    them, an id in the one that has the message; an offset or a number of messages needs its
    partition named.
    """
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
) -> Generator[None, None, Offsets]:
    """The position in each of these partitions; for an id, in the partition that has it. Raises
    OffsetGone, OffsetBeyondEnd, NotFound, StorageError."""
    if position.kind != "id":
        return {number: _resolve(topic, position, number) for number in partitions}
    readers = [TopicReader(topic, number) for number in partitions]
    found = yield from find_id(readers, position.value)
    if found is None:
        raise NotFound("message", f"{position.value:016x}")
    partition, offset = found
    return {partition: _resolve(topic, Position("offset", offset), partition)}


def _resolve(topic: Topic, position: Position, partition: int) -> int:
    """Between the earliest and the point up to which channels have been given messages."""
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
    check_offset(value, earliest, end)
    return value


def move_of(channel: Channel, offset: int, partition: int = 0) -> CursorMove:
    window = channel.windows[partition]
    next_offset = window.next
    again, skipped = max(next_offset - offset, 0), max(offset - next_offset, 0)
    return CursorMove(offset, again, skipped, window.unfinished_below(offset))


def find_id(
    readers: Sequence[TopicReader], id: int
) -> Generator[None, None, MessagePosition | None]:
    """One message of a topic, in whichever of its partitions it is.

    An id that was given out here is searched for in the index of every log before any log is walked
    through: a walk reads all that is stored.
    """
    for reader in readers:
        offset = reader.find_own_id(id)
        if offset is not None:
            return MessagePosition(reader.partition, offset)
    return (yield from find_value(readers, Section.ID, id))


def find_value(
    readers: Sequence[TopicReader], section: Section, value: int
) -> Generator[None, None, MessagePosition | None]:
    """The first message with this value in a section, by partition and offset."""
    for reader in readers:
        offset = yield from reader.find_value(section, value)
        if offset is not None:
            return MessagePosition(reader.partition, offset)
    return None
