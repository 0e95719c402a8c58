"""Bodies that fastavro has written, by the reader's schema."""

import io
import json
import pickle
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from cases import each
from penstock.errors import ConfigError, FetchFailed
from penstock.formats import AvroDecoder, BodyUndecodable, SchemaRegistry

OLD = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "number", "type": "int"},
        {"name": "client", "type": "string"},
        {"name": "dropped", "type": {"type": "array", "items": "long"}},
    ],
}
NEW = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "user", "type": "string", "aliases": ["client"]},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "salt", "type": "bytes", "default": "\u00ff"},
    ],
}
REGISTRY = {7: json.dumps(OLD), 8: json.dumps(NEW), 9: "{}", 10: '"string"'}.__getitem__


def bare(schema: Any, value: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def framed(schema_id: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + payload


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    listed = [{"name": name, "type": type} for name, type in fields]
    return {"type": "record", "name": "R", "fields": listed}


def test_writers_of_two_schemas() -> None:
    decode = AvroDecoder(json.dumps(NEW), REGISTRY)
    old = framed(7, bare(OLD, {"number": 1, "client": "anna", "dropped": [1, 2]}))
    new = framed(8, bare(NEW, {"number": 1 << 40, "user": "ben", "note": "x", "salt": b"\x00"}))
    found = decode(pa.chunked_array([pa.array([old, None]), pa.array([new])]))
    assert found.type == decode.type
    assert found.to_pylist() == [
        {"number": 1, "user": "anna", "note": None, "salt": b"\xff"},
        None,
        {"number": 1 << 40, "user": "ben", "note": "x", "salt": b"\x00"},
    ]


UNFIT = "not Avro of this schema:"


def test_undecodable_bodies_are_null_with_a_reason() -> None:
    decode = AvroDecoder(NEW, REGISTRY)
    good = bare(OLD, {"number": 1, "client": "anna", "dropped": []})
    bodies = [b"", b"{}", b"\x01" + framed(7, good)[1:], framed(6, good), framed(9, good),
              framed(7, good[:-1]), framed(7, good + b"!"), framed(10, b"\x02x"),
              framed(7, good)]  # fmt: skip
    values, reasons = decode.with_reasons(pa.array(bodies))
    assert [value is not None for value in values.to_pylist()] == [False] * 8 + [True]
    frame = "it has no frame of a schema registry"
    *named, last = reasons.to_pylist()
    assert last is None
    assert named[:4] == [frame, frame, frame, "the registry has no schema 6"]
    for reason, text in zip(
        named[4:],
        ("schema 9: no ", f"{UNFIT} EOFError", "1 bytes are left", f"{UNFIT} Schema mismatch"),
        strict=True,
    ):
        assert reason.startswith(text)
        assert len(reason) < 250


def test_a_registry_that_fails_is_an_error() -> None:
    with pytest.raises(FetchFailed):
        AvroDecoder(NEW, SchemaRegistry("http://127.0.0.1:1"))(pa.array([framed(7, b"")]))


def test_an_unknown_schema_is_asked_for_once_a_batch_and_may_come() -> None:
    known: dict[int, str] = {}
    asked = []

    def registry(schema_id: int) -> str:
        asked.append(schema_id)
        return known[schema_id]

    decode = AvroDecoder(record(("n", "int")), registry)
    bodies = pa.array([framed(7, b"\x02")] * 3)
    assert decode(bodies).null_count == 3
    known[7] = json.dumps(record(("n", "int")))
    assert decode(bodies).to_pylist() == decode(bodies).to_pylist() == [{"n": 1}] * 3
    assert asked == [7, 7]


def logical(type: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type, "logicalType": name, **more}


MOMENT = datetime(2026, 11, 26, 20, 17, 2, 5000, tzinfo=UTC)
CENTS = logical("bytes", "decimal", precision=38, scale=2)
TYPES = [
    ("boolean", pa.bool_(), True, True),
    ("float", pa.float32(), 0.5, 0.5),
    ("double", pa.float64(), 0.1, 0.1),
    (["null", "int", "long"], pa.int64(), 1 << 40, 1 << 40),
    (["float", "double"], pa.float64(), 0.1, 0.1),
    ("null", pa.null(), None, None),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), "B", "B"),
    ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), b"xy", b"xy"),
    ({"type": "map", "values": ["null", CENTS]}, pa.map_(pa.string(), pa.decimal128(38, 2)),
     {"a": Decimal("-1.50"), "b": None}, [("a", Decimal("-1.50")), ("b", None)]),
    ({"type": "array", "items": record(("inner", "int")) | {"name": "I"}},
     pa.list_(pa.struct([("inner", pa.int32())])), [{"inner": 1}], [{"inner": 1}]),
    (CENTS, pa.decimal128(38, 2), Decimal("123456789012345678901234567890123456.78"),
     Decimal("123456789012345678901234567890123456.78")),
    (logical("int", "date"), pa.date32(), date(2026, 11, 26), date(2026, 11, 26)),
    (logical("long", "timestamp-millis"), pa.timestamp("us", "UTC"), MOMENT, MOMENT),
    (logical("long", "timestamp-micros"), pa.timestamp("us", "UTC"), MOMENT, MOMENT),
    (logical("long", "local-timestamp-millis"), pa.timestamp("us"),
     MOMENT.replace(tzinfo=None), MOMENT.replace(tzinfo=None)),
    (logical("string", "uuid"), pa.string(), "4e0e1a7e-9bd5-4b1c-8e1e-2a7b9f3f6a11",
     "4e0e1a7e-9bd5-4b1c-8e1e-2a7b9f3f6a11"),
]  # fmt: skip


