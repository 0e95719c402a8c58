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

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.errors import LogDamaged, NotFound, OffsetBeyondEnd, OffsetGone, StorageError
from penstock.kernel import Section, decode_sections
from penstock.kernel.layout import FLAG_TRAILER, HEADER_BYTES, place_at

if TYPE_CHECKING:
    from penstock.broker.topic import Topic
    from penstock.log.reader import Message, Stretch


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
        self._log = self._leader.log

    @property
    def earliest(self) -> int:
        return self._log.start_offset

    @property
    def end(self) -> int:
        """Nothing below it can be taken back by a crash."""
        committed = self.committed
        return committed if self._topic.ephemeral else min(committed, self._log.synced_end)

    @property
    def committed(self) -> int:
        return self._leader.tail.committed_end

    # --- batches ---

    def fetch(
        self, from_offset: int, to_offset: int, bytes_max: int
    ) -> Generator[None, None, Range]:
        """The batches that hold [from, to), as far as they are below the end and fit; at least the
        first. What is damaged or gone further on ends the range before it. Raises OffsetGone,
        OffsetBeyondEnd, NotFound, LogDamaged, StorageError."""
        self._check(from_offset, self.end)
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

    def stretch(self, from_offset: int) -> Stretch | None:
        """The segment file that holds `from_offset`, for a thread that reads it; None where `fetch`
        has to do it: at the end, where damage is known, and on disks without descriptors. Raises
        as `fetch` does. To be released."""
        self._check(from_offset, self.end)
        if from_offset == self.end or self._log.damage.holds(from_offset):
            return None
        self._topic.was_read()
        return self._log.stretch(from_offset)

    def release(self, stretch: Stretch) -> None:
        self._log.release(stretch)

    def remember(self, stretch: Stretch, next_offset: int, position: int) -> None:
        """A stretch was read up to here: the next one is likely to begin here."""
        self._log.remember(stretch, next_offset, position)

    def _check(self, offset: int, end: int) -> None:
        if offset < self.earliest:
            raise OffsetGone(offset, self.earliest)
        if offset > end:
            raise OffsetBeyondEnd(offset, end)

    def _read(self, offset: int, bytes_max: int) -> memoryview:
        if self._topic.deleted:
            raise NotFound("topic", self._topic.name)
        self._check(offset, self.committed)
        self._topic.was_read()
        return self._log.read(offset, bytes_max)

    # --- one message ---

    def message(self, offset: int) -> Message:
        """Raises as `fetch` does, but also serves what is committed and not on the disk yet."""
        self._check(offset, self.committed - 1)
        self._topic.was_read()
        return self._log.message(offset)

    def find_time(self, timestamp_ns: int, end: int) -> int:
        """The first offset whose batch was written then or later; `end` if that is beyond it."""
        self._topic.was_read()
        return min(self._log.find_time(timestamp_ns), end)

    def after_bytes(self, offset: int, length: int, end: int) -> int:
        """About the offset that stands `length` bytes of log behind `offset`; `end` if that is
        beyond it. Raises OffsetGone, OffsetBeyondEnd."""
        self._check(offset, end)
        self._topic.was_read()
        return offset if offset == end else min(self._log.after_bytes(offset, length), end)

    def bytes_from(self, offset: int) -> int:
        """About how many bytes of log there are from `offset` on, to the end of all."""
        offset = max(offset, self.earliest)
        if offset >= self.end:
            return 0
        self._topic.was_read()
        return self._log.bytes_from(offset)

    def find_id(self, id: int) -> Generator[None, None, int | None]:
        """The offset of the message with this id. By search for ids that were given out here; the
        ids of messages that brought theirs along take a walk through the log."""
        offset = self.find_own_id(id)
        if offset is None:
            return (yield from self.find_value(Section.ID, id))
        return offset

    def find_own_id(self, id: int) -> int | None:
        """The same for an id that was given out here: no walk."""
        self._topic.was_read()
        offset = self._log.find_id(id)
        return None if offset is None or offset >= self.committed else offset

    def find_value(self, section: Section, value: int) -> Generator[None, None, int | None]:
        """The first offset whose message has this value in a section. Damage is stepped over."""
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


def _until(block: memoryview, end_offset: int) -> tuple[int, int, int]:
    """The batches of a block that begin below `end_offset`, at least one: the first one's offset,
    that after the last one, and their bytes."""
    length, _, first, count = place_at(block, 0)
    position, next_offset = length, first + count
    while position < len(block):
        length, _, base_offset, count = place_at(block, position)
        if base_offset >= end_offset:
            break
        position += length
        next_offset = base_offset + count
    return first, next_offset, position


def _look(block: memoryview, section: Section, value: int) -> tuple[int | None, int]:
    """The offset of the first message with this value, and the offset after the block."""
    position, next_offset = 0, 0
    while position < len(block):
        length, flags, base_offset, count = place_at(block, position)
        if flags & FLAG_TRAILER:
            for index, found in decode_sections(block, position).get(section, {}).items():
                if found == value:
                    return base_offset + index, base_offset + count
        position += length
        next_offset = base_offset + count
    return None, next_offset
