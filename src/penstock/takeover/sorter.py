"""Records that may be the same message, brought together without holding all of them.

Every record goes into one of several parts by what it is, so that equal ones meet in the same part,
and each part is small enough to be looked at at once. Parts that grow go to files, which are of no
use after the process has ended and are never synced.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from penstock import limits
from penstock.log.disk import Disk, read_file
from penstock.takeover.merge import Entry

PART_BYTES = 16 * limits.MIB  # of old data for each part: half a million entries at the very worst
BUFFER_BYTES = 32 * limits.KIB  # of a part in memory
PARTS_MAX = 4096  # 1 GiB of files is one part's share then; memory is what gives way
_ENTRY = struct.Struct("<QQIHH")  # id, digest, ordinal, queue, attempts


class Sorter:
    def __init__(self, disk: Disk, directory: str, data_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._buffers = [bytearray() for _ in range(min(data_bytes // PART_BYTES + 1, PARTS_MAX))]
        self._written = [0] * len(self._buffers)

    def add(self, entry: Entry) -> None:
        part = entry.digest % len(self._buffers)
        buffer = self._buffers[part]
        buffer += _ENTRY.pack(entry.id, entry.digest, entry.ordinal, entry.queue, entry.attempts)
        if len(buffer) >= BUFFER_BYTES and len(self._buffers) > 1:
            self._write(part)

    def _path(self, part: int) -> str:
        return os.path.join(self._directory, f"sort-{part}.tmp")

    def _write(self, part: int) -> None:
        path, buffer = self._path(part), self._buffers[part]
        at = self._written[part]
        file = self._disk.open(path, write=True) if at else self._disk.create(path)
        try:
            file.pwritev((bytes(buffer),), at, len(buffer))
        finally:
            file.close()
        self._written[part] += len(buffer)
        buffer.clear()

    def parts(self) -> Iterator[Iterator[Entry]]:
        """Each part once; its file is removed then."""
        for part, buffer in enumerate(self._buffers):
            data = bytes(buffer)
            if self._written[part]:
                path = self._path(part)
                data = read_file(self._disk, path, self._written[part]) + data
                self._disk.unlink(path)
            buffer.clear()
            yield (
                Entry(id, digest, queue, ordinal, attempts)
                for id, digest, ordinal, queue, attempts in _ENTRY.iter_unpack(data)
            )
