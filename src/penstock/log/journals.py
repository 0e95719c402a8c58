"""Checking channel journals from outside: records, checksums, sequences (docs/formats.md).

What the entries mean is the broker's business; here only the row of records is looked at.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.kernel import crc32c
from penstock.log.fold import (
    CRC_FROM,
    ENTRY,
    FLAG_SNAPSHOT,
    GROUP,
    MAGIC,
    RECORD,
    SYNCED_SHIFT,
    epoch_of,
    generation_of,
    named,
    number_of,
)

RECORD_BYTES = RECORD.size


class Record(NamedTuple):
    position: int
    length: int
    is_snapshot: bool
    epoch: int  # of the leader that has begun the generation; 0 on a node by itself
    generation: int
    sequence: int
    handed_end: int
    entries: int


class JournalFile(NamedTuple):
    """The records that count, and why they end before the file does (empty: they do not)."""

    records: list[Record]
    end_position: int
    problem: str
    is_torn: bool  # the file ends inside a record: an append that was cut short

    @property
    def generation(self) -> int:
        """With its epoch; 0 when no snapshot is whole."""
        return _generation(self.records[0]) if self.records else 0


def read_journal(data: bytes) -> JournalFile:
    records: list[Record] = []
    position = 0
    while position < len(data):
        record = _record(data, position)
        problem = record if isinstance(record, str) else _out_of_row(records, record)
        if problem or isinstance(record, str):
            return JournalFile(records, position, problem, _is_torn(data, position))
        records.append(record)
        position += record.length
    return JournalFile(records, position, "", False)


def _record(data: bytes, position: int) -> Record | str:
    """The record at `position`, or what is wrong with it."""
    if len(data) - position < RECORD_BYTES:
        return "the file ends inside a record"
    magic, crc, length, flags, generation, sequence, handed_end = RECORD.unpack_from(data, position)
    if magic != MAGIC:
        return "no record begins here"
    if length < RECORD_BYTES:
        return f"a record cannot be {length} bytes long"
    if length > len(data) - position:
        return "the file ends inside a record"
    if crc != crc32c(data[position + CRC_FROM : position + length]):
        return "the checksum of the record is wrong"
    entries = _entries(data, position + RECORD_BYTES, position + length)
    if entries is None or flags >> SYNCED_SHIFT > sequence:  # synced before it was written
        return "the record's parts do not fit its length"
    is_snapshot = bool(flags & FLAG_SNAPSHOT)
    epoch, number = epoch_of(generation), number_of(generation)
    return Record(position, length, is_snapshot, epoch, number, sequence, handed_end, entries)


def _generation(record: Record) -> int:
    return generation_of(record.epoch, record.generation)


def _entries(data: bytes, position: int, end: int) -> int | None:
    total = 0
    while position < end:
        if end - position < GROUP.size:
            return None
        _, count = GROUP.unpack_from(data, position)
        position += GROUP.size + count * ENTRY.size
        total += count
    return total if position == end else None


def _out_of_row(records: list[Record], record: Record) -> str:
    if record.is_snapshot != (not records):
        return "a journal has one snapshot, at its front"
    if record.sequence != len(records):
        return f"sequence {record.sequence} follows {len(records) - 1}"
    if records and _generation(record) != _generation(records[0]):
        found, begun = _generation(record), _generation(records[0])
        return f"generation {named(found)} in a file of {named(begun)}"
    return ""


def _is_torn(data: bytes, position: int) -> bool:
    """Whether what stands at `position` is the beginning of a record whose append was cut short,
    and not a whole one whose length has rotted."""
    rest = data[position:]
    if not rest.startswith(MAGIC[: len(rest)]) or MAGIC in rest[1:]:
        return False
    if len(rest) < 12:
        return True
    as_if_whole = struct.pack("<I", len(rest)) + rest[12:]
    is_whole = crc32c(as_if_whole) == int.from_bytes(rest[4:8], "little")
    return int.from_bytes(rest[8:12], "little") > len(rest) and not is_whole
