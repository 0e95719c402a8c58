"""Batches from elsewhere as bytes (docs/formats.md): whether they may be stored here, and how they
get their position in a log.

A producer that encodes batches itself, like the Spark sink, sets their content: bodies, keys,
headers, timestamps, due times. This module sets their position: it fills in offset, ids, the
batch's time and its synced end when its turn has come, and computes the checksum again. It refuses
anything else that such a batch could claim (its own ids, attempts, a producer).
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Generator
from typing import NamedTuple

from penstock import limits
from penstock.errors import PenstockError
from penstock.kernel import (
    BatchCheck,
    BatchHeader,
    Section,
    check_batch,
    crc32c,
    decode_header,
    parse_headers,
)
from penstock.kernel.layout import (
    CRC_AT,
    CRC_FROM,
    HEADER_BYTES,
    SECTION_HEADER,
    is_short,
    put_position,
)

_BATCH_COST_BYTES = 8192  # a batch costs as much to check as so many bytes
_ALLOWED = (Section.TIMESTAMP, Section.DUE, Section.KEY, Section.HEADERS)
_TIMES = (Section.TIMESTAMP, Section.DUE)
_WORDS = {
    BatchCheck.SHORT: "it ends before the batch does",
    BatchCheck.NO_MAGIC: "no batch begins here",
    BatchCheck.BAD_FIELDS: "the numbers of the batch do not fit each other",
    BatchCheck.BAD_CRC: "the checksum does not match",
}


class BlockInvalid(PenstockError):
    """`position` is the start of the invalid batch."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class Contents(NamedTuple):
    messages: int
    due_last_ns: int  # the latest due time; 0: none


def check_blocks(data: bytes, message_bytes_max: int) -> Generator[None, None, Contents]:
    """Raises BlockInvalid. Yields between pieces of some milliseconds."""
    view = memoryview(data)
    position = count = due_last_ns = rested = 0
    if not data:
        raise BlockInvalid(0, "there is no batch")
    while position < len(data):
        header = checked_header(view, position)
        _check_sizes(view, position, header, message_bytes_max)
        due_ns = yield from _check_sections(view, position, header)
        due_last_ns = max(due_last_ns, due_ns)
        position += header.length
        count += header.count
        rested += header.length + _BATCH_COST_BYTES
        if rested >= limits.STAGE_SLICE_BYTES:
            rested = 0
            yield
    return Contents(count, due_last_ns)


def checked_header(data: memoryview | bytes, position: int) -> BatchHeader:
    """Of an intact batch, into which a position can be written. Raises BlockInvalid."""
    found, _ = check_batch(data, position)
    if found != BatchCheck.INTACT:
        raise BlockInvalid(position, _WORDS[BatchCheck(found)])
    if is_short(data, position):
        raise BlockInvalid(position, "a batch that has no position yet has the long header")
    return decode_header(data, position)


def _check_sizes(
    view: memoryview, position: int, header: BatchHeader, message_bytes_max: int
) -> None:
    if header.length > limits.STAGE_BATCH_BYTES_MAX and header.count > 1:
        rule = f"a batch of several messages has at most {limits.STAGE_BATCH_BYTES_MAX} bytes"
        raise BlockInvalid(position, f"{header.length} bytes: {rule}")
    sizes = _numbers("I", view, position + HEADER_BYTES, header.count)
    if min(sizes) == 0:
        raise BlockInvalid(position, "a message is empty")
    largest = max(sizes)
    if largest > message_bytes_max:
        rule = f"a message has at most {message_bytes_max}"
        raise BlockInvalid(position, f"a message of {largest} bytes: {rule}")


def _check_sections(
    view: memoryview, position: int, header: BatchHeader
) -> Generator[None, None, int]:
    """The latest due time."""
    at = position + HEADER_BYTES + 4 * header.count + header.bodies_length
    end = position + header.length
    due_last_ns = 0
    while header.flags and end - at >= SECTION_HEADER.size:
        kind, _, length = SECTION_HEADER.unpack_from(view, at)
        if kind == 0:
            break
        if kind not in _ALLOWED:
            names = ", ".join(section.name for section in _ALLOWED)
            raise BlockInvalid(position, f"section {kind}: only {names} may be there")
        table_at = at + SECTION_HEADER.size
        if kind in _TIMES:
            times = _times(view, position, kind, table_at)
            if kind == Section.DUE:
                due_last_ns = max((due_last_ns, *times))
        elif kind == Section.HEADERS:
            wrong = yield from _unreadable_headers(view, table_at)
            if wrong:
                raise BlockInvalid(position, wrong)
        at = table_at + length
    return due_last_ns


def _times(view: memoryview, position: int, kind: int, table_at: int) -> array[int]:
    entries = _entries(view, table_at)
    times = _numbers("q", view, table_at + 4 + 4 * entries, entries)
    if entries and min(times) < 0:
        raise BlockInvalid(position, f"section {kind}: a time before 1970")
    return times


def _unreadable_headers(view: memoryview, table_at: int) -> Generator[None, None, str]:
    entries = _entries(view, table_at)
    indexes = _numbers("I", view, table_at + 4, entries)
    lengths = _numbers("I", view, table_at + 4 + 4 * entries, entries)
    texts = view[table_at + 4 + 8 * entries :]
    wrong = yield from first_unreadable(texts, lengths.tolist(), indexes.tolist())
    return wrong


def _entries(view: memoryview, table_at: int) -> int:
    return int.from_bytes(view[table_at : table_at + 4], "little")


def _numbers(form: str, view: memoryview, start: int, count: int) -> array[int]:
    found = array(form)
    found.frombytes(view[start : start + count * found.itemsize])
    return found


def put_in_place(
    batch: bytearray,
    base_offset: int,
    base_id: int,
    timestamp_ns: int,
    synced_end: int,
    leader_epoch: int = 0,
    producer: tuple[int, int, int] = (0, 0, 0),
) -> None:
    """Write position and owner into an intact batch."""
    put_position(batch, base_offset, base_id, timestamp_ns, synced_end, leader_epoch, producer)
    checksum = crc32c(memoryview(batch)[CRC_FROM:])
    batch[CRC_AT:CRC_FROM] = checksum.to_bytes(4, "little")


_CHECKED_IN_A_ROW = 1_000  # a millisecond of the compiled kernel's
_SHOWN_BYTES = 100
RULE = "headers are a JSON object, in UTF-8"


def first_unreadable(
    data: memoryview, lengths: list[int], indexes: list[int]
) -> Generator[None, None, str]:
    """Whether consumers can read the headers of staged messages. `data` holds one text after
    another; the first invalid headers are described, "" where all are valid. Yields between pieces
    of some milliseconds.

    They are stored unchanged, and a consumer's library parses them as JSON when it handles the
    message: anything but a JSON object would fail there for each attempt, and for each channel. It
    is therefore refused here. There are no other conditions: PUB_EXT allows only strings as values,
    but a table that is written back may have null there.
    """
    at = 0
    for number, (index, length) in enumerate(zip(indexes, lengths, strict=True)):
        text = data[at : at + length]
        at += length
        if length and parse_headers(text).wrong_at >= 0 and not _is_object(bytes(text)):
            return f"message {index} has {bytes(text[:_SHOWN_BYTES])!r}: {RULE}"
        if number % _CHECKED_IN_A_ROW == _CHECKED_IN_A_ROW - 1:
            yield
    return ""


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text.decode("utf-8")), dict)
    except (ValueError, RecursionError):
        return False
