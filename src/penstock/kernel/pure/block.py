"""Batches as delivery reads them: from a tail's memory, or from a block read from a file."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from penstock.kernel.batch_interface import Section
from penstock.kernel.layout import (
    FLAG_TRAILER,
    HEADER_BYTES,
    LENGTH_FIELD_BYTES,
    SECTION_BYTES_TYPE_MIN,
)
from penstock.kernel.pure.batch import decode_header, decode_sections, id_at

if TYPE_CHECKING:
    from typing_extensions import Buffer

_SEQUENCE_BITS = 12
_SEQUENCE_MASK = (1 << _SEQUENCE_BITS) - 1
_INTEGER_ENTRY_BYTES = 12  # index and value
_BYTES_ENTRY_BYTES = 8  # index and length; the value is beside them
_base_offset = attrgetter("base_offset")


class Special(NamedTuple):
    """What may be said of one message in the trailer of its batch."""

    timestamp_ns: int
    id: int
    own_id: bool
    due_ns: int
    attempts: int
    trace_id: int = 0


class Batch:
    """One whole, sound batch inside `data`. Positions and sections are worked out when needed."""

    __slots__ = (
        "_sections",
        "_specials",
        "_starts",
        "base_id",
        "base_offset",
        "count",
        "data",
        "end",
        "length",
        "plain",
        "position",
        "timestamp_ns",
    )

    def __init__(self, data: bytes, position: int) -> None:
        header = decode_header(data, position)
        self.data = data
        self.position = position
        self.length = header.length
        self.base_offset = header.base_offset
        self.base_id = header.base_id
        self.timestamp_ns = header.timestamp_ns
        self.count = header.count
        self.end = header.base_offset + header.count
        self.plain = not header.flags & FLAG_TRAILER
        self._starts: list[int] | None = None
        self._sections: dict[int, dict[int, int | bytes]] | None = None
        self._specials: list[int] | None = None

    @property
    def starts(self) -> list[int]:
        """Where each body begins in `data`, and where the last one ends."""
        if self._starts is None:
            at = self.position + HEADER_BYTES
            lengths = struct.unpack_from(f"<{self.count}I", self.data, at)
            self._starts = list(accumulate(lengths, initial=at + 4 * self.count))
        return self._starts

    def body(self, index: int) -> bytes:
        starts = self.starts
        return self.data[starts[index] : starts[index + 1]]

    def ids(self, index: int, count: int) -> Sequence[int]:
        """The ids of a run. Within one tick they are consecutive."""
        if (self.base_id & _SEQUENCE_MASK) + index + count <= 1 << _SEQUENCE_BITS:
            return range(self.base_id + index, self.base_id + index + count)
        return [id_at(self.base_id, i) for i in range(index, index + count)]

    @property
    def sections(self) -> dict[int, dict[int, int | bytes]]:
        if self._sections is None:
            self._sections = {} if self.plain else decode_sections(self.data, self.position)
        return self._sections

    def special(self, index: int) -> Special:
        if self.plain:
            return Special(self.timestamp_ns, id_at(self.base_id, index), False, 0, 0)
        own_id = self._value(Section.ID, index)
        timestamp_ns = self._value(Section.TIMESTAMP, index)
        return Special(
            self.timestamp_ns if timestamp_ns is None else timestamp_ns,
            id_at(self.base_id, index) if own_id is None else own_id,
            own_id is not None,
            self._value(Section.DUE, index) or 0,
            self._value(Section.ATTEMPTS, index) or 0,
            self._value(Section.TRACE, index) or 0,
        )

    def special_from(self, index: int) -> int:
        """The first message from `index` on that is not sent just as if there were no trailer."""
        if self._specials is None:
            tables = self.sections.items()
            integers = [table for type_, table in tables if type_ < SECTION_BYTES_TYPE_MIN]
            self._specials = sorted(set().union(*integers))
        place = bisect_left(self._specials, index)
        return self._specials[place] if place < len(self._specials) else self.count

    def headers(self, index: int) -> bytes:
        """A JSON object; empty: the message has none."""
        found = self.sections.get(Section.HEADERS, {}).get(index, b"")
        return found if isinstance(found, bytes) else b""

    def stored_bytes(self, index: int) -> int:
        """In the log, without its share of the batch's header."""
        total = LENGTH_FIELD_BYTES + self.starts[index + 1] - self.starts[index]
        for table in self.sections.values():
            value = table.get(index)
            if isinstance(value, bytes):
                total += _BYTES_ENTRY_BYTES + len(value)
            elif value is not None:
                total += _INTEGER_ENTRY_BYTES
        return total

    def key(self, index: int) -> bytes | None:
        key = self.sections.get(Section.KEY, {}).get(index)
        return key if isinstance(key, bytes) else None

    def dues(self) -> dict[int, int]:
        """Which messages are delayed, by index, and until when."""
        return {index: int(due_ns) for index, due_ns in self.sections.get(Section.DUE, {}).items()}

    def _value(self, section: int, index: int) -> int | None:
        value = self.sections.get(section, {}).get(index)
        return None if value is None else int(value)


def find_batch(batches: Sequence[Batch], offset: int) -> Batch | None:
    """The batch that holds `offset`; the batches rise by offset and may have gaps."""
    place = bisect_right(batches, offset, key=_base_offset)
    if place == 0 or offset >= batches[place - 1].end:
        return None
    return batches[place - 1]


def split_block(block: Buffer) -> list[Batch]:
    """All batches of a block. ValueError when it does not end with a batch."""
    data = block if isinstance(block, bytes) else bytes(block)
    batches = []
    position = 0
    while position < len(data):
        batch = Batch(data, position)
        position += batch.length
        if batch.length < HEADER_BYTES or position > len(data):
            raise ValueError(f"block of {len(data)} bytes does not end with a batch: {position}")
        batches.append(batch)
    return batches
