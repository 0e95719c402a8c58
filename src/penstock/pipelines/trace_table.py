"""The trace table: one row an event, made of the bodies of `_trace`.

A body becomes columns without an object for an event: the format's records go into numpy, and names
are taken from the body's own table of names. The position of an event (`trace_partition`,
`trace_offset`, `trace_index`) tells it from all others and orders those of one nsqd, so a reader
can see that the table has every event once. `trace_partition` is nsqd's node id.

`messages` is 1, but where a whole range of a channel met one fate (`skipped`, `emptied`): then the
row is about `offset` and those behind it, and has no `message_id`.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import DataLost, TraceBroken
from penstock.ids import guid
from penstock.spark.decode import hex_ids
from penstock.trace.events import EVENT_BYTES, KIND_LABELS, decode_records

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
_RECORD = np.dtype("i8,u8,i8,u8,u4,u2,u2,u2,u2,u2,u1,u1")  # of `TRACE_RECORD`
_RECORD.names = ("time_ns", "message_id", "offset", "trace_id", "count", "topic", "channel",
    "client", "attempts", "partition", "kind", "zero")  # fmt: skip
_ATTEMPTS_MAX = 0x7FFF
_BATCH_ROWS = 20_000
_BATCH_BODIES = 500
Body = tuple[list[str], memoryview, int, int]  # names, records, node, offset


def decode_bodies(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of `_trace` (offset, id, body) as rows of the table: for `mapInArrow`. Small bodies are
    combined: each array of Arrow costs as much as hundreds of events."""
    held: list[Body] = []
    for batch in batches:
        offsets, ids = (batch.column(name).to_pylist() for name in ("offset", "id"))
        for offset, id, body in zip(offsets, ids, batch.column("body"), strict=True):
            held.append(decode(body.as_buffer(), guid.parse(int(id, 16)).node, offset))
            rows = sum(len(records) for _, records, _, _ in held) // EVENT_BYTES
            if rows >= _BATCH_ROWS or len(held) >= _BATCH_BODIES:
                yield events(held)
                held = []
    if held:
        yield events(held)


def decode(body: Any, node: int, offset: int) -> Body:
    """DataLost names the position of an invalid one."""
    try:
        return *decode_records(body), node, offset
    except TraceBroken as error:
        reason = f"the body at offset {offset} of node {node}: {error}"
        raise DataLost("_trace", 0, reason) from error


def events(bodies: Sequence[Body]) -> pa.RecordBatch:
    of_names, records, nodes, offsets = zip(*bodies, strict=True)
    counts = [len(one) // EVENT_BYTES for one in records]
    found, rows = np.frombuffer(b"".join(records), _RECORD), sum(counts)
    names = pa.array(list(chain(*of_names)), pa.string())
    starts = accumulate(counts[:-1], initial=0)
    time = pa.array(found["time_ns"] // 1000).cast(_TIME)
    message_ids, trace_ids = found["message_id"].copy(), found["trace_id"].copy()
    are_there = np.packbits(message_ids != 0, bitorder="little")  # not where it is about a range

    def each(values: Iterable[int]) -> np.ndarray[Any, Any]:
        return np.repeat(np.fromiter(values, np.int64, len(counts)), counts)

    def named(column: str, absent: bool = True) -> pa.Array:
        """Numbers as the names they stand for; 0 is no name."""
        indices = each(accumulate(map(len, of_names[:-1]), initial=0)) + found[column]
        return names.take(pa.array(indices, mask=found[column] == 0 if absent else None))

    arrays = {
        "date": time.cast(pa.timestamp("us")).cast(pa.date32()),
        "event": pa.array(KIND_LABELS).take(pa.array(found["kind"])),
        "time": time,
        "topic": named("topic", absent=False),
        "channel": named("channel"),
        "partition": pa.array(found["partition"].astype(np.int32)),
        "offset": pa.array(found["offset"]),
        "messages": pa.array(found["count"].astype(np.int64)),
        "message_id": hex_ids(message_ids, pa.py_buffer(are_there)),
        # The same 64 bits as a signed number: Spark has no others.
        "trace_id": pa.array(trace_ids.view(np.int64), mask=trace_ids == 0),
        "attempts": pa.array(np.minimum(found["attempts"], _ATTEMPTS_MAX).astype(np.int16)),
        "client": named("client"),
        "trace_partition": pa.array(each(nodes).astype(np.int32)),
        "trace_offset": pa.array(each(offsets)),
        "trace_index": pa.array((np.arange(rows) - each(starts)).astype(np.int32)),
    }
    return pa.RecordBatch.from_arrays([arrays[name] for name in SCHEMA.names], schema=SCHEMA)
