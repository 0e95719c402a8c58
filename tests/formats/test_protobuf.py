"""Bodies that Google's own library has written, by the reader's message."""

import base64
import pickle
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

from cases import each
from penstock.errors import ConfigError
from penstock.formats import BodyUndecodable, ProtobufDecoder

FIELD = descriptor_pb2.FieldDescriptorProto
GOOGLE = ("timestamp", "duration", "struct", "wrappers")


def field(name: str, number: int, type: int, **more: Any) -> descriptor_pb2.FieldDescriptorProto:
    return FIELD(name=name, number=number, type=type, label=more.pop("label", 1), **more)


def shop(*orders: descriptor_pb2.FieldDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """message Client { message Place {} } message Order { enum State {} ... }"""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in GOOGLE)
    client = file.message_type.add(name="Client")
    client.field.append(field("name", 1, FIELD.TYPE_STRING))
    place = client.nested_type.add(name="Place")
    place.field.append(field("city", 1, FIELD.TYPE_STRING))
    order = file.message_type.add(name="Order")
    order.field.extend(orders)
    state = order.enum_type.add(name="State")
    state.value.add(name="OPEN", number=0)
    state.value.add(name="PAID", number=1)
    totals = order.nested_type.add(name="TotalsEntry")
    totals.options.map_entry = True
    totals.field.append(field("key", 1, FIELD.TYPE_STRING))
    totals.field.append(field("value", 2, FIELD.TYPE_MESSAGE, type_name=".shop.Client"))
    return file


def classes(file: descriptor_pb2.FileDescriptorProto) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, duration_pb2, struct_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))


def message(name: str, number: int, of: str, **more: Any) -> descriptor_pb2.FieldDescriptorProto:
    return field(name, number, FIELD.TYPE_MESSAGE, type_name=f".{of}", **more)


MANY = FIELD.LABEL_REPEATED
NEW = shop(
    field("number", 1, FIELD.TYPE_SINT64),
    field("note", 2, FIELD.TYPE_STRING),
    field("small", 3, FIELD.TYPE_UINT32),
    field("big", 4, FIELD.TYPE_UINT64),
    field("data", 5, FIELD.TYPE_BYTES),
    field("state", 6, FIELD.TYPE_ENUM, type_name=".shop.Order.State"),
    field("tags", 7, FIELD.TYPE_STRING, label=MANY),
    message("totals", 8, "shop.Order.TotalsEntry", label=MANY),
    message("client", 9, "shop.Client"),
    message("at", 10, "google.protobuf.Timestamp"),
    message("took", 11, "google.protobuf.Duration"),
    message("more", 12, "google.protobuf.Struct"),
    message("discount", 13, "google.protobuf.DoubleValue"),
    field("added", 14, FIELD.TYPE_INT32),
)
OLD = shop(field("number", 1, FIELD.TYPE_SINT64), field("gone", 20, FIELD.TYPE_STRING))
Old, New = classes(OLD), classes(NEW)
EMPTY = {
    "number": 0, "note": "", "small": 0, "big": Decimal(0), "data": b"", "state": "OPEN",
    "tags": [], "totals": [], "client": None, "at": None, "took": None, "more": None,
    "discount": None, "added": 0,
}  # fmt: skip


