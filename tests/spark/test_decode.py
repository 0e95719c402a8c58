"""Raw batches become what the kernel's plain decoders say, in the types that Spark wants."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import ConfigError
from penstock.kernel import Section, encode_batch, id_at, id_to_hex
from penstock.spark.decode import decode
from penstock.spark.schema import COLUMNS, projection, source_schema

ALL = pa.schema([pa.field(name, column.arrow_type) for name, column in COLUMNS.items()])
BASE_ID = (7 << 22) + 4090  # the sequence runs over within a batch


def rows(data: bytes, low: int, high: int, schema: pa.Schema = ALL, **more: Any) -> list[Any]:
    batches = list(decode(data, schema, "orders", 0, low, high, **more))
    assert all(batch.schema.equals(schema) for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def test_each_message_has_its_own_values() -> None:
    from pyspark.sql.types import StructType

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
    kafkas = projection(StructType().add("value", _parse("binary")))
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


def test_a_schema_without_columns_still_counts() -> None:
    data = encode_batch([b"x"] * 5, 0, 1 << 22, 0)
    assert [piece.num_rows for piece in decode(data, pa.schema([]), "orders", 0, 1, 4)] == [3]


def test_a_hurt_batch_is_not_believed() -> None:
    data = encode_batch([b"x" * 9], 0, 1 << 22, 0)
    hurt = data + data[:80] + b"\xff" + data[81:]
    with pytest.raises(ValueError, match=f"batch at {len(data)}: BAD_CRC"):
        list(decode(hurt, ALL, "orders", 0, 0, 2))


@pytest.mark.parametrize("nullable", [True, False])
def test_arrow_schemas_are_those_that_spark_expects(nullable: bool) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructField, StructType

    ddl = {name: column.sql_type for name, column in COLUMNS.items()}
    fields = [
        StructField(name, _parse(sql), nullable or not COLUMNS[name].always)
        for name, sql in ddl.items()
    ]
    schema = StructType(fields)
    assert projection(schema).equals(to_arrow_schema(schema, timezone="UTC"))


def _parse(sql: str) -> Any:
    from pyspark.sql import types

    simple = {
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "smallint": types.ShortType(),
        "timestamp": types.TimestampType(),
        "binary": types.BinaryType(),
        "map<string,binary>": types.MapType(types.StringType(), types.BinaryType()),
        "map<string,string>": types.MapType(types.StringType(), types.StringType()),
    }
    return simple[sql]


def test_projections_that_cannot_be_are_named() -> None:
    from pyspark.sql.types import LongType, StringType, StructType

    with pytest.raises(ConfigError, match=r"'price'.*columns are topic, .* body \(or value\), key"):
        projection(StructType().add("price", StringType()))
    with pytest.raises(ConfigError, match=r"'offset string'.*type is bigint"):
        projection(StructType().add("offset", StringType()))
    with pytest.raises(ConfigError, match=r"key.*can be null"):
        projection(StructType().add("key", _parse("binary"), nullable=False))
    assert projection(StructType().add("Offset", LongType())).names == ["Offset"]
    with pytest.raises(ConfigError, match=r"headers.*map<string,string> or map<string,binary>"):
        projection(StructType().add("headers", StringType()))
    assert source_schema(("headers",)).endswith("body binary, headers map<string,string>")
    assert source_schema((), "value").endswith("attempts smallint, value binary")


@pytest.mark.parametrize("sql_type", ["map<string,string>", "map<string,binary>"])
def test_headers_have_the_type_that_a_schema_names(sql_type: str) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = StructType().add("headers", _parse(sql_type))
    assert projection(schema).equals(to_arrow_schema(schema, timezone="UTC"))
