"""A leader's append, checked before a byte of it is written to a follower's log.

An append is one or more batches as the leader encoded them. It is taken whole or refused whole
(`errors.AppendRefused`):

1. The batch before it, by epoch, offset and crc, is the last batch of this log. Equal ends prove
   nothing: two logs can end at one offset with different batches there. A log without a batch has
   nothing to compare; it was emptied or begun for this leader.
2. Each batch is intact: its own crc, and numbers that fit each other.
3. Offsets follow one another without a gap, from the end of the log on.
4. Epochs never fall.
5. The append is no larger than any leader writes.
6. No header says that more is synced than what lies below it.

Whose log it is, the caller has checked: identity stands in the frame, not in a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.kernel import BatchCheck, BatchHeader, check_batch, decode_header, id_at
from penstock.log.damage import joined
from penstock.log.epochs import BatchName
from penstock.log.errors import AppendRefused, RestoreRefused
from penstock.log.reader import ReadableLog, reads

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.log.segment import Segment
    from penstock.log.segments import Segments


class CheckedBatch(NamedTuple):
    """A batch of an append: its position in the append, and its header."""

    position: int
    header: BatchHeader

    @property
    def last_id(self) -> int:
        return id_at(self.header.base_id, self.header.count - 1)


class CheckedAppend(NamedTuple):
    """An append that may be written, with the facts about it."""

    length: int
    count: int  # type: ignore[assignment]  # of messages; hides tuple.count
    checked: list[CheckedBatch]


def check_append(
    where: str,
    batches: Sequence[Buffer],
    previous: BatchName,
    end_offset: int,
    last: BatchName | None,
    epoch: int,
) -> CheckedAppend:
    """`last` is the log's last batch, None when it has none; `epoch` the newest one so far. Raises
    AppendRefused."""
    views = [memoryview(batch).cast("B") for batch in batches]
    length = sum(map(len, views))
    if not 0 < length <= limits.APPEND_BYTES_MAX:
        rule = f"an append of {length} bytes: 1 to {limits.APPEND_BYTES_MAX} may be written"
        raise AppendRefused(where, rule)
    if last is not None and previous != last:
        rule = f"the append continues batch {tuple(previous)}, the last one is {tuple(last)}"
        raise AppendRefused(where, rule)
    checked = []
    expected = end_offset
    for one in _checked_batches(where, views, end_offset):
        _check_standing(where, one.header, expected, epoch)
        checked.append(one)
        expected += one.header.count
        epoch = one.header.leader_epoch
    return CheckedAppend(length, expected - end_offset, checked)


def _checked_batches(
    where: str, views: Sequence[memoryview], offset: int
) -> Iterator[CheckedBatch]:
    start = 0
    for view in views:
        position = 0
        while position < len(view):
            status, length = check_batch(view, position)
            if status != BatchCheck.INTACT:
                raise _corrupt(where, offset, BatchCheck(status).name)
            header = decode_header(view, position)
            yield CheckedBatch(start + position, header)
            offset = header.base_offset + header.count
            position += length
        start += len(view)


def _check_standing(where: str, header: BatchHeader, expected: int, epoch: int) -> None:
    if header.base_offset != expected:
        rule = f"a batch at offset {header.base_offset} where {expected} must come"
        raise AppendRefused(where, rule)
    if header.leader_epoch < epoch:
        has = f"has epoch {header.leader_epoch}, the one before it {epoch}"
        raise AppendRefused(where, f"the batch at offset {expected} {has}")
    if header.synced_end > header.base_offset:
        raise _corrupt(where, expected, "its synced end is ahead of it")


def _corrupt(where: str, offset: int, fault: str) -> AppendRefused:
    return AppendRefused(where, f"the batch for offset {offset} is not intact: {fault}")


class Hole(NamedTuple):
    """The part of a corrupt range that lies in one segment."""

    segment: Segment
    position: int
    end_position: int
    from_offset: int
    to_offset: int
    before: BatchName | None  # the intact batch before it; None at the beginning of the log
    epoch_after: int | None  # of the intact batch behind it; None at the end of the segment


@reads
def hole_at(log: ReadableLog, segments: Segments, offset: int) -> Hole:
    """The range that begins at `offset`. Raises RestoreRefused, LogDamaged."""
    found = [known for known in joined(log.damage) if known[0] == offset]
    if not found:
        raise RestoreRefused(log.path, offset, "no corrupt range begins there")
    number = segments.holding(offset)
    segment, limit = segments[number], segments.limit(number)
    if segment.foreign:
        raise RestoreRefused(log.path, offset, segment.foreign)
    segment_end = log.written_end if limit is None else limit
    to_offset = min(found[0][1], segment_end)
    before: BatchName | None = None
    position = segment.start
    if offset > segments.start_offset:
        before, _ = log.batch_at(offset - 1)
    if offset > segment.base_offset:
        position = log.locate(offset - 1).end_position
    epoch_after, end_position = None, segment.data_bytes
    if to_offset < segment_end:
        after = log.locate(to_offset)
        epoch_after, end_position = after.header.leader_epoch, after.position
    return Hole(segment, position, end_position, offset, to_offset, before, epoch_after)


def check_restored(where: str, hole: Hole, batches: bytes, previous: BatchName) -> CheckedAppend:
    """Check what shall replace corrupt batches in the middle of a log: what another member has
    there. Raises AppendRefused and RestoreRefused.

    All that was acknowledged below the committed end is the same on every member, byte for byte. So
    a corrupt range has a space in its segment that its batches fill exactly, between the intact
    batch before it and the intact one behind it:

        | intact batch | corrupt: offsets 7 to 11 | intact batch |
                      ^ position                 ^ end_position

    What was fetched is written there, and synced, before a reader is given any of it. It may be the
    beginning of the range only; the rest stays corrupt. It is refused, and nothing is written,
    unless

    1. it keeps the rules of a leader's append: intact batches without a gap, from the first offset
       of the range on, behind the very batch that stands before it here;
    2. where it reaches the end of the range it has exactly the room's length, and no higher epoch
       than the batch behind; where it does not, it is shorter.

    A power loss in the midst of a write leaves a batch that does not match its checksum, as it was
    before.
    """
    epoch = hole.before.epoch if hole.before is not None else 0
    append = check_append(where, (batches,), previous, hole.from_offset, hole.before, epoch)
    end_offset, room = hole.from_offset + append.count, hole.end_position - hole.position
    if end_offset > hole.to_offset:
        rule = f"batches up to {end_offset}, the corrupt range ends at {hole.to_offset}"
        raise RestoreRefused(where, hole.from_offset, rule)
    is_whole = end_offset == hole.to_offset
    is_last = hole.epoch_after is None  # what a sealed file has behind its last batch may be zeros
    if append.length != room if is_whole and not is_last else append.length > room - (not is_whole):
        rule = f"{append.length} bytes up to offset {end_offset}, there is room for {room}"
        raise RestoreRefused(where, hole.from_offset, rule)
    newest = append.checked[-1].header.leader_epoch
    if hole.epoch_after is not None and newest > hole.epoch_after:
        rule = f"epoch {newest}, the batch behind has {hole.epoch_after}"
        raise RestoreRefused(where, hole.from_offset, rule)
    return append
