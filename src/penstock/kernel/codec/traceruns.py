"""Splits the runs among the records of trace events (docs/formats.md has their layout).

A record with a message id and a count of N stands for N events that differ in offset and id alone:
the same thing happened at one time to messages that lie one behind the other. A record without a
message id is one event, whatever its count says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kernel.codec.batch import id_at, id_index
from penstock.kernel.layout import TRACE_RECORD

if TYPE_CHECKING:
    from typing_extensions import Buffer

_I64_END = 1 << 63

_Fields = tuple[int, ...]  # time, message id, offset, trace id, count, and the rest


def expand_events(records: Buffer, events_max: int) -> Buffer:
    """Each event by itself; `records` as they are when there is no run among them. Raises
    ValueError for half a record, and when there would be more than `events_max` events."""
    rows = _rows(records)
    total = sum(map(_events_of, rows))
    if total > events_max:
        raise ValueError(f"{total} events are more than {events_max}")
    if all(_events_of(fields) == 1 for fields in rows):
        return records
    return b"".join(_each(fields, range(_events_of(fields))) for fields in rows)


def pick_events(records: Buffer, message_id: int, trace_id: int, events_max: int) -> bytes:
    """The events of one message, and of all with this trace id (0: none), each by itself. For both
    0: events without a single message. Raises ValueError like `expand_events`."""
    found = []
    total = 0
    for fields in _rows(records):
        indexes = _indexes(fields, message_id, trace_id)
        total += len(indexes)
        if total > events_max:
            raise ValueError(f"{total} events are more than {events_max}")
        found.append(_each(fields, indexes))
    return b"".join(found)


def _indexes(fields: _Fields, message_id: int, trace_id: int) -> range:
    """The matching events of a record."""
    own_id, count = fields[1], _events_of(fields)
    if not (message_id or trace_id):
        return range(0 if own_id else 1)
    if trace_id and fields[3] == trace_id:
        return range(count)
    if message_id and own_id:
        index = id_index(own_id, count, message_id)
        if index >= 0:
            return range(index, index + 1)
    return range(0)


def _rows(records: Buffer) -> list[_Fields]:
    data = memoryview(records).cast("B")
    if len(data) % TRACE_RECORD.size:
        raise ValueError(f"{len(data)} bytes are no whole records")
    return list(TRACE_RECORD.iter_unpack(data))


def _events_of(fields: _Fields) -> int:
    return fields[4] if fields[1] else 1


def _each(fields: _Fields, indexes: range) -> bytes:
    time_ns, base_id, offset, trace_id, _, *rest = fields
    if not base_id:
        return TRACE_RECORD.pack(*fields) * len(indexes)
    ats = ((offset + index + _I64_END) % (2 * _I64_END) - _I64_END for index in indexes)
    return b"".join(
        TRACE_RECORD.pack(time_ns, id_at(base_id, index), at, trace_id, 1, *rest)
        for index, at in zip(indexes, ats, strict=True)
    )
