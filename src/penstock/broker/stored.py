"""Messages read back from a log, one at a time: for what is rare, not for delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.kernel import Section, decode_bodies, decode_header, decode_sections, id_at

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.kernel import BatchHeader
    from penstock.log.partition import PartitionLog


class Stored(NamedTuple):
    """One message, with what the trailer of its batch says of it."""

    offset: int
    id: int
    timestamp_ns: int
    body: bytes
    headers: bytes  # a JSON object, or empty


class Reader:
    """Reads best in rising order: it remembers the block and the batch it was in."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._block: Buffer = b""
        self._batches: list[tuple[int, BatchHeader]] = []  # position in the block, header
        self._header: BatchHeader | None = None
        self._bodies: list[bytes] = []
        self._sections: dict[int, dict[int, int | bytes]] = {}

    def read(self, offset: int) -> Stored:
        """Raises LogDamaged and StorageError."""
        header = self._header
        if header is None or not _holds(header, offset):
            header = self._open(offset)
        index = offset - header.base_offset
        id = self._value(Section.ID, index)
        timestamp_ns = self._value(Section.TIMESTAMP, index)
        headers = self._value(Section.HEADERS, index)
        return Stored(
            offset,
            id if isinstance(id, int) else id_at(header.base_id, index),
            timestamp_ns if isinstance(timestamp_ns, int) else header.timestamp_ns,
            self._bodies[index],
            headers if isinstance(headers, bytes) else b"",
        )

    def _value(self, section: Section, index: int) -> int | bytes | None:
        return self._sections.get(section, {}).get(index)

    def _open(self, offset: int) -> BatchHeader:
        found = self._find(offset)
        if found is None:
            self._load(self._log.read(offset, limits.READ_BLOCK_BYTES))
            found = self._find(offset)
        if found is None:
            raise RuntimeError(f"the log has no batch with offset {offset}")
        position, header = found
        self._bodies = decode_bodies(self._block, position)
        self._sections = decode_sections(self._block, position)
        self._header = header
        return header

    def _find(self, offset: int) -> tuple[int, BatchHeader] | None:
        for position, header in self._batches:
            if _holds(header, offset):
                return position, header
        return None

    def _load(self, block: Buffer) -> None:
        self._block, self._batches = block, []
        position, end = 0, len(memoryview(block))
        while position < end:
            header = decode_header(block, position)
            self._batches.append((position, header))
            position += header.length


def _holds(header: BatchHeader, offset: int) -> bool:
    return header.base_offset <= offset < header.base_offset + header.count
