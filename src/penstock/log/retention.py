"""Which old segments may go: the rules, oldest first and whole segments only.

A segment may go when nobody needs any of it and all of it is synced. It goes when it is old enough,
or when more such data is kept than wanted. Corrupt batches keep it no longer than sound ones: it
would keep all that is newer, until the disk is full.
"""

from __future__ import annotations

from penstock.log.segments import Segments


def first_may_go(segments: Segments, floor_offset: int, synced_end: int) -> bool:
    limit = segments.limit(0)
    if limit is None or limit > min(floor_offset, synced_end):
        return False
    return not segments[0].unsynced


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
    """When the first segment's last message was written, or later: the first timestamp of the next
    segment in which it can be read."""
    for number in range(1, len(segments)):
        header = segments.use(number).first_header()
        if header is not None:
            return header.timestamp_ns
    return last_timestamp_ns


def first_kept(
    segments: Segments,
    end: int,
    last_timestamp_ns: int,
    wall_ns: int,
    age_max_ns: int,
    bytes_max: int,
    old_end: int,
) -> int:
    """Where a log begins from which all goes that may, by the same rules: needed, or not synced, is
    what is not below `end`."""
    left = consumed_bytes(segments, end)
    start = segments[0].base_offset
    for number in range(len(segments) - 1):
        limit = segments.limit(number)
        if limit is None or limit > end or segments[number].unsynced:
            break
        header = segments.use(number + 1).first_header()
        sealed_ns = header.timestamp_ns if header is not None else last_timestamp_ns
        if not (left > bytes_max or sealed_ns + age_max_ns <= wall_ns or limit <= old_end):
            break
        left -= segments[number].data_bytes
        start = limit
    return start
