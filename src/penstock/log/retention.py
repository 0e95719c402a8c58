"""Which old segments may go: the rules, oldest first and whole segments only.

A segment may go when nobody needs any of it, all of it is synced and none of it is hurt (what is
hurt is evidence, and may be repaired). It goes when it is old enough, or when more such data is
kept than wanted.
"""

from __future__ import annotations

from penstock.log.reader import Damage
from penstock.log.segments import Segments

_NEVER_NS = 1 << 63


def first_may_go(
    segments: Segments, damaged: list[Damage], floor_offset: int, synced_end: int
) -> bool:
    limit = segments.limit(0)
    if limit is None or limit > min(floor_offset, synced_end):
        return False
    first = segments[0]
    hurt = any(start < limit and first.base_offset < end for start, end, _ in damaged)
    return not first.unsynced and not hurt


def consumed_bytes(segments: Segments, floor_offset: int) -> int:
    """How much is stored in sealed segments that nobody needs."""
    total = 0
    for number in range(len(segments) - 1):
        limit = segments.limit(number)
        if limit is None or limit > floor_offset:
            break
        total += segments[number].data_bytes
    return total


def first_sealed_ns(segments: Segments, last_timestamp_ns: int) -> int:
    """When the first segment's last message was written, or a little later: the second segment's
    first timestamp. Far ahead when that can't be read."""
    following = segments.use(1)
    if following is segments.active and not following.data_bytes:
        return last_timestamp_ns
    header = following.first_header()
    return header.timestamp_ns if header is not None else _NEVER_NS
