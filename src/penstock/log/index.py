"""The sparse index of one segment: where to start looking for an offset, a time or an id.

All three rise along a log, so one table answers all of them. It is a hint and never believed: who
uses an entry checks it against the segment (`Segment.locate`), and a missing, short or wrong file
is put right from the segment. The file is appended to now and then and never synced.
"""

import struct
import sys
from array import array
from bisect import bisect_right
from contextlib import closing
from typing import NamedTuple

from penstock.kernel.layout import ALIGNMENT_BYTES
from penstock.log.disk import Disk, read_file
from penstock.log.head import HEAD_BYTES

_LAYOUT = struct.Struct("<QQqQ")
ENTRY_BYTES = _LAYOUT.size
_LITTLE_ENDIAN = sys.byteorder == "little"


class IndexEntry(NamedTuple):
    offset: int
    position: int
    timestamp_ns: int
    id: int


class SparseIndex:
    """Entries in memory, as four arrays, and the file they are kept in."""

    __slots__ = ("ids", "offsets", "path", "positions", "saved", "timestamps", "trim")

    def __init__(self, path: str) -> None:
        self.path = path
        self.offsets = array("Q")
        self.positions = array("Q")
        self.timestamps = array("q")
        self.ids = array("Q")
        self.saved = 0  # entries that the file is known to hold
        self.trim = False  # the file may hold more than that

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offset: int, position: int, timestamp_ns: int, id: int) -> None:
        self.offsets.append(offset)
        self.positions.append(position)
        self.timestamps.append(timestamp_ns)
        self.ids.append(id)

    def entry(self, number: int) -> IndexEntry:
        return IndexEntry(
            self.offsets[number], self.positions[number], self.timestamps[number], self.ids[number]
        )

    def entries(self) -> list[IndexEntry]:
        return [self.entry(number) for number in range(len(self))]

    def at_offset(self, offset: int) -> int:
        """The number of the last entry at or below `offset`, -1 when there is none."""
        return bisect_right(self.offsets, offset) - 1

    def before_time(self, timestamp_ns: int) -> int:
        """The last entry whose batch is older than `timestamp_ns`, -1 when there is none."""
        return bisect_right(self.timestamps, timestamp_ns - 1) - 1

    def at_id(self, id: int) -> int:
        return bisect_right(self.ids, id) - 1

    def cut(self, count: int) -> None:
        for column in (self.offsets, self.positions, self.timestamps, self.ids):
            del column[count:]
        self.trim = self.trim or self.saved > count
        self.saved = min(self.saved, count)

    # --- the file ---

    def save(self, disk: Disk) -> None:
        """Append the entries that the file lacks. After a failure the next save tries again."""
        if self.saved == len(self) and not self.trim:
            return
        data = encode_entries([self.entry(number) for number in range(self.saved, len(self))])
        exists = self.saved > 0 or self.trim
        with closing(
            disk.open(self.path, write=True) if exists else disk.create(self.path)
        ) as file:
            file.pwritev((data,), self.saved * ENTRY_BYTES, len(data))
            if self.trim:
                file.truncate(len(self) * ENTRY_BYTES)
        self.saved = len(self)
        self.trim = False


def encode_entries(entries: list[IndexEntry]) -> bytes:
    return b"".join(_LAYOUT.pack(*entry) for entry in entries)


def decode_entries(data: bytes) -> list[IndexEntry]:
    """All whole entries of `data`, unchecked."""
    whole = len(data) - len(data) % ENTRY_BYTES
    return [IndexEntry._make(fields) for fields in _LAYOUT.iter_unpack(data[:whole])]


def load_index(disk: Disk, path: str, base_offset: int, data_bytes: int) -> SparseIndex:
    """The longest believable beginning of an index file; empty when there is none."""
    index = SparseIndex(path)
    if not disk.exists(path):
        return index
    bytes_max = (data_bytes // ALIGNMENT_BYTES + 1) * ENTRY_BYTES  # no index can hold more
    data = read_file(disk, path, bytes_max)
    _fill(index, data)
    index.cut(_believable(index, base_offset, data_bytes))
    index.saved = len(index)
    index.trim = len(data) != len(index) * ENTRY_BYTES
    return index


def _fill(index: SparseIndex, data: bytes) -> None:
    """Column by column: a loop over entries would make an object of each."""
    table = array("Q")
    table.frombytes(data[: len(data) - len(data) % ENTRY_BYTES])
    if not _LITTLE_ENDIAN:
        table.byteswap()
    index.offsets = table[0::4]
    index.positions = table[1::4]
    index.timestamps = array("q", table[2::4].tobytes())
    index.ids = table[3::4]


def _believable(index: SparseIndex, base_offset: int, data_bytes: int) -> int:
    """The number of leading entries that can be true."""
    offset, position = base_offset - 1, -1
    for number in range(len(index)):
        next_offset, next_position = index.offsets[number], index.positions[number]
        if number == 0 and (next_offset != base_offset or next_position not in (0, HEAD_BYTES)):
            return 0
        if (
            next_offset <= offset
            or next_position <= position
            or next_position % ALIGNMENT_BYTES
            or next_position >= data_bytes
        ):
            return number
        offset, position = next_offset, next_position
    return len(index)
