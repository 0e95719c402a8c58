"""Arrow rows to raw batches: what comes out is what the source's decoder reads back."""

import datetime
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from cases import each
from penstock.errors import ConfigError
from penstock.kernel import (
    Section,
    decode_bodies,
    decode_sections,
    encode_batch,
    id_at,
    id_to_hex,
    murmur3_32,
)
from penstock.spark.decode import decode
from penstock.spark.encode import BadRow, encode, message_columns
from penstock.spark.schema import COLUMNS, projection, source_schema
from penstock.spark.stager import key_hashes

from .test_options import TYPES

UTC = datetime.UTC
HEADERS = pa.map_(pa.string(), pa.binary())
KAFKA_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batches(bytes_max: int = 1 << 20, **columns: pa.Array) -> list[bytes]:
    return [block.data for block in encode(message_columns(columns), bytes_max)]


def read_back(data: bytes, *names: str) -> list[dict[str, Any]]:
    schema = pa.schema([(name, COLUMNS[name].arrow_type) for name in names])
    rows: list[dict[str, Any]] = []
    for batch in decode(data, schema, "orders", 0, 0, 1 << 40):
        rows += batch.to_pylist()
    return rows


def test_a_slice_is_only_what_it_shows() -> None:
    bodies = pa.array([b"no", b"a", b"bb", b"never"])[1:3]
    keys = pa.array([b"no", None, b"k", b"never"])[1:3]
    [batch] = batches(body=bodies, key=keys)
    assert decode_bodies(batch, 0) == [b"a", b"bb"]
    assert decode_sections(batch, 0) == {Section.KEY: {1: b"k"}}


def test_all_columns_are_read_back() -> None:
    first = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    [batch] = batches(
        body=pa.array([b"a", b"b", b"c"]),
        key=pa.array(["k", None, ""]),
        headers=pa.array([[("x", b"1"), ("y", "ü".encode())], None, []], HEADERS),
        timestamp=pa.array([first, None, None], pa.timestamp("us", tz="UTC")),
    )
    rows = read_back(batch, "timestamp", "key", "headers")
    assert rows[0]["timestamp"] == first
    assert [row["key"] for row in rows] == [b"k", None, b""]
    assert rows[0]["headers"] == [("x", "1"), ("y", "ü")]
    assert [row["headers"] for row in rows[1:]] == [None, None]
    # without a time of its own a message has that of its batch, which nsqd sets
    assert decode_sections(batch, 0)[Section.TIMESTAMP].keys() == {0}


@pytest.mark.parametrize("kind", [HEADERS, pa.map_(pa.string(), pa.string()), KAFKA_HEADERS])
def test_headers_of_any_form(kind: pa.DataType) -> None:
    odd = 'quote " and \\ and \n and ü and \x01'
    rows: list[Any] = [[(odd, odd)], None, [], [("a", "1"), ("b", None)]]
    if kind == KAFKA_HEADERS:
        rows = [
            row and [dict(zip(("key", "value"), one, strict=True)) for one in row] for row in rows
        ]
    [batch] = batches(body=pa.array([b"x"] * 4), headers=pa.array(rows, kind))
    texts = decode_sections(batch, 0)[Section.HEADERS]
    found = {index: json.loads(text) for index, text in texts.items()}
    assert found == {0: {odd: odd}, 3: {"a": "1", "b": None}}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_headers_may_come_as_they_are_stored(kind: pa.DataType) -> None:
    given = pa.array(['{"a" : "1", "ß":"2"}', None, "{}", '{"b":""}'], kind)
    [batch] = batches(body=pa.array([b"x"] * 4), headers=given)
    texts = decode_sections(batch, 0)[Section.HEADERS]
    assert texts == {0: '{"a" : "1", "ß":"2"}'.encode(), 3: b'{"b":""}'}


