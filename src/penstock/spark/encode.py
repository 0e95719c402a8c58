"""Arrow rows as raw batches of the log, without a Python object per message.

A binary column of Arrow is already what a batch holds: the bodies end to end, and where each one
ends. The kernel puts a header around them. Keys and timestamps are sections of the trailer and laid
out by numpy. Headers are JSON objects, so they cost an object each; rows without any cost nothing.
"""

import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from penstock import limits
from penstock.kernel import Section, encode_columns
from penstock.kernel.layout import SECTION_HEADER

quoted = json.encoder.encode_basestring  # of the standard library, compiled
_TIMESTAMP_US_MAX = ((1 << 63) - 1) // 1000
_SECTIONS = {"key": Section.KEY, "headers": Section.HEADERS, "timestamp": Section.TIMESTAMP}


class BadRow(ValueError):
    """Rows that cannot be messages for one reason: their indexes, rising. There may be others, for
    other reasons. `is_topic`: the topic is invalid."""

    def __init__(self, indexes: Iterable[int], reason: str, is_topic: bool = False) -> None:
        self.indexes = [int(index) for index in indexes]
        super().__init__(f"row {self.indexes[0]}: {reason}")
        self.reason = reason
        self.is_topic = is_topic


class Block(NamedTuple):
    data: bytes
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here


def message_columns(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """The columns body, key, headers and timestamp, as given by Spark, in the form for `encode`.
    With keys there is a column of headers in any case. BadRow names a row that cannot be a
    message."""
    made = {"body": _bodies(columns["body"])}
    if "key" in columns:
        made["key"] = columns["key"].cast(pa.binary())
    if "headers" in columns:
        made["headers"] = _headers(columns["headers"])
    elif "key" in columns:
        made["headers"] = pa.nulls(len(columns["key"]), pa.binary())
    if "timestamp" in columns:
        made["timestamp"] = _nanoseconds(columns["timestamp"])
    return pa.RecordBatch.from_pydict(made)


def encode(rows: pa.RecordBatch, bytes_max: int = limits.SPARK_BATCH_BYTES) -> Iterator[Block]:
    """Batches of at most this many bytes; a larger message has one of its own."""
    sized = [column for column in rows.columns if column.type == pa.binary()]
    sizes = sum(np.diff(ends_of(column)) for column in sized)
    filled = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))  # bytes before each row
    low = 0
    while low < len(rows):
        room = int(filled[low]) + bytes_max
        high = min(int(np.searchsorted(filled, room, "right")) - 1, low + limits.SPARK_BATCH_ROWS)
        high = min(max(high, low + 1), len(rows))
        yield Block(_batch(rows, low, high), high - low)
        low = high


def largest(rows: pa.RecordBatch) -> tuple[int, int]:
    """The row with the largest body, and its bytes."""
    lengths = np.diff(ends_of(rows.column("body")))
    row = int(np.argmax(lengths))
    return row, int(lengths[row])


def _batch(rows: pa.RecordBatch, low: int, high: int) -> bytes:
    ends = ends_of(rows.column("body"))
    lengths = np.diff(ends[low : high + 1]).astype("<u4")
    values = values_of(rows.column("body"))[int(ends[low]) : int(ends[high])]
    trailer = b"".join(
        _section(_SECTIONS[name], rows.column(name)[low:high])
        for name in rows.schema.names
        if name in _SECTIONS
    )
    return encode_columns(lengths.data, values, 0, 0, 0, trailer)


def _section(section: Section, column: pa.Array) -> bytes:
    """Nothing where no row has a value."""
    valid = valid_of(column)
    indexes = np.flatnonzero(valid).astype("<u4")
    if not len(indexes):
        return b""
    present = column.filter(pa.array(valid))
    if section is Section.TIMESTAMP:
        values = present.to_numpy().astype("<i8").tobytes()
    else:
        ends = ends_of(present)
        lengths = np.diff(ends).astype("<u4").tobytes()
        values = lengths + bytes(values_of(present)[int(ends[0]) : int(ends[-1])])
    payload: bytes = struct.pack("<I", len(indexes)) + indexes.tobytes() + values
    return SECTION_HEADER.pack(section, 0, len(payload)) + payload


# --- columns ---


def _bodies(column: pa.Array) -> pa.Array:
    if column.null_count:
        raise BadRow(np.flatnonzero(~valid_of(column)), "the body is null")
    bodies = column.cast(pa.binary())
    empty = np.diff(ends_of(bodies)) == 0
    if empty.any():
        raise BadRow(np.flatnonzero(empty), "the body is empty, and NSQ has no empty messages")
    return bodies


def _nanoseconds(column: pa.Array) -> pa.Array:
    valid = valid_of(column)
    microseconds = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).fill_null(0)
    values = microseconds.to_numpy()
    outside = (values > _TIMESTAMP_US_MAX) | (values < 0)
    if outside.any():
        raise BadRow(np.flatnonzero(outside), "the timestamp is not within the years 1970 to 2262")
    return pa.array(values * 1000, pa.int64(), mask=~valid)


def _headers(column: pa.Array) -> pa.Array:
    """BadRow for the rows of the first reason, all at once: a batch may have thousands, and is
    looked at again for each reason."""
    texts: list[bytes | None] = []
    bad: dict[str, list[int]] = {}
    for index, value in enumerate(column.to_pylist()):
        texts.append(None)
        try:
            if value is not None:
                texts[-1] = _checked(value) if isinstance(value, str) else _header_text(value)
        except ValueError as error:
            bad.setdefault(str(error), []).append(index)
    if bad:
        reason, indexes = next(iter(bad.items()))
        raise BadRow(indexes, reason)
    return pa.array(texts, pa.binary())


def _checked(text: str) -> bytes | None:
    """A JSON object of texts, as it is; one without members is no headers. Raises ValueError."""
    try:
        has_members = msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"the headers are no JSON object of texts: {error}") from error
    return text.encode() if has_members else None


def _header_text(entries: Iterable[Any]) -> bytes | None:
    """As a JSON object. Raises ValueError."""
    pairs = pairs_of(entries)
    names = [name for name, _ in pairs]
    if None in names or len(set(names)) < len(names):
        shown = ", ".join(map(repr, names))
        raise ValueError(f"a header has no name, or is there twice: {shown}")
    members = []
    for name, value in pairs:
        try:
            text = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError as error:
            raise ValueError(f"header {name!r} is not UTF-8, and headers are JSON") from error
        members.append(f"{quoted(name)}: {'null' if text is None else quoted(text)}")
    return f"{{{', '.join(members)}}}".encode() if members else None


def pairs_of(entries: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Names and values of a map, or of Kafka's array of structs; an entry may be null."""
    pairs = (tuple(each.values()) if isinstance(each, dict) else each for each in entries)
    return [pair or (None, None) for pair in pairs]


# --- Arrow's buffers ---


def valid_of(column: pa.Array) -> np.ndarray[Any, Any]:
    valid: np.ndarray[Any, Any] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def ends_of(column: pa.Array) -> np.ndarray[Any, Any]:
    """The offsets of values in the data: one more than rows."""
    if not len(column):
        return np.zeros(1, np.int32)
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    return offsets[column.offset : column.offset + len(column) + 1]


def values_of(column: pa.Array) -> memoryview:
    data = column.buffers()[2]
    return memoryview(data) if data is not None else memoryview(b"")
