"""Corrupt batches in the middle of a log, replaced by what another member has there.

All that was acknowledged below the committed end is the same on every member, byte for byte. So a
corrupt range has a place in its segment that its batches fill exactly, between the sound batch
before it and the sound one behind it:

    | sound batch | corrupt: offsets 7 to 11 | sound batch |
                  ^ position                 ^ end_position

What was fetched is written there, and synced, before a reader is given any of it. It may be the
beginning of the range only; the rest stays corrupt. It is refused, and nothing is written, unless

1. it keeps the rules of a leader's row (`foreign.py`): sound batches without a gap, from the first
   offset of the range on, behind the very batch that stands before it here;
2. where it reaches the end of the range it has exactly the room's length, and no higher epoch than
   the batch behind; where it does not, it is shorter.

A power loss in the midst of a write leaves a batch that does not match its checksum, as it was
before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.log.damage import joined
from penstock.log.epochs import BatchName
from penstock.log.errors import RestoreRefused
from penstock.log.foreign import Row, check_row

if TYPE_CHECKING:
    from penstock.log.damage import DamageList
    from penstock.log.reader import LogReader
    from penstock.log.segment import Segment
    from penstock.log.segments import Segments


class Hole(NamedTuple):
    """A corrupt range, as far as it lies in one segment."""

    segment: Segment
    position: int
    end_position: int
    from_offset: int
    to_offset: int
    before: BatchName | None  # the sound batch before it; None at the beginning of the log
    epoch_after: int | None  # of the sound batch behind it; None at the end of the segment


def hole_at(
    where: str, segments: Segments, reader: LogReader, damage: DamageList, offset: int, end: int
) -> Hole:
    """The range that begins at `offset`. `end`: of the log. Raises RestoreRefused, LogDamaged."""
    found = [known for known in joined(damage) if known[0] == offset]
    if not found:
        raise RestoreRefused(where, offset, "no corrupt range begins there")
    number = segments.holding(offset)
    segment, limit = segments.use(number), segments.limit(number)
    if segment.foreign:
        raise RestoreRefused(where, offset, segment.foreign)
    segment_end = end if limit is None else limit
    to_offset = min(found[0][1], segment_end)
    before, position = None, segment.start
    if offset > segments.start_offset:
        place = reader.place(offset - 1)
        before = BatchName(place.epoch, place.base_offset, place.crc)
    if offset > segment.base_offset:
        position = reader.locate(offset - 1).end_position
    epoch_after, end_position = None, segment.data_bytes
    if to_offset < segment_end:
        after = reader.locate(to_offset)
        epoch_after, end_position = after.header.leader_epoch, after.position
    return Hole(segment, position, end_position, offset, to_offset, before, epoch_after)


def check_restored(where: str, hole: Hole, batches: bytes, previous: BatchName) -> Row:
    """Raises AppendRefused and RestoreRefused."""
    epoch = hole.before.epoch if hole.before is not None else 0
    row = check_row(where, (batches,), previous, hole.from_offset, hole.before, epoch)
    end_offset, room = hole.from_offset + row.count, hole.end_position - hole.position
    if end_offset > hole.to_offset:
        rule = f"batches up to {end_offset}, the corrupt range ends at {hole.to_offset}"
        raise RestoreRefused(where, hole.from_offset, rule)
    is_whole = end_offset == hole.to_offset
    is_last = hole.epoch_after is None  # what a sealed file has behind its last batch may be zeros
    if row.length != room if is_whole and not is_last else row.length > room - (not is_whole):
        rule = f"{row.length} bytes up to offset {end_offset}, there is room for {room}"
        raise RestoreRefused(where, hole.from_offset, rule)
    newest = row.pieces[-1].header.leader_epoch
    if hole.epoch_after is not None and newest > hole.epoch_after:
        rule = f"epoch {newest}, the batch behind has {hole.epoch_after}"
        raise RestoreRefused(where, hole.from_offset, rule)
    return row
