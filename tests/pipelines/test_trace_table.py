from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from penstock.errors import DataLost
from penstock.ids import guid
from penstock.pipelines.trace_table import SCHEMA, decode, decode_bodies, events
from penstock.trace.events import Event, Kind, encode

TIME_NS = 1_790_000_000_123_456_789


def one(**changed: object) -> Event:
    event = Event(Kind.SENT, TIME_NS, "orders", "billing", 0, 7, 0xAB, 2, "worker", 5)
    return event._replace(**changed)  # type: ignore[arg-type]


def test_an_event_becomes_a_row() -> None:
    rows = events([decode(encode([one()]), 0, 42)])
    rows.validate(full=True)
    assert rows.schema == SCHEMA
    assert rows.to_pylist() == [
        {
            "date": date(2026, 9, 21),
            "event": "sent",
            "time": datetime(2026, 9, 21, 14, 13, 20, 123456, UTC),
            "topic": "orders",
            "channel": "billing",
            "partition": 0,
            "offset": 7,
            "messages": 1,
            "message_id": "00000000000000ab",
            "trace_id": 5,
            "attempts": 2,
            "client": "worker",
            "trace_partition": 0,
            "trace_offset": 42,
            "trace_index": 0,
        }
    ]


def test_all_bodies_of_a_batch_come_in_order() -> None:
    bodies = [encode([one(offset=10 * number + k) for k in range(3)]) for number in range(600)]
    batch = pa.RecordBatch.from_pydict(
        {
            "id": [f"{guid.make(5, 3, number):016x}" for number in range(600)],
            "offset": pa.array(range(600), pa.int64()),
            "body": pa.array(bodies, pa.binary()),
        }
    )
    made = pa.Table.from_batches(decode_bodies([batch]))
    assert made["offset"].to_pylist() == [10 * n + k for n in range(600) for k in range(3)]
    assert made["trace_index"].to_pylist() == [0, 1, 2] * 600
    assert made["trace_partition"].unique().to_pylist() == [3]  # the node


def test_a_body_that_is_none_is_named() -> None:
    with pytest.raises(DataLost, match="offset 9"):
        decode(b"hello, world, this is no body", 0, 9)
