"""Raw batches of the log as Arrow record batches, without a Python object per message.

The kernel checks the batches and lays out offsets, timestamps, ids, attempts and bodies as
Arrow has them; a message's own timestamp, id and attempts are honoured there. Here they become
columns of the types that Spark wants: timestamps in microseconds, ids as 16 hex digits,
bodies with 32-bit value offsets. Keys and headers are rare, and read only when they are asked for.
"""

from __future__ import annotations

import array
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import limits
from penstock.errors import RangeCorrupt
from penstock.kernel import (
    Columns,
    Section,
    decode_columns,
    decode_header,
    decode_sections,
)

_ID_BYTES = 16
_BODY_BYTES_MAX = 1 << 30  # of one record batch: its value offsets have 32 bits


def decode(
    data: bytes,
    schema: pa.Schema,
    topic: str,
    partition: int,
    from_offset: int,
    to_offset: int,
    rows_max: int = limits.SPARK_ROWS_MAX,
    span: tuple[int, int] | None = None,
    log: str = "",
    broker: str = "",
) -> Iterator[pa.RecordBatch]:
    """The messages of [from_offset, to_offset), in pieces of about equal size. `span` is
    what the broker says to have sent: from this offset up to that one. RangeCorrupt names what is
    wrong: a batch whose crc is, or offsets that do not follow one another or are not the span."""
    columns, offsets = _checked(data, span)
    first, end = np.searchsorted(offsets, (from_offset, to_offset)).tolist()
    rows = _Rows(columns, data, topic, partition, log, broker)
    for low, high in _pieces(rows.body_offsets, first, end, rows_max):
        arrays = [rows.column(field.name.lower(), low, high).cast(field.type) for field in schema]
        if arrays:
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        else:
            yield _without_columns(high - low)


def _checked(data: bytes, span: tuple[int, int] | None) -> tuple[Columns, np.ndarray[Any, Any]]:
    """Each batch has its crc checked. That they are the right ones, all of them, is seen in their
    offsets: a batch of another place, a row too few or too many, leaves a step that is not 1 or
    another span."""
    try:
        columns = decode_columns(data)
    except ValueError as error:
        raise RangeCorrupt(str(error)) from error
    offsets = np.frombuffer(columns.offsets, np.int64)
    steps = np.flatnonzero(np.diff(offsets) != 1)
    if len(steps):
        before, behind = offsets[steps[0]], offsets[steps[0] + 1]
        raise RangeCorrupt(f"offset {behind} follows offset {before}")
    held = (int(offsets[0]), int(offsets[-1]) + 1) if len(offsets) else (0, 0)
    if span is not None and held != span and (len(offsets) or span[0] < span[1]):
        raise RangeCorrupt(f"it holds offsets {held[0]} to {held[1]}, not {span[0]} to {span[1]}")
    return columns, offsets


