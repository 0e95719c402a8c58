"""Which offsets of a log are known to be corrupt.

There is one list a log, and whatever reads the log adds to it: a channel, a fetch by offset, a
search, the making of an index. The owner of the log hears of each range that was not known before.
A range leaves the list when retention has removed it, or another replica's batches have replaced
it.

A range that `penstock log repair` gave up stands in the file `lost`: it is no news on a node by
itself. Of a partition that has other replicas one of those may have it (`lost_is_news`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from penstock import limits
from penstock.log import names
from penstock.log.disk import Disk, read_file, replace_file
from penstock.log.fold import merged
from penstock.log.seal import seal, unseal

Damage = tuple[int, int, str]  # from offset, to offset, reason


def describe(damage: Damage) -> str:
    start, end, reason = damage
    return f"offsets {start} to {end - 1} are corrupt: {reason}"


def joined(ranges: Iterable[Damage]) -> list[tuple[int, int]]:
    """Start and end of consecutive corrupt ranges, whatever the reasons."""
    return merged((start, end) for start, end, _ in ranges)


class DamageList:
    """In the order of offsets."""

    __slots__ = ("_lost", "_ranges", "lost_is_news", "on_added")

    def __init__(self, known: Iterable[Damage] = (), lost: Sequence[LostRange] = ()) -> None:
        self._lost = lost
        self._ranges: list[Damage] = sorted(known)
        self.lost_is_news = False
        self.on_added: Callable[[Damage], None] | None = None

    def __iter__(self) -> Iterator[Damage]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    @property
    def ranges(self) -> list[Damage]:
        return list(self._ranges)

    def add(self, from_offset: int, to_offset: int, reason: str) -> None:
        """Ranges that touch and have the same reason become one."""
        if not self.lost_is_news and is_lost(self._lost, from_offset, to_offset):
            return
        if any(start <= from_offset and to_offset <= end for start, end, _ in self._ranges):
            return
        start, end = from_offset, to_offset
        apart: list[Damage] = []
        for known in self._ranges:
            if known[2] == reason and known[0] <= end and start <= known[1]:
                start, end = min(start, known[0]), max(end, known[1])
            else:
                apart.append(known)
        self._ranges = sorted([*apart, (start, end, reason)])
        if self.on_added is not None:
            self.on_added((start, end, reason))

    def holds(self, offset: int) -> bool:
        return any(start <= offset < end for start, end, _ in self._ranges)

    def given_up_until(self, offset: int) -> int:
        """The end of the range that an operator gave up at `offset`; `offset` if none."""
        return lost_until(self._lost, offset)

    def forget_from(self, offset: int) -> None:
        """The log ends there: later writes are intact."""
        self._lost = [known for known in self._lost if known.from_offset < offset]
        self.forget(offset, sys.maxsize)

    def forget(self, from_offset: int, to_offset: int) -> None:
        """These offsets are intact again, or gone from the log."""
        left: list[Damage] = []
        for start, end, reason in self._ranges:
            parts = ((start, min(end, from_offset)), (max(start, to_offset), end))
            left += [(first, last, reason) for first, last in parts if first < last]
        self._ranges = left


def outside(start: int, end: int, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The parts of [start, end) outside of all of these, which rise and do not overlap."""
    for first, last in ranges:
        if start < min(first, end):
            yield start, min(first, end)
        start = max(start, last)
    if start < end:
        yield start, end


class LostRange(msgspec.Struct, array_like=True, frozen=True):
    from_offset: int
    to_offset: int
    reason: str
    repaired_ns: int  # since 1970


class _LostFile(msgspec.Struct):
    """The file `lost` of a partition: offsets that an operator has given up by `log repair`.

    The bytes stay where they are, so no intact batch is touched. What the file changes is what is
    said of them: readers step over these offsets without a warning, and a log whose end is among
    them goes on behind it, in a segment of its own.

    A JSON file with its own checksum, replaced whole. One that is corrupt counts as not there: then
    the ranges are reported as corrupt again, and nothing is served that was not served before.
    """

    ranges: list[LostRange]
    version: int = 1


def read_lost(disk: Disk, directory: str) -> list[LostRange]:
    """In the order of offsets. Raises OSError."""
    path = os.path.join(directory, names.LOST)
    if not disk.exists(path):
        return []
    try:
        data = unseal(read_file(disk, path, limits.LOST_FILE_BYTES_MAX))
        return sorted(msgspec.json.decode(data, type=_LostFile).ranges, key=_by_offset)
    except (ValueError, msgspec.DecodeError):
        return []


def write_lost(disk: Disk, directory: str, ranges: Iterable[LostRange]) -> None:
    """Durable on return. Raises OSError."""
    file = _LostFile(sorted(ranges, key=_by_offset))
    replace_file(disk, os.path.join(directory, names.LOST), seal(msgspec.json.encode(file)))
    disk.sync_directory(directory)


def forget_lost(disk: Disk, directory: str, offset: int) -> None:
    """Forget lost ranges from this offset on. Durable on return. Raises OSError."""
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
    """The end of the range given up at `offset`; `offset` itself if none."""
    for known in ranges:
        if known.from_offset <= offset < known.to_offset:
            offset = known.to_offset
    return offset


def _by_offset(range: LostRange) -> int:
    return range.from_offset
