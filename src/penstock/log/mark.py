"""The mark: how far the log is known to be safe, repeated in a small file of its own.

Every batch header says how far the log was synced when it was written, but the last synced batch
has nothing behind it to say so. The mark does: it is written every few seconds and at a clean
stop. It is a lower bound, so it needs no sync of its own while the log runs: whichever version
outlives a power loss told the truth when it was written.

Two copies, at 0 and at 4096, are written in turn, so that a torn write leaves the other. The file
says "clean" only when both copies are intact, equal, and say so: a clean stop writes both.
"""

import struct
from contextlib import closing
from typing import NamedTuple

from penstock.kernel import crc32c
from penstock.log.disk import Disk

MAGIC = b"PSM1"
_LAYOUT = struct.Struct("<4sIQQQIIQ")
COPY_BYTES = _LAYOUT.size
COPY_POSITIONS = (0, 4096)
FILE_BYTES = COPY_POSITIONS[1] + COPY_BYTES
_CRC_FROM = 8


class Mark(NamedTuple):
    synced_end: int = 0
    written_end: int = 0
    last_id: int = 0
    clean: bool = False


class MarkState(NamedTuple):
    mark: Mark | None
    next_copy: int  # which copy to overwrite first: never the one that `mark` came from


def encode(mark: Mark) -> bytes:
    fields = (mark.synced_end, mark.written_end, mark.last_id, int(mark.clean), 0, 0)
    blank = _LAYOUT.pack(MAGIC, 0, *fields)
    return _LAYOUT.pack(MAGIC, crc32c(blank[_CRC_FROM:]), *fields)


def decode(data: bytes) -> Mark | None:
    """The mark in one copy's bytes, None when they are not intact."""
    if len(data) < COPY_BYTES:
        return None
    magic, crc, synced_end, written_end, last_id, clean, *reserved = _LAYOUT.unpack_from(data)
    intact = magic == MAGIC and crc == crc32c(data[_CRC_FROM:COPY_BYTES])
    if not intact or clean > 1 or any(reserved):
        return None
    return Mark(synced_end, written_end, last_id, bool(clean))


def decode_file(data: bytes) -> MarkState:
    copies = [decode(data[at : at + COPY_BYTES]) for at in COPY_POSITIONS]
    intact = [copy for copy in copies if copy is not None]
    if not intact:
        return MarkState(None, 0)
    newest = max(intact, key=lambda mark: (mark.synced_end, mark.written_end, mark.last_id))
    clean = len(intact) == 2 and intact[0] == intact[1] and newest.clean
    return MarkState(newest._replace(clean=clean), 1 - copies.index(newest))


class MarkFile:
    """Writes the mark. The file is opened for each write: a descriptor less per idle partition."""

    __slots__ = ("_disk", "_next_copy", "path")

    def __init__(self, disk: Disk, path: str, next_copy: int = 0) -> None:
        self._disk = disk
        self._next_copy = next_copy
        self.path = path

    def create(self, mark: Mark) -> None:
        with closing(self._disk.create(self.path)) as file:
            for position in COPY_POSITIONS:
                file.pwritev((encode(mark),), position, COPY_BYTES)
            file.fdatasync()

    def write(self, mark: Mark) -> None:
        """One copy, no sync."""
        with closing(self._disk.open(self.path, write=True)) as file:
            file.pwritev((encode(mark),), COPY_POSITIONS[self._next_copy], COPY_BYTES)
        self._next_copy = 1 - self._next_copy

    def write_both(self, mark: Mark) -> None:
        """Both copies, each synced before the next is touched."""
        if not self._disk.exists(self.path):
            self.create(mark)
            return
        with closing(self._disk.open(self.path, write=True)) as file:
            for copy in (self._next_copy, 1 - self._next_copy):
                position = COPY_POSITIONS[copy]
                file.pwritev((encode(mark),), position, COPY_BYTES)
                file.fdatasync()
