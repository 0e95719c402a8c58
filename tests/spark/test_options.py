"""Options: Kafka's names, and an error that names what is wrong."""

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
from penstock.errors import ConfigError
from penstock.spark.options import Bound, Options, SourceOptions, read_options
from penstock.spark.schema import sink_columns
from penstock.spark.sink import read_sink_options


def options(streaming: bool = False, **given: str) -> Options:
    base = {} if given.keys() & {"subscribePattern", "assign"} else {"subscribe": "a,b"}
    return read_options({"url": "h:1", **base, **given}, streaming)


def test_defaults_are_kafkas() -> None:
    batch, stream = options(), options(streaming=True)
    assert batch.topics == ("a", "b")
    assert (batch.starting, batch.ending) == (Bound(word="earliest"), Bound(word="latest"))
    assert stream.starting == Bound(word="latest")
    assert stream.fail_on_data_loss
    assert stream.max_offsets_per_trigger is None


def test_names_are_taken_in_any_case() -> None:
    found = read_options({"URL": "h:1", "subscribe": "a", "FAILONDATALOSS": "False"}, True)
    assert not found.fail_on_data_loss
    for given, included in (
        ({}, ("key",)),
        ({"INCLUDEHEADERS": "true"}, ("key", "headers")),
        ({"URL": "h:1,h:2"}, ("broker", "key")),
        ({"lookupd": "h:1"}, ("broker", "key")),
    ):
        assert SourceOptions.read(given).included == included


def test_topics_are_subscribed_in_three_ways() -> None:
    assert options(subscribePattern="or.*").pattern == "or.*"
    assigned = options(assign='{"a":[0],"c":[2,1]}')
    assert assigned.topics == ("a", "c")
    assert assigned.reads("c", 1)
    assert not assigned.reads("c", 0)
    assert options().reads("a", 9)
    assert read_options({"url": "h", "subscribe": " x , y,x"}, True).topics == ("x", "y")


AT_MS = 1_795_240_800_000  # 2026-11-21T06:00:00Z


def test_a_time_goes_before_offsets() -> None:
    both = options(startingOffsets="earliest", startingTimestamp="1795240800")
    assert both.starting == Bound(time_ms=AT_MS)
    assert options(endingTimestamp="0").ending == Bound(time_ms=0)


ORDERS = {"subscribe": "", "subscribePattern": "orders.*"}


@pytest.mark.parametrize(
    ("streaming", "given", "message"),
    [
        (False, {"startingOffset": "x"}, "startingoffset.*options are url"),
        (False, {"url": ""}, "url.*HTTP address.* several with commas"),
        (False, {"url": "h:1", "lookupd": "h:2"}, "or nsqlookupds"),
        (False, {"url": "h:1,http://h:1"}, "named twice"),
        (False, {"url": "h:1,h:2", "startingOffsets": '{"a":{"0":1}}'}, "by nsqd"),
        (False, {"url": "h:1,h:2", "startingOffsets": '{"h:1":{"a":{"0":-1}}}'}, "nothing"),
        (False, {"subscribe": ""}, "exactly one of subscribe"),
        (False, {"subscribe": "", "assign": '{"a":[255]}'}, "assign.*0 to 254"),
        (False, {"subscribe": "", "assign": '{"a":[]}'}, "assign.*JSON such as"),
        (False, {"subscribe": ","}, "names no topic"),
        (False, {"subscribePattern": "("}, "subscribePattern.*no regex"),
        (False, {"startingOffsets": "first"}, 'startingOffsets.*"earliest", "latest" or JSON'),
        (False, {"startingOffsets": '{"a":{"0":-3},"b":{"0":1}}'}, "-2 is the earliest"),
        (False, {"startingOffsets": '{"a":{"255":1},"b":{"0":1}}'}, "startingOffsets.*JSON"),
        (False, {"startingOffsets": '{"a":{"0":1}}'}, "exactly the topics a, b"),
        (False, {**ORDERS, "endingOffsets": '{"ordres":{"0":1}}'}, "ordres.* match the pattern"),
        (False, {"startingOffsets": "latest"}, "would read nothing"),
        (False, {"endingOffsets": '{"a":{"0":-2},"b":{"0":1}}'}, "would read nothing"),
        (False, {"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger.*streaming queries only"),
        (True, {"endingOffsets": "latest"}, "endingOffsets.*batch queries only"),
        (True, {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger.*at least 1"),
        (True, {"failOnDataLoss": "yes"}, "failOnDataLoss.*one of true, false"),
        (True, {"startingOffset": "latest"}, "is it startingOffsets[?] the options are url"),
        (True, {"kafka.bootstrap.servers": "h:9092"}, "kafka.bootstrap.servers.*is it url[?]"),
        (True, {"startingTimestamp": "-1"}, "startingTimestamp.*no time, as 2026"),
        (True, {"onTopicDeleted": "x"}, "onTopicDeleted.*one of fail, ignore"),
    ],
)
def test_invalid_options_are_named(streaming: bool, given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        options(streaming, **given)


def test_every_option_is_in_the_documents() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    assert [name for name in SourceOptions.names() if f"`{name}`" not in page] == []


# --- what the sink takes: options, columns, and the words for what it does not take ---


URL = {"url": "http://127.0.0.1:4151"}


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"topic": "orders"}, "option url"),
        ({**URL, "topci": "orders"}, "option topci: .* the options are url, .*topic, txnAppId"),
        ({**URL, "subscribe": "orders"}, "option subscribe"),
        ({**URL, "path": "orders"}, "option path.*the options are url, "),
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


def test_rows_are_only_appended() -> None:
    for streaming, reason in ((False, "use append"), (True, "foreachBatch")):
        with pytest.raises(ConfigError, match=reason):
            read_sink_options({**URL, "topic": "orders"}, streaming, overwrite=True)


def test_a_table_for_rejected_rows() -> None:
    path = {"rejectedTable": "/lake/rejected", "checkpointlocation": "/d", "queryname": "q"}
    options = read_sink_options({**URL, **path}, streaming=True)
    assert options.rejected_table == "/lake/rejected"
    assert options.rejected_rows_max is None
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
    MapType(StringType(), BinaryType()),
    ArrayType(KAFKA_HEADER),
)
TYPES = {kind.simpleString(): kind for kind in KINDS}


def columns(ddl: str, topic: str | None = "orders") -> dict[str, str]:
    named = [each.split(" ", 1) for each in ddl.split(", ")]
    return sink_columns(StructType([StructField(name, TYPES[kind]) for name, kind in named]), topic)


def test_columns_by_what_they_are() -> None:
    ddl = "Body string, topic string, partition int, KEY binary, headers map<string,string>"
    found = columns(ddl + ", timestamp timestamp", None)
    others = {name: name for name in ("topic", "partition", "headers", "timestamp")}
    assert found == {"body": "Body", "key": "KEY", **others}
    with pytest.raises(ConfigError, match="option topic"):
        columns("body string", None)


def test_columns_of_the_source_can_be_written() -> None:
    ddl = "topic string, partition int, offset bigint, timestamp timestamp, id string"
    found = columns(ddl + ", attempts smallint, body binary")
    assert list(found) == ["partition", "timestamp", "body"]  # the topic is that of the option


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
