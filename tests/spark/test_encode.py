"""Arrow rows to raw batches: what comes out is what the source's decoder reads back."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pyarrow as pa
import pytest

from cases import each
from penstock.kernel import Section, decode_bodies, decode_sections
from penstock.spark.decode import decode
from penstock.spark.encode import BadRow, encode, largest, message_columns
from penstock.spark.schema import COLUMNS

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


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
def test_bodies_of_any_kind(kind: pa.DataType) -> None:
    bodies = pa.array(["a", "ß", "c" * 1000], pa.string()).cast(kind)
    [batch] = batches(body=bodies)
    assert decode_bodies(batch, 0) == [b"a", "ß".encode(), b"c" * 1000]
    assert decode_sections(batch, 0) == {}


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


def test_kafkas_headers_are_headers() -> None:
    given = pa.array([[{"key": "x", "value": b"1"}]], KAFKA_HEADERS)
    [batch] = batches(body=pa.array([b"a"]), headers=given)
    assert read_back(batch, "headers")[0]["headers"] == [("x", "1")]


@pytest.mark.parametrize("kind", [HEADERS, pa.map_(pa.string(), pa.string())])
def test_headers_of_a_slice_are_its_own(kind: pa.DataType) -> None:
    odd = 'quote " and \\ and \n and ü and \x01'
    rows = [[("no", "no")], [(odd, odd)], None, [], [("a", "1"), ("b", None)], [("never", "")]]
    headers = pa.array(rows, kind)[1:5]
    [batch] = batches(body=pa.array([b"x"] * 4), headers=headers)
    texts = decode_sections(batch, 0)[Section.HEADERS]
    assert {index: json.loads(text) for index, text in texts.items()} == {
        0: {odd: odd},
        3: {"a": "1", "b": None},
    }


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_headers_may_come_as_they_are_stored(kind: pa.DataType) -> None:
    given = pa.array(['{"a" : "1", "ß":"2"}', None, "{}", '{"b":""}'], kind)
    [batch] = batches(body=pa.array([b"x"] * 4), headers=given)
    texts = decode_sections(batch, 0)[Section.HEADERS]
    assert texts == {0: '{"a" : "1", "ß":"2"}'.encode(), 3: b'{"b":""}'}


def test_columns_that_are_all_null_cost_nothing() -> None:
    plain = batches(body=pa.array([b"a", b"b"]))
    nulls = {
        "key": pa.nulls(2, pa.binary()),
        "headers": pa.nulls(2, HEADERS),
        "timestamp": pa.nulls(2, pa.timestamp("us", tz="UTC")),
    }
    assert batches(body=pa.array([b"a", b"b"]), **nulls) == plain


def test_batches_stay_below_their_bound_and_in_order() -> None:
    bodies = [b"%04d" % n * 25 for n in range(95)]
    bodies[50] = b"x" * 5000  # larger than the bound: by itself
    made = batches(1000, body=pa.array(bodies))
    assert [body for batch in made for body in decode_bodies(batch, 0)] == bodies
    assert [len(decode_bodies(batch, 0)) for batch in made] == [10] * 5 + [1] + [10] * 4 + [4]


def test_keys_and_headers_count_too() -> None:
    keys = pa.array([b"k" * 900] * 4)
    assert len(batches(1000, body=pa.array([b"a"] * 4), key=keys)) == 4


def test_the_largest_row_is_known() -> None:
    rows = message_columns({"body": pa.array([b"a", b"bbb", b"cc"])})
    assert largest(rows) == (1, 3)


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
