"""What the sink takes: options, columns, and the words for what it does not take."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from cases import each
from penstock import limits
from penstock.errors import ConfigError
from penstock.spark.schema import sink_columns
from penstock.spark.sinkoptions import read_sink_options

URL = {"url": "http://127.0.0.1:4151"}


def test_names_are_read_in_any_case() -> None:
    given = {**URL, "TOPIC": "orders", "txnappid": "app", "TxnVersion": "7", "stagebytes": "1000"}
    options = read_sink_options(given, streaming=False)
    assert (options.topic, options.app, options.version) == ("orders", "app", 7)
    assert options.stage_bytes == 1000


def test_what_spark_hands_on_is_passed_over() -> None:
    given = {**URL, "checkpointlocation": "/data", "queryname": "q"}
    assert read_sink_options(given, streaming=True).topic is None


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"topic": "orders"}, "option url"),
        ({**URL, "topci": "orders"}, "option topci: .* the options are url, topic, txnAppId"),
        ({**URL, "subscribe": "orders"}, "option subscribe"),
        ({**URL, "path": "orders"}, "a topic has no path"),
        ({**URL, "topic": "no topic"}, "option topic: 'no topic'"),
        ({**URL, "topic": "gone#ephemeral"}, "keeps nothing on the disk"),
        ({**URL, "stageBytes": "0"}, "option stageBytes"),
        (
            {**URL, "stageBytes": "33554433"},
            "option stageBytes: '33554433'.* at most 33554432 \\(32 MiB\\): nsqd takes no larger",
        ),
        ({**URL, "txnAppId": "", "txnVersion": "1"}, "txn"),
    ],
)
def test_bad_options_are_named(given: dict[str, str], reason: str, streaming: bool) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_sink_options(given, streaming)


def test_a_table_for_rejected_rows() -> None:
    path = {"rejectedTable": "/lake/rejected"}
    options = read_sink_options({**URL, **path}, streaming=True)
    assert options.rejected_table == "/lake/rejected"
    assert options.rejected_rows_max == limits.SPARK_REJECTED_ROWS_MAX
    chosen = read_sink_options({**URL, **path, "rejectedRowsMax": "5"}, streaming=True)
    assert chosen.rejected_rows_max == 5
    for wrong in ({"rejectedRowsMax": "5"}, {"rejectedTable": ""}):
        with pytest.raises(ConfigError, match="rejectedTable"):
            read_sink_options({**URL, **wrong}, streaming=False)


def test_a_version_is_for_batches_and_belongs_to_an_app() -> None:
    with pytest.raises(ConfigError, match="the batch's id"):
        read_sink_options({**URL, "txnAppId": "a", "txnVersion": "1"}, streaming=True)
    assert read_sink_options({**URL, "txnAppId": "a"}, streaming=True).app == "a"
    for name in ("txnAppId", "txnVersion"):
        with pytest.raises(ConfigError, match="both of them, or neither"):
            read_sink_options({**URL, name: "1"}, streaming=False)


# --- columns ---


KAFKA_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
KINDS: tuple[DataType, ...] = (
    StringType(),
    BinaryType(),
    ShortType(),
    IntegerType(),
    LongType(),
    TimestampType(),
    TimestampNTZType(),
    MapType(StringType(), StringType()),
    ArrayType(KAFKA_HEADER),
)
TYPES = {kind.simpleString(): kind for kind in KINDS}


def columns(ddl: str, topic: str | None = "orders") -> dict[str, str]:
    fields = [StructField(*_field(each)) for each in ddl.split(", ")]
    return sink_columns(StructType(fields), topic)


def _field(ddl: str) -> tuple[str, DataType]:
    name, _, kind = ddl.partition(" ")
    return name, TYPES[kind]


def test_columns_by_what_they_are() -> None:
    ddl = "Body string, topic string, partition int, KEY binary, headers map<string,string>"
    found = columns(ddl + ", timestamp timestamp", None)
    assert found == {
        "body": "Body",
        "topic": "topic",
        "partition": "partition",
        "key": "KEY",
        "headers": "headers",
        "timestamp": "timestamp",
    }


def test_kafkas_names_are_taken() -> None:
    ddl = "key binary, value binary, headers array<struct<key:string,value:binary>>"
    assert columns(ddl) == {"key": "key", "body": "value", "headers": "headers"}


def test_the_option_goes_before_the_column() -> None:
    assert columns("body string, topic string") == {"body": "body"}


def test_what_the_source_gives_can_be_written() -> None:
    ddl = "topic string, partition int, offset bigint, timestamp timestamp, id string"
    found = columns(ddl + ", attempts smallint, body binary")
    assert list(found) == ["partition", "timestamp", "body"]


@each(
    ("ddl", "reason"),
    [
        ("body string, colour string", "'colour' .* body .or value., topic, partition, key"),
        ("body string, id bigint", "column: 'id'"),
        ("topic string", "a column body .or value., binary or string, is needed"),
        ("body string, value string", "but one of them"),
        ("body int", "'body int' .* its type is binary or string"),
        ("body string, partition bigint", "its type is int"),
        ("body string, headers int", "its type is .*map"),
        ("body string, timestamp timestamp_ntz", "its type is timestamp"),
    ],
)
def test_columns_that_cannot_be_are_named(ddl: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        columns(ddl)


def test_a_topic_is_needed() -> None:
    with pytest.raises(ConfigError, match="option topic"):
        columns("body string", None)
