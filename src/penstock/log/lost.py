"""The file `lost` of a partition: offsets that an operator has given up (`penstock log repair`).

The bytes stay where they are, so no sound batch is touched. What the file changes is what is said
of them: readers step over these offsets without a warning, and a log whose end is among them goes
on behind it, in a segment of its own.

A JSON file with its own checksum, replaced whole. One that is corrupt counts as not there: then
the ranges are reported as corrupt again, and nothing is served that was not served before.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import msgspec

from penstock import limits
from penstock.log import names
from penstock.log.disk import Disk, read_file, replace_file
from penstock.log.sealed import seal, unseal


class LostRange(msgspec.Struct, array_like=True, frozen=True):
    from_offset: int
    to_offset: int
    reason: str
    repaired_ns: int  # since 1970


class _File(msgspec.Struct):
    ranges: list[LostRange]
    version: int = 1


def read_lost(disk: Disk, directory: str) -> list[LostRange]:
    """In the order of offsets. Raises OSError."""
    path = os.path.join(directory, names.LOST)
    if not disk.exists(path):
        return []
    try:
        data = unseal(read_file(disk, path, limits.LOST_FILE_BYTES_MAX))
        return sorted(msgspec.json.decode(data, type=_File).ranges, key=_by_offset)
    except (ValueError, msgspec.DecodeError):
        return []


def write_lost(disk: Disk, directory: str, ranges: Iterable[LostRange]) -> None:
    """Durable on return. Raises OSError."""
    file = _File(sorted(ranges, key=_by_offset))
    replace_file(disk, os.path.join(directory, names.LOST), seal(msgspec.json.encode(file)))
    disk.sync_directory(directory)


def forget_lost(disk: Disk, directory: str, offset: int) -> None:
    """Of offsets from this one on. Durable on return. Raises OSError."""
    ranges = read_lost(disk, directory)
    kept = [known for known in ranges if known.from_offset < offset]
    if any(known.to_offset > offset for known in ranges):
        clipped = [
            msgspec.structs.replace(known, to_offset=min(known.to_offset, offset)) for known in kept
        ]
        write_lost(disk, directory, clipped)


def is_lost(ranges: Sequence[LostRange], from_offset: int, to_offset: int) -> bool:
    """All of [from, to) was given up."""
    return lost_until(ranges, from_offset) >= to_offset


def lost_until(ranges: Sequence[LostRange], offset: int) -> int:
    """The end of what was given up from `offset` on; `offset` itself where nothing was."""
    for known in ranges:
        if known.from_offset <= offset < known.to_offset:
            offset = known.to_offset
    return offset


def _by_offset(range: LostRange) -> int:
    return range.from_offset
