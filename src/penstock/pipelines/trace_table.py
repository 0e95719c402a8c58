"""The trace table: one row an event, made of the bodies of `_trace`.

A body becomes columns without an object for an event: the format's strided views go into numpy, and
names are taken from the body's own table of names. The position of an event (`trace_partition`,
`trace_offset`, `trace_index`) tells it from all others and orders those of one nsqd, so a reader
can see that the table has every event once. `trace_partition` is nsqd's node id.

`messages` is 1, but where a whole range of a channel met one fate (`skipped`, `emptied`): then the
row is about `offset` and those behind it, and has no `message_id`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import DataLost, TraceBroken
from penstock.ids import guid
from penstock.spark.decode import hex_ids
from penstock.trace.events import KIND_LABELS, decode_columns

_TIME = pa.timestamp("us", tz="UTC")

SCHEMA = pa.schema(
    [
        ("date", pa.date32()),  # the partition column
        ("event", pa.string()),
        ("time", _TIME),
        ("topic", pa.string()),
        ("channel", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("messages", pa.int64()),
        ("message_id", pa.string()),
        ("trace_id", pa.int64()),
        ("attempts", pa.int16()),
        ("client", pa.string()),
        ("trace_partition", pa.int32()),
        ("trace_offset", pa.int64()),
        ("trace_index", pa.int32()),
    ]
)
_ATTEMPTS_MAX = 0x7FFF
_BATCH_ROWS = 20_000
_BATCH_BODIES = 500


def decode_bodies(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of `_trace` (offset, id, body) as rows of the table: for `mapInArrow`. Small
    bodies are combined: Spark handles each batch by itself."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        offsets, ids = (batch.column(name).to_pylist() for name in ("offset", "id"))
        for offset, id, body in zip(offsets, ids, batch.column("body"), strict=True):
            held.append(events(body.as_buffer(), guid.parse(int(id, 16)).node, offset))
            if sum(rows.num_rows for rows in held) >= _BATCH_ROWS or len(held) >= _BATCH_BODIES:
                yield from pa.Table.from_batches(held).combine_chunks().to_batches()
                held = []
    yield from pa.Table.from_batches(held, SCHEMA).combine_chunks().to_batches()


def events(body: Any, node: int, offset: int) -> pa.RecordBatch:
    """The events of one body. DataLost names the position of an invalid one."""
    try:
        columns = decode_columns(body)
    except TraceBroken as error:
        raise DataLost(
            "_trace", 0, f"the body at offset {offset} of node {node}: {error}"
        ) from error
    micros = _numbers(columns.time_ns, np.int64) // 1000
    time = pa.array(micros).cast(_TIME)
    rows, message_ids = columns.rows, _numbers(columns.message_id, np.uint64)
    trace_ids = _numbers(columns.trace_id, np.uint64)
    are_there = np.packbits(message_ids != 0, bitorder="little")  # not where it is about a range
    arrays = {
        "date": time.cast(pa.timestamp("us")).cast(pa.date32()),
        "event": _names(columns.kind, list(KIND_LABELS), absent=False),
        "time": time,
        "topic": _names(columns.topic, columns.names, absent=False),
        "channel": _names(columns.channel, columns.names, absent=True),
        "partition": pa.array(_numbers(columns.partition, np.int32)),
        "offset": pa.array(_numbers(columns.offset, np.int64)),
        "messages": pa.array(_numbers(columns.count, np.int64)),
        "message_id": hex_ids(message_ids, pa.py_buffer(are_there)),
        # The same 64 bits as a signed number: Spark has no others.
        "trace_id": pa.array(trace_ids.view(np.int64), mask=trace_ids == 0),
        "attempts": pa.array(
            np.minimum(_numbers(columns.attempts, np.int32), _ATTEMPTS_MAX).astype(np.int16)
        ),
        "client": _names(columns.client, columns.names, absent=True),
        "trace_partition": pa.array(np.full(rows, node, np.int32)),
        "trace_offset": pa.array(np.full(rows, offset, np.int64)),
        "trace_index": pa.array(np.arange(rows, dtype=np.int32)),
    }
    return pa.RecordBatch.from_arrays([arrays[name] for name in SCHEMA.names], schema=SCHEMA)


def _numbers(view: memoryview, kind: Any) -> np.ndarray[Any, Any]:
    return np.asarray(view).astype(kind)


def _names(numbers: memoryview, names: list[str], absent: bool) -> pa.Array:
    """Numbers as the names they stand for; 0 is no name."""
    indices = _numbers(numbers, np.int32)
    missing = indices == 0 if absent else None
    return pa.array(names, pa.string()).take(pa.array(indices, mask=missing))
