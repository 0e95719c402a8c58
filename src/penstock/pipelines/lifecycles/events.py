"""Events of the trace table as fixed records of numpy: what audits and lifecycles count with.

A row of the table has texts for what are a few values: kinds, topics and channels. Here they are
numbers, and an id is the number that its 16 digits write, so a million events are 50 MB that are
sorted and summed without an object for any of them. Numbers of channels belong to one array and its
list of names; `Names` brings those of several arrays together. 0 is no channel.

Parquet gives the texts as dictionaries already (`TEXTS`), so nothing is compared row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import DataLost
from penstock.trace.events import Kind

Numbers = np.ndarray[Any, Any]

COLUMNS = (
    "event", "time", "topic", "channel", "partition", "offset", "messages", "message_id",
    "trace_id", "attempts", "trace_partition", "trace_offset", "trace_index",
)  # fmt: skip
TEXTS = ("event", "topic", "channel")
INDEX_BITS = 20  # a body has fewer events than that: a message has at most some megabytes
_ID_DIGITS = 16

EVENT = np.dtype(
    [
        ("offset", "<i8"),
        ("message_id", "<u8"),
        ("place", "<i8"),  # trace_offset << INDEX_BITS | trace_index
        ("time_us", "<i8"),
        ("trace_id", "<i8"),  # 0: none
        ("partition", "<i4"),
        ("channel", "<i4"),
        ("attempts", "<i2"),
        ("kind", "u1"),  # a `Kind`; 0 for what this version does not know
    ]
)
# About offsets [first, end) of a channel.
RANGE = np.dtype([("channel", "<i4"), ("partition", "<i4"), ("first", "<i8"), ("end", "<i8")])
# A body of `_trace`, or the part of it in one file: rows that are there, and how many it has.
BODY = np.dtype([("partition", "<i4"), ("offset", "<i8"), ("rows", "<i8"), ("events", "<i8")])

GIVEN_BACK = (Kind.REQUEUED, Kind.TIMED_OUT, Kind.DISCONNECTED)
ENDED = (Kind.DEAD_LETTERED, Kind.SKIPPED, Kind.FILTERED, Kind.EMPTIED, Kind.CORRUPT)
_KINDS = {kind.label: int(kind) for kind in Kind}


class Wanted(NamedTuple):
    """Events of a topic (None: of all), [since, until), of these channels (none: of all)."""

    topic: str | None
    since_us: int
    until_us: int
    channels: tuple[str, ...] = ()


class Packed(NamedTuple):
    names: list[str]  # of channels; number 1 is the first
    events: Numbers
    ranges: Numbers
    bodies: Numbers  # of all topics
    corrupt: Numbers  # ranges, too: of whole ranges and of single messages


class Names:
    """Numbers for names, the same for several arrays."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._numbers: dict[str, int] = {}
        self.numbers(names)

    def numbers(self, names: Iterable[str]) -> Numbers:
        """By the numbers that another array has for these names."""
        known = self._numbers
        found = [known.setdefault(name, len(known) + 1) for name in names]
        return np.array([0, *found], np.int32)

    @property
    def names(self) -> list[str]:
        return list(self._numbers)


def pack(batch: pa.RecordBatch, wanted: Wanted) -> Packed:
    """The events in a batch of rows of the trace table; they need not be in order."""
    time_us = times_of(batch.column("time"))
    batch, time_us = _kept(
        batch, time_us, (time_us >= wanted.since_us) & (time_us < wanted.until_us)
    )
    bodies = _bodies(batch)
    names, channel = coded(batch.column("channel"))
    batch, time_us, channel = _kept(batch, time_us, _meant(batch, wanted, names, channel), channel)
    labels, code = coded(batch.column("event"))
    kind = np.array([0, *(_KINDS.get(label, 0) for label in labels)], np.uint8)[code]
    about_no_message = (kind == Kind.STARTED) | (kind == Kind.SWITCHED)
    has_id = ~_is_null(batch.column("message_id"))
    known = np.unique(channel[(channel > 0) & ~about_no_message])
    numbers = np.zeros(len(names) + 1, np.int32)
    numbers[known] = np.arange(1, len(known) + 1)
    channel = numbers[channel]
    spans = (channel > 0) & ~has_id & np.isin(kind, ENDED)
    one = has_id & ~about_no_message
    corrupt = (channel > 0) & (kind == Kind.CORRUPT)
    return Packed(
        [names[number - 1] for number in known],
        _events(batch, one, time_us, channel, kind),
        _ranges(batch, spans, channel),
        bodies,
        _ranges(batch, corrupt, channel),
    )


def _kept(batch: pa.RecordBatch, time_us: Numbers, mask: Numbers, *more: Numbers) -> Any:
    if mask.all():
        return (batch, time_us, *more)
    columns = (array[mask] for array in (time_us, *more))
    return (batch.filter(pa.array(mask)), *columns)


