"""The messages of checked batches, with all that is stored about each."""

import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from penstock import limits
from penstock.kernel import (
    BatchHeader,
    Section,
    decode_bodies,
    decode_columns,
    decode_header,
    decode_sections,
    id_at,
)
from penstock.log.scan import headers_of

_BODY_RANGE = struct.Struct("<qq")
_Sections = dict[int, dict[int, int | bytes]]


class Message(NamedTuple):
    """One message of the log with all that is stored about it."""

    offset: int
    id: int
    timestamp_ns: int
    body: bytes
    sections: dict[int, int | bytes]
    header: BatchHeader  # of its batch

    @property
    def headers(self) -> bytes:
        """Its own headers: a JSON object, or empty."""
        found = self.sections.get(Section.HEADERS)
        return found if isinstance(found, bytes) else b""

    def number(self, section: Section) -> int:
        """The value of a section that holds numbers; 0 where the message has none."""
        found = self.sections.get(section, 0)
        return found if isinstance(found, int) else 0


def messages_of(batch: memoryview | bytearray, from_offset: int = 0) -> Iterator[Message]:
    header, tables = decode_header(batch, 0), decode_sections(batch, 0)
    for index, body in enumerate(decode_bodies(batch, 0)):
        if header.base_offset + index >= from_offset:
            yield _message(header, index, body, tables)


def _message(header: BatchHeader, index: int, body: bytes, tables: _Sections) -> Message:
    sections = {kind: table[index] for kind, table in tables.items() if index in table}
    own_id, own_time = sections.get(Section.ID), sections.get(Section.TIMESTAMP)
    return Message(
        offset=header.base_offset + index,
        id=own_id if isinstance(own_id, int) else id_at(header.base_id, index),
        timestamp_ns=own_time if isinstance(own_time, int) else header.timestamp_ns,
        body=body,
        sections=sections,
        header=header,
    )


class _Readable(Protocol):
    def read(self, offset: int, bytes_max: int) -> memoryview: ...


class MessageReader:
    """Reads one message at a time: for rare requests, not for delivery. It is best in rising order,
    since it keeps the last block and batch."""

    def __init__(self, log: _Readable, bytes_max: int = limits.READ_BLOCK_BYTES) -> None:
        self._log = log
        self._bytes_max = bytes_max
        self._block = memoryview(b"")
        self._position = 0  # of the batch in the block
        self._header: BatchHeader | None = None

    def read(self, offset: int) -> Message:
        """Raises LogDamaged and StorageError."""
        header = self._header
        if header is None or not _holds(header, offset):
            header = self._open(offset)
        index = offset - header.base_offset
        start, end = _BODY_RANGE.unpack_from(self._columns.body_offsets, 8 * index)
        body = bytes(memoryview(self._columns.bodies)[start:end])
        return _message(header, index, body, self._sections)

    def _open(self, offset: int) -> BatchHeader:
        header = self._find(offset)
        if header is None:
            self._block, self._position, self._header = (
                self._log.read(offset, self._bytes_max), 0, None,
            )  # fmt: skip
            header = self._find(offset)
        if header is None:
            raise RuntimeError(f"the log has no batch with offset {offset}")
        batch = self._block[self._position : self._position + header.length]
        self._columns = decode_columns(batch)  # no object for each of its neighbours
        self._sections = decode_sections(batch, 0)
        self._header = header
        return header

    def _find(self, offset: int) -> BatchHeader | None:
        position = self._position
        for header in headers_of(self._block, position):
            if _holds(header, offset):
                self._position = position
                return header
            position += header.length
        return None


def _holds(header: BatchHeader, offset: int) -> bool:
    return header.base_offset <= offset < header.base_offset + header.count
