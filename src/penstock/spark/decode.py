"""Raw batches of the log as Arrow record batches, without a Python object per message.

The kernel checks the batches and lays out offsets, timestamps, ids, attempts and bodies as
Arrow has them; a message's own timestamp, id and attempts are honoured there. Here they become
columns of the types that Spark wants: timestamps in microseconds, ids as 16 hex digits,
bodies with 32-bit value offsets. Keys and headers are looked for only when they are asked for; a
column that no message has a value for is made of nulls, which costs next to nothing.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import limits
from penstock.errors import RangeCorrupt
from penstock.kernel import Columns, Section, Values, decode_columns
from penstock.spark.schema import COLUMNS

_ID_CHARACTERS = 16
_HEADERS = COLUMNS["headers"].arrow_type
_SECTIONS = {"key": Section.KEY, "headers": Section.HEADERS}
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
    """The messages of [from_offset, to_offset), in pieces of about equal size. `span` is the range
    that the broker claims to send. RangeCorrupt names the fault: a batch with a wrong crc, or
    offsets that are not consecutive or not the span."""
    names = [field.name.lower() for field in schema]
    sections = {name: section for name, section in _SECTIONS.items() if name in names}
    columns, offsets = _checked(data, span, list(sections.values()))
    first, end = np.searchsorted(offsets, (from_offset, to_offset)).tolist()
    texts = dict(zip(sections, columns.sections, strict=True))
    rows = _Rows(columns, texts, {"topic": topic, "log": log, "broker": broker}, partition)
    for low, high in _pieces(rows.body_offsets, first, end, rows_max):
        arrays = [rows.column(name, low, high) for name in names]
        if arrays:
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        else:
            yield pa.RecordBatch.from_struct_array(pa.array([{}] * (high - low), pa.struct([])))


def _checked(
    data: bytes, span: tuple[int, int] | None, sections: Sequence[Section]
) -> tuple[Columns, np.ndarray[Any, Any]]:
    """The crc of each batch is checked. Whether they are the right ones, and all of them, shows in
    their offsets: a foreign batch, a row too few or too many, leaves a step that is not 1 or
    another span."""
    try:
        columns = decode_columns(data, sections)
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


@dataclass(eq=False)
class _Rows:
    """The columns of one fetch, cut out by rows."""

    _columns: Columns
    _texts: dict[str, Values | None]
    _alike: dict[str, str]  # what is the same text in each row
    _partition: int

    def __post_init__(self) -> None:
        self.body_offsets = np.frombuffer(self._columns.body_offsets, np.int64)

    def column(self, name: str, low: int, high: int) -> pa.Array:
        columns, count = self._columns, high - low
        if name in self._alike:
            characters = self._alike[name].encode()
            return _fixed_strings(characters * count, len(characters), count)
        match name:
            case "partition":
                return pa.array(np.full(count, self._partition, np.int32))
            case "offset":
                buffers = [None, pa.py_buffer(columns.offsets)]
                return pa.Array.from_buffers(pa.int64(), count, buffers, offset=low)
            case "timestamp":
                nanoseconds = np.frombuffer(columns.timestamps, np.int64)[low:high]
                return pa.array(nanoseconds // 1000).cast(pa.timestamp("us", tz="UTC"))
            case "id":
                return hex_ids(np.frombuffer(columns.ids, np.uint64)[low:high])
            case "attempts":
                attempts = np.frombuffer(columns.attempts, np.uint16)[low:high]
                return pa.array(np.minimum(attempts, 0x7FFF).astype(np.int16))
            case "key":
                return self._of_section("key", low, high)
            case "headers":  # each text is read once, however many messages have it
                texts = self._of_section("headers", low, high)
                if texts.null_count == count:
                    return pa.nulls(count, _HEADERS)
                coded = texts.dictionary_encode()
                read = pa.array([_headers(text) for text in coded.dictionary.to_pylist()], _HEADERS)
                return read.take(coded.indices)
            case _:
                return _binary(self.body_offsets, columns.bodies, low, high)

    def _of_section(self, name: str, low: int, high: int) -> pa.Array:
        values = self._texts[name]
        if values is None:
            return pa.nulls(high - low, pa.binary())
        bits = np.unpackbits(np.frombuffer(values.present, np.uint8), bitorder="little")[low:high]
        present = pa.py_buffer(np.packbits(bits, bitorder="little"))
        ends = np.frombuffer(values.offsets, np.int64)
        return _binary(ends, values.values, low, high, present)


def _binary(
    ends: np.ndarray[Any, Any], data: bytearray, low: int, high: int, present: Any = None
) -> pa.Array:
    """The values of these rows, out of those of all rows end to end."""
    ends = ends[low : high + 1]
    offsets = pa.py_buffer((ends - ends[0]).astype(np.int32))
    values = pa.py_buffer(data)[int(ends[0]) : int(ends[-1])]
    return pa.Array.from_buffers(pa.binary(), high - low, [present, offsets, values])


def _headers(text: bytes) -> list[tuple[str, str]]:
    """The members of the JSON object: texts as they are, anything else as JSON. What is no object
    is kept whole, under an empty name."""
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        return [("", text.decode("utf-8", "replace"))]
    return [
        (_whole(name), _whole(value if isinstance(value, str) else json.dumps(value)))
        for name, value in members.items()
    ]


def _whole(text: str) -> str:
    """Halves of characters, which JSON may escape, are no text for Arrow."""
    return text.encode("utf-8", "replace").decode()


def hex_ids(ids: np.ndarray[Any, Any], are_there: pa.Buffer | None = None) -> pa.Array:
    """`are_there`: a bit for each present value; the others are null."""
    digits = ids.astype(">u8").tobytes().hex().encode()
    return _fixed_strings(digits, _ID_CHARACTERS, len(ids), are_there)


def _fixed_strings(
    characters: bytes, length: int, count: int, are_there: pa.Buffer | None = None
) -> pa.Array:
    """Strings of one length, given end to end."""
    offsets = pa.py_buffer(length * np.arange(count + 1, dtype=np.int32))
    buffers = [are_there, offsets, pa.py_buffer(characters)]
    return pa.Array.from_buffers(pa.string(), count, buffers)