def _meant(batch: pa.RecordBatch, wanted: Wanted, names: list[str], channel: Numbers) -> Numbers:
    mask = np.ones(batch.num_rows, bool)
    if wanted.topic is not None:
        topics, topic = coded(batch.column("topic"))
        mask &= np.array([False, *(name == wanted.topic for name in topics)])[topic]
    if wanted.channels:
        mask &= np.array([True, *(name in wanted.channels for name in names)])[channel]
    return mask


def _events(
    batch: pa.RecordBatch, mask: Numbers, time_us: Numbers, channel: Numbers, kind: Numbers
) -> Numbers:
    if not mask.all():
        batch, time_us = batch.filter(pa.array(mask)), time_us[mask]
        channel, kind = channel[mask], kind[mask]
    found = np.empty(batch.num_rows, EVENT)
    found["offset"] = numbers_of(batch.column("offset"))
    found["message_id"] = ids_of(batch.column("message_id"))
    found["place"] = (numbers_of(batch.column("trace_offset")) << INDEX_BITS) + numbers_of(
        batch.column("trace_index")
    )
    found["time_us"] = time_us
    found["trace_id"] = numbers_of(batch.column("trace_id"))
    found["partition"] = numbers_of(batch.column("partition"))
    found["attempts"] = numbers_of(batch.column("attempts"))
    found["channel"] = channel
    found["kind"] = kind
    return found


def _ranges(batch: pa.RecordBatch, mask: Numbers, channel: Numbers) -> Numbers:
    found = np.empty(int(mask.sum()), RANGE)
    if len(found):
        batch = batch.filter(pa.array(mask))
        found["channel"] = channel[mask]
        found["partition"] = numbers_of(batch.column("partition"))
        found["first"] = numbers_of(batch.column("offset"))
        found["end"] = found["first"] + numbers_of(batch.column("messages"))
    return found


def _bodies(batch: pa.RecordBatch) -> Numbers:
    """Rows of a body stand together as a rule; where they do not, its parts are added up later."""
    partition, offset = (
        numbers_of(batch.column(name)) for name in ("trace_partition", "trace_offset")
    )
    if not len(offset):
        return np.empty(0, BODY)
    begins = np.flatnonzero(
        np.concatenate(([True], (offset[1:] != offset[:-1]) | (partition[1:] != partition[:-1])))
    )
    found = np.empty(len(begins), BODY)
    found["partition"], found["offset"] = partition[begins], offset[begins]
    found["rows"] = np.diff(np.append(begins, len(offset)))
    found["events"] = np.maximum.reduceat(numbers_of(batch.column("trace_index")), begins) + 1
    return found


# --- columns ---


def times_of(column: pa.Array) -> Numbers:
    return numbers_of(column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()))


def _is_null(column: pa.Array) -> Numbers:
    if not column.null_count:
        return np.zeros(len(column), bool)
    found: Numbers = column.is_null().to_numpy(zero_copy_only=False)
    return found


def numbers_of(column: pa.Array) -> Numbers:
    """0 for what is null."""
    if column.null_count:
        column = pc.fill_null(column, 0)
    found: Numbers = column.to_numpy(zero_copy_only=False)
    return found


def coded(column: pa.Array) -> tuple[list[str], Numbers]:
    """The values, and for each row its number; 0 is null."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    indices = column.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int32()), -1)
    return column.dictionary.to_pylist(), indices.to_numpy(zero_copy_only=False).astype(
        np.int64
    ) + 1


_DIGIT = np.full(256, 0xFF, np.uint8)
for _value, _digit in enumerate(b"0123456789abcdef"):
    _DIGIT[_digit] = _value


def ids_of(column: pa.Array) -> Numbers:
    """DataLost for what is no id."""
    column = column.cast(pa.string())
    lengths = numbers_of(pc.binary_length(column))
    if not len(column):
        return np.empty(0, np.uint64)
    if not (lengths == _ID_DIGITS).all():
        bad = column[int(np.flatnonzero(lengths != _ID_DIGITS)[0])]
        raise DataLost("_trace", 0, f"the message id {bad} in the trace table is none")
    ends = np.frombuffer(column.buffers()[1], np.int32)
    first = int(ends[column.offset])
    text = np.frombuffer(column.buffers()[2], np.uint8, len(column) * _ID_DIGITS, first)
    digits = _DIGIT[text]
    if digits.max() > 0xF:
        bad = column[int(np.flatnonzero(digits > 0xF)[0]) // _ID_DIGITS]
        raise DataLost("_trace", 0, f"the message id {bad} in the trace table is none")
    pairs = (digits[0::2] << 4) | digits[1::2]
    return pairs.view(">u8").astype(np.uint64)


# --- putting arrays together ---


def joined(
    kind: np.dtype[Any], parts: Sequence[tuple[Sequence[str], Numbers]], names: Names
) -> Numbers:
    """Arrays that each have a list of names, as one with the numbers of `names`."""
    arrays = []
    for own, array in parts:
        numbers = names.numbers(own)
        if own and not np.array_equal(numbers, np.arange(len(numbers))):
            array = array.copy()
            array["channel"] = numbers[array["channel"]]
        arrays.append(array)
    return np.concatenate(arrays) if arrays else np.empty(0, kind)