def _without_columns(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


def _pieces(
    body_offsets: np.ndarray[Any, Any], first: int, end: int, rows_max: int
) -> Iterator[tuple[int, int]]:
    pieces = -(-(end - first) // rows_max)
    step = -(-(end - first) // pieces) if pieces else 0
    while first < end:
        high = min(first + step, end)
        room = int(body_offsets[first]) + _BODY_BYTES_MAX
        high = min(high, max(first + 1, int(np.searchsorted(body_offsets, room, "right")) - 1))
        yield first, high
        first = high


class _Rows:
    """The columns of one fetch, cut out by rows."""

    def __init__(
        self, columns: Columns, data: bytes, topic: str, partition: int, log: str, broker: str
    ) -> None:
        self._broker = broker
        self._columns = columns
        self._data = data
        self._topic = topic
        self._partition = partition
        self._log = log
        self._texts: dict[Section, list[Any]] = {}
        self.body_offsets = np.frombuffer(columns.body_offsets, np.int64)

    def column(self, name: str, low: int, high: int) -> pa.Array:
        made: pa.Array = getattr(self, f"_{name}_column")(low, high)
        return made

    def _topic_column(self, low: int, high: int) -> pa.Array:
        return _same_strings(self._topic, high - low)

    def _broker_column(self, low: int, high: int) -> pa.Array:
        return _same_strings(self._broker, high - low)

    def _log_column(self, low: int, high: int) -> pa.Array:
        return _same_strings(self._log, high - low)

    def _partition_column(self, low: int, high: int) -> pa.Array:
        return pa.array(np.full(high - low, self._partition, np.int32))

    def _offset_column(self, low: int, high: int) -> pa.Array:
        return _numbers(pa.int64(), self._columns.offsets, low, high)

    def _timestamp_column(self, low: int, high: int) -> pa.Array:
        nanoseconds = np.frombuffer(self._columns.timestamps, np.int64)[low:high]
        return pa.array(nanoseconds // 1000).cast(pa.timestamp("us", tz="UTC"))

    def _id_column(self, low: int, high: int) -> pa.Array:
        ids = array.array("Q", bytes(memoryview(self._columns.ids)[8 * low : 8 * high]))
        if sys.byteorder == "little":
            ids.byteswap()
        return _fixed_strings(ids.tobytes().hex().encode(), _ID_BYTES, high - low)

    def _attempts_column(self, low: int, high: int) -> pa.Array:
        attempts = np.frombuffer(self._columns.attempts, np.uint16)[low:high]
        return pa.array(np.minimum(attempts, 0x7FFF).astype(np.int16))

    def _body_column(self, low: int, high: int) -> pa.Array:
        ends = self.body_offsets[low : high + 1]
        start, end = int(ends[0]), int(ends[-1])
        values = pa.py_buffer(self._columns.bodies)[start:end]
        offsets = pa.py_buffer((ends - start).astype(np.int32))
        return pa.Array.from_buffers(pa.binary(), high - low, [None, offsets, values])

    def _key_column(self, low: int, high: int) -> pa.Array:
        return pa.array(self._values(Section.KEY)[low:high], pa.binary())

    def _headers_column(self, low: int, high: int) -> pa.Array:
        texts = self._values(Section.HEADERS)[low:high]
        entries = [None if text is None else _headers(text) for text in texts]
        return pa.array(entries, pa.map_(pa.string(), pa.binary()))

    def _values(self, section: Section) -> list[Any]:
        if section not in self._texts:
            self._texts[section] = _section_values(self._data, section)
        return self._texts[section]


def _section_values(data: bytes, section: Section) -> list[Any]:
    """A section's value for each message of all batches, None where it has none."""
    values: list[Any] = []
    position = 0
    while position < len(data):
        header = decode_header(data, position)
        entries = decode_sections(data, position).get(section, {}) if header.flags else {}
        values += map(entries.get, range(header.count)) if entries else [None] * header.count
        position += header.length
    return values


def _headers(text: bytes) -> list[tuple[str, bytes]]:
    """The members of the JSON object: texts as they are, anything else as JSON. What is no object
    is kept whole, under an empty name."""
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        return [("", text)]
    return [
        (name, (value if isinstance(value, str) else json.dumps(value)).encode("utf-8", "replace"))
        for name, value in members.items()
    ]


def _same_strings(text: str, count: int) -> pa.Array:
    characters = text.encode()
    return _fixed_strings(characters * count, len(characters), count)


def _fixed_strings(characters: bytes, length: int, count: int) -> pa.Array:
    """Strings of one length, given end to end."""
    offsets = pa.py_buffer(length * np.arange(count + 1, dtype=np.int32))
    return pa.Array.from_buffers(pa.string(), count, [None, offsets, pa.py_buffer(characters)])


def _numbers(kind: pa.DataType, buffer: bytearray, low: int, high: int) -> pa.Array:
    return pa.Array.from_buffers(kind, high - low, [None, pa.py_buffer(buffer)], offset=low)