def framed(schema_id: int, index: bytes, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + index + payload


def registry(schema_id: int) -> str:
    swapped = descriptor_pb2.FileDescriptorProto()
    swapped.CopyFrom(OLD)
    del swapped.message_type[0]
    known = {7: OLD, 8: swapped}
    if schema_id == 9:
        return "syntax = 'proto3';"
    return base64.b64encode(known[schema_id].SerializeToString()).decode()


ORDER = b"\x02\x02"  # one number, zigzag: 1


def test_all_types() -> None:
    order = New("Order")(
        number=-5, note="x", small=(1 << 32) - 1, big=(1 << 64) - 1, data=b"\xff", state=1,
        tags=["a", "b"], client={"name": "anna"}, added=3,
    )  # fmt: skip
    order.totals["one"].name = "ben"
    order.at.FromDatetime(datetime(2026, 11, 26, 20, 17, tzinfo=UTC))
    order.took.FromTimedelta(timedelta(microseconds=1500001))
    order.more.update({"a": 1})
    order.discount.value = 0.0
    decode = ProtobufDecoder(New("Order"))
    found = decode(pa.array([framed(1, ORDER, order.SerializeToString()), None]))
    assert found.type == decode.type
    assert found.type.field("at").type == pa.timestamp("us", "UTC")
    assert found.to_pylist() == [
        {
            "number": -5, "note": "x", "small": (1 << 32) - 1, "big": Decimal((1 << 64) - 1),
            "data": b"\xff", "state": "PAID", "tags": ["a", "b"],
            "totals": [("one", {"name": "ben"})], "client": {"name": "anna"},
            "at": datetime(2026, 11, 26, 20, 17, tzinfo=UTC),
            "took": timedelta(microseconds=1500001), "more": '{"a": 1.0}',
            "discount": 0.0, "added": 3,
        },
        None,
    ]  # fmt: skip


def test_a_writer_of_another_schema() -> None:
    body = Old("Order")(number=4, gone="x").SerializeToString()
    bodies = [framed(7, ORDER, body), framed(8, b"\x00", body)]  # 0 alone is the first message
    decode = ProtobufDecoder(New("Order"), registry, on_error="raise")
    assert decode(pa.array(bodies)).to_pylist() == [EMPTY | {"number": 4}] * 2


def test_an_enum_of_a_number_without_a_name() -> None:
    decode = ProtobufDecoder(New("Order"), framed=False)
    body = New("Order")(state=9).SerializeToString()
    assert decode(pa.array([body])).to_pylist() == [EMPTY | {"state": "9"}]


def test_a_nested_message() -> None:
    decode = ProtobufDecoder(New("Client.Place"), registry)
    body = framed(7, b"\x04\x00\x00", New("Client.Place")(city="Oslo").SerializeToString())
    assert decode(pa.array([body])).to_pylist() == [{"city": "Oslo"}]


@each(
    ("body", "reason"),
    [
        (b"\x01\x00\x00\x00\x07\x00", "it has no frame of a schema registry"),
        (framed(7, b"", b""), "its frame ends within the index of the message"),
        (framed(7, b"\x01", b""), "schema 7 has no message ()"),
        (framed(7, b"\x06\x00", b""), "its frame ends within the index of the message"),
        (framed(7, b"\x00", b""), "it is a shop.Client"),
        (framed(7, b"\x02\x0a", b""), "schema 7 has no message (5,)"),
        (framed(6, b"\x00", b""), "the registry has no schema 6"),
        (framed(9, b"\x00", b""), "schema 9: no serialized schema of Protobuf: "),
        (framed(7, ORDER, b"\x08"), "not Protobuf: "),
    ],
)
def test_undecodable_bodies_are_null_with_a_reason(body: bytes, reason: str) -> None:
    values, reasons = ProtobufDecoder(New("Order"), registry).with_reasons(pa.array([body]))
    assert values.to_pylist() == [None]
    assert reasons[0].as_py().startswith(reason)


def test_without_a_registry_the_index_is_that_of_the_readers_file() -> None:
    decode = ProtobufDecoder(New("Order"), on_error="raise")
    with pytest.raises(BodyUndecodable, match=r"it is a shop\.Client"):
        decode(pa.array([framed(7, b"\x00", b"")]))


def test_a_message_by_its_name_and_a_decoder_in_another_process() -> None:
    descriptors = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, duration_pb2, struct_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(descriptors.file.add())
    descriptors.file.append(NEW)
    body = framed(7, ORDER, New("Order")(number=1).SerializeToString())
    named = ProtobufDecoder("shop.Order", descriptors=descriptors.SerializeToString())
    for decode in (named, ProtobufDecoder(New("Order"))):
        there = pickle.loads(pickle.dumps(decode))
        assert there(pa.array([body])).to_pylist() == [EMPTY | {"number": 1}]


def test_messages_that_arrow_cannot_have() -> None:
    with pytest.raises(ConfigError, match="is not in the descriptors"):
        ProtobufDecoder("shop.Order")
    node = shop(message("next", 1, "shop.Order"))
    with pytest.raises(ConfigError, match="a message that holds itself"):
        ProtobufDecoder(classes(node)("Order"))
    with pytest.raises(ConfigError, match='must be "null" or "raise"'):
        ProtobufDecoder(any_pb2.Any, on_error="skip")  # type: ignore[arg-type]