def test_batches_stay_below_their_bound_and_in_order() -> None:
    bodies = [b"%04d" % n * 25 for n in range(95)]
    bodies[50] = b"x" * 5000  # larger than the bound: by itself
    made = batches(1000, body=pa.array(bodies))
    assert [body for batch in made for body in decode_bodies(batch, 0)] == bodies
    assert [len(decode_bodies(batch, 0)) for batch in made] == [10] * 5 + [1] + [10] * 4 + [4]


def times(*microseconds: int) -> pa.Array:
    return pa.array(microseconds, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


@each(
    ("columns", "reason"),
    [
        ({"body": pa.array([b"a", None])}, "the body is null"),
        ({"body": pa.array([b"a", b""])}, "the body is empty"),
        ({"timestamp": times(0, (1 << 63) // 1000 + 1)}, "1970 to 2262"),
        ({"timestamp": times(0, -1)}, "1970 to 2262"),
        ({"headers": pa.array([None, [("x", b"\xff")]], HEADERS)}, "'x' is not UTF-8"),
        ({"headers": pa.array([None, [{"key": None}]], KAFKA_HEADERS)}, "no name"),
        ({"headers": pa.array([None, [None]], KAFKA_HEADERS)}, "no name"),
        ({"headers": pa.array([None, "{"])}, "no JSON object of texts"),
        ({"headers": pa.array([None, "[]"])}, "no JSON object of texts"),
        ({"headers": pa.array([None, '{"a":1}'])}, "no JSON object of texts"),
        ({"headers": pa.array([None, '{"a":null}'])}, "no JSON object of texts"),
        (
            {"headers": pa.array([None, [{"key": "x", "value": b"1"}] * 2], KAFKA_HEADERS)},
            "no name, or is there twice: 'x', 'x'",
        ),
    ],
)
def test_a_row_that_is_no_message_is_named(columns: dict[str, pa.Array], reason: str) -> None:
    with pytest.raises(BadRow, match=reason) as caught:
        message_columns({"body": pa.array([b"a", b"b"]), **columns})
    assert caught.value.indexes == [1]


# --- raw batches become what the kernel's plain decoders say, in the types that Spark wants ---


ALL = pa.schema([pa.field(name, column.arrow_type) for name, column in COLUMNS.items()])
BASE_ID = (7 << 22) + 4090  # the sequence runs over within a batch


def rows(data: bytes, low: int, high: int, schema: pa.Schema = ALL, **more: Any) -> list[Any]:
    batches = list(decode(data, schema, "orders", 0, low, high, **more))
    assert all(batch.schema.equals(schema) for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def test_each_message_has_its_own_values() -> None:
    sections = {
        Section.TIMESTAMP: {1: -1},
        Section.ID: {1: (1 << 64) - 1},
        Section.ATTEMPTS: {1: 65_535, 2: 2},
        Section.KEY: {0: b"k"},
        Section.HEADERS: {0: b'{"a":"\xc3\xa4","n":[1]}', 2: b"no json"},
    }
    first = encode_batch([b"x" * n for n in range(10)], 40, BASE_ID, 1_234_567)
    second = encode_batch([b"a", b"", b"c"], 50, 9 << 22, 5_000, sections=sections)
    found = rows(first + second, 38, 60)
    assert [row["offset"] for row in found] == list(range(40, 53))
    assert [row["body"] for row in found] == [b"x" * n for n in range(10)] + [b"a", b"", b"c"]
    assert [row["id"] for row in found[:10]] == [
        id_to_hex(id_at(BASE_ID, i)).decode() for i in range(10)
    ]
    assert {row["topic"] for row in found} == {"orders"}
    assert {row["partition"] for row in found} == {0}
    assert found[0]["timestamp"].microsecond == 1234
    assert found[11]["timestamp"].isoformat().startswith("1969-12-31T23:59:59.999999")
    assert found[11]["id"] == "f" * 16
    assert [row["attempts"] for row in found[10:]] == [0, 32_767, 2]
    assert [row["key"] for row in found[9:]] == [None, b"k", None, None]
    assert found[9]["headers"] is None
    assert found[10]["headers"] == [("a", "ä"), ("n", "[1]")]
    assert found[12]["headers"] == [("", "no json")]
    kafkas = projection(StructType().add("value", TYPES["binary"]))
    assert rows(second, 50, 51, kafkas) == [{"value": b"a"}]
    as_bytes = pa.schema([pa.field("headers", pa.map_(pa.string(), pa.binary()))])
    assert rows(second, 50, 51, as_bytes) == [{"headers": [("a", "ä".encode()), ("n", b"[1]")]}]


def test_keys_and_headers_come_in_any_cut() -> None:
    keys = {i: b"k%d" % (i % 3) for i in range(0, 100, 2)}
    headers = {i: b'{"n":"%d","half":"\\ud800"}' % (i % 3) for i in range(0, 100, 5)}
    sections = {Section.KEY: keys, Section.HEADERS: headers}
    data = encode_batch([b"x"] * 100, 0, 1 << 22, 0, sections=sections)
    schema = pa.schema([field for field in ALL if field.name in ("offset", "key", "headers")])
    for low, high, rows_max in ((0, 100, 100), (3, 61, 25), (7, 8, 1)):
        assert rows(data, low, high, schema, rows_max=rows_max) == [
            {
                "offset": i,
                "key": keys.get(i),
                "headers": [("n", str(i % 3)), ("half", "?")] if i in headers else None,
            }
            for i in range(low, high)
        ]


def test_only_the_range_comes_out_in_pieces_of_about_equal_size() -> None:
    data = encode_batch([str(i).encode() for i in range(100)], 100, 1 << 22, 0)
    found = rows(data, 103, 161, rows_max=25)
    assert [row["body"] for row in found] == [str(i).encode() for i in range(3, 61)]
    pieces = list(decode(data, ALL, "orders", 0, 103, 161, rows_max=25))
    assert [piece.num_rows for piece in pieces] == [20, 20, 18]
    assert rows(data, 0, 100) == rows(data, 200, 300) == rows(data, 150, 150) == []


def test_a_hurt_batch_is_not_believed() -> None:
    data = encode_batch([b"x" * 9], 0, 1 << 22, 0)
    hurt = data + data[:80] + b"\xff" + data[81:]
    with pytest.raises(ValueError, match=f"batch at {len(data)}: BAD_CRC"):
        list(decode(hurt, ALL, "orders", 0, 0, 2))


@pytest.mark.parametrize("nullable", [True, False])
def test_arrow_schemas_are_those_that_spark_expects(nullable: bool) -> None:
    ddl = {name: column.sql_type for name, column in COLUMNS.items()}
    fields = [
        StructField(name, TYPES[sql], nullable or not COLUMNS[name].always)
        for name, sql in ddl.items()
    ]
    schema = StructType(fields)
    assert projection(schema).equals(to_arrow_schema(schema, timezone="UTC"))


def test_projections_that_cannot_be_are_named() -> None:
    with pytest.raises(ConfigError, match=r"'price'.*columns are topic, .* body \(or value\), key"):
        projection(StructType().add("price", StringType()))
    with pytest.raises(ConfigError, match=r"'offset string'.*type is bigint"):
        projection(StructType().add("offset", StringType()))
    with pytest.raises(ConfigError, match=r"key.*can be null"):
        projection(StructType().add("key", TYPES["binary"], nullable=False))
    assert projection(StructType().add("Offset", LongType())).names == ["Offset"]
    with pytest.raises(ConfigError, match=r"headers.*its type is map<string,string>"):
        projection(StructType().add("headers", StringType()))
    assert source_schema(("headers",)).endswith("body binary, headers map<string,string>")


# --- the hash of a column of keys is the kernel's of each ---


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=40), st.integers(0, 5))
def test_each_is_the_kernels(keys: list[bytes | None], first: int) -> None:
    column = pa.array(keys, pa.binary())[first:]
    assert key_hashes(column).tolist() == [murmur3_32(key or b"") for key in keys[first:]]