@each(("schema", "type", "written", "read"), TYPES)
def test_types(schema: Any, type: pa.DataType, written: Any, read: Any) -> None:
    decode = AvroDecoder(record(("value", schema)), on_error="raise")
    found = decode(pa.array([bare(record(("value", schema)), {"value": written})]))
    assert decode.type == found.type == pa.struct([("value", type)])
    assert found.to_pylist() == [{"value": read}]


def test_the_reader_schema_decides_logical_types() -> None:
    writer = record(("at", "long"), ("raw", logical("long", "timestamp-millis")))
    reader = record(("at", logical("long", "timestamp-millis")), ("raw", "long"))
    body = framed(1, bare(writer, {"at": 1000, "raw": datetime.fromtimestamp(2, UTC)}))
    found = AvroDecoder(reader, {1: json.dumps(writer)}.__getitem__)(pa.array([body]))
    assert found.to_pylist() == [{"at": datetime.fromtimestamp(1, UTC), "raw": 2000}]


def test_a_value_beyond_arrows_type_costs_only_its_own_row() -> None:
    decode = AvroDecoder(record(("at", logical("long", "timestamp-millis"))))
    bodies = [bare(record(("at", "long")), {"at": at}) for at in (1000, (1 << 63) - 1)]
    values, reasons = decode.with_reasons(pa.array(bodies))
    assert values.to_pylist() == [{"at": datetime.fromtimestamp(1, UTC)}, None]
    assert reasons[1].as_py().startswith("it does not fit struct<at: timestamp[us, tz=UTC]>")


@each(
    ("schema", "rule"),
    [
        ('"string"', "must be of a record"),
        ("{", "is no schema of Avro"),
        (record(("x", ["int", "string"])), "of a union Arrow has one type, and null"),
        (record(("x", ["null", "R"])), "a record that holds itself"),
    ],
)
def test_schemas_that_arrow_cannot_have(schema: Any, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        AvroDecoder(schema)


def test_a_decoder_goes_to_other_processes() -> None:
    decode = pickle.loads(pickle.dumps(AvroDecoder(NEW, REGISTRY, on_error="raise")))
    body = framed(7, bare(OLD, {"number": 1, "client": "anna", "dropped": []}))
    assert decode(pa.array([body])).to_pylist()[0]["user"] == "anna"
    with pytest.raises(BodyUndecodable, match="row 1") as raised:
        decode(pa.array([body, b"\x02"]))
    assert raised.value.row == 1
