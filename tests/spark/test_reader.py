"""The readers as plain classes, without a session: what is planned, and what a task does."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.errors import BrokerRefused, ConfigError, DataLost, RangeCorrupt
from penstock.kernel import decode_header, encode_batch
from penstock.spark.offsets import Log, Range
from penstock.spark.options import read_options
from penstock.spark.source import BatchReader, StreamReader, Task

from .fakebroker import FakeBroker
from .queries import Broker

PLACES = pa.schema([pa.field("offset", pa.int64()), pa.field("partition", pa.int32())])


def batch_reader(broker: Broker, **given: str) -> BatchReader:
    options = {"url": broker.url, "subscribe": "orders", "fetchOffset.numRetries": "0", **given}
    return BatchReader(read_options(options, streaming=False), PLACES)


def stream_reader(broker: Broker, **given: str) -> StreamReader:
    options = {"url": broker.url, "subscribe": "orders", "startingOffsets": "earliest", **given}
    return StreamReader(read_options(options, streaming=True), PLACES)


def read(reader: BatchReader | StreamReader, *tasks: Any) -> list[int]:
    return [
        offset
        for task in tasks
        for piece in reader.read(task)
        for offset in piece.column(0).to_pylist()
    ]


def latest(reader: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def whole(identity: str = "first", start: int = 0, end: int = 30) -> Task:
    return Task((Range(Log("orders", identity, 0), start, end),))


def three_batches(broker: FakeBroker) -> None:
    for _ in range(3):
        broker.topic("orders").publish([b"x"] * 10)


@pytest.mark.parametrize(
    ("hurt", "left", "reason"),
    [
        ("damaged", [*range(10), *range(20, 30)], "offsets 10 to 19 .* LOG_DAMAGED"),
        ("gone", range(20, 30), "offsets 0 to 19 .* OFFSET_GONE"),
        ("made again", [], "offsets 0 to 29 .* IDENTITY_CHANGED"),
        ("deleted", [], "offsets 0 to 29 .* TOPIC_NOT_FOUND"),
        ("shorter", range(10), "offsets 10 to 29 .* OFFSET_BEYOND_END"),
        ("hole", [*range(10), *range(20, 30)], "offsets 10 to 19 are gone"),
    ],
)
def test_a_task_reports_data_lost_meanwhile(
    broker: FakeBroker, hurt: str, left: Any, reason: str
) -> None:
    three_batches(broker)
    topic = broker.topics["orders"]
    if hurt == "damaged":
        topic.damaged = (10, 20)
    elif hurt == "gone":
        topic.earliest = 20
    elif hurt == "made again":
        topic.identity = "second"
    elif hurt == "deleted":
        del broker.topics["orders"]
    elif hurt == "shorter":
        topic.end = 10
        del topic.batches[1:]
    else:
        del topic.batches[1]
    careless = batch_reader(broker, failOnDataLoss="false", fetchBytes="1")
    assert read(careless, whole()) == list(left)
    with pytest.raises(DataLost, match=reason):
        read(batch_reader(broker, fetchBytes="1"), whole())


def test_other_refusals_are_no_data_loss(broker: FakeBroker) -> None:
    three_batches(broker)
    broker.failures = 1
    with pytest.raises(BrokerRefused, match="NOT_READY"):
        read(batch_reader(broker, failOnDataLoss="false"), whole())


def test_a_topic_that_is_not_there_is_named(broker: FakeBroker) -> None:
    with pytest.raises(DataLost, match=r"orders.*no such topic"):
        batch_reader(broker).partitions()
    assert batch_reader(broker, failOnDataLoss="false").partitions() == []


def test_topics_of_a_pattern_are_read_whole_without_an_end(broker: FakeBroker) -> None:
    for name in ("order.a", "order.b"):
        broker.topic(name).publish([b"x"] * 5)
    every = {"subscribe": "", "subscribePattern": "order.*"}

    def ranges(**given: str) -> dict[str, tuple[int, int]]:
        tasks = batch_reader(broker, **every, **given).partitions()
        found = [each for task in tasks if isinstance(task, Task) for each in task.ranges]
        return {each.log.topic: (each.start, each.end) for each in found}

    ends = {"endingOffsets": '{"order.a": {"0": 2}}'}
    assert ranges(**ends) == {"order.a": (0, 2), "order.b": (0, 5)}
    starts = {"startingOffsets": '{"order.b": {"0": 3}}'}
    assert ranges(**starts, **ends) == {"order.a": (0, 2), "order.b": (3, 5)}
    misspelt = {"endingOffsets": '{"order.aa": {"0": 2}}'}
    with pytest.raises(DataLost, match=r"order.aa.*no such topic"):
        ranges(**misspelt)
    stream = stream_reader(broker, **every, startingOffsets='{"order.aa": {"0": 2}}')
    with pytest.raises(ConfigError, match=r"order.aa.*no such topic"):
        stream.initialOffset()


def other_batch(data: bytes) -> bytes:
    """As a recycled file held it: sound in itself, and of another place of the log."""
    middle = decode_header(data, 0).length
    return data[:middle] + encode_batch([b"y"] * 10, 500, 1 << 32, 0)


def shifted(data: bytes) -> bytes:
    return encode_batch([b"y"] * 10, 500, 1 << 32, 0)


@pytest.mark.parametrize("careless", ["true", "false"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_batch, "offset 500 follows offset 9"),
        (shifted, "holds offsets 500 to 510, not 0 to"),
        (lambda data: data[:-40] + b"?" + data[-39:], "BAD_CRC"),
        (lambda data: data[: decode_header(data, 0).length], "holds offsets 0 to 10, not 0 to 30"),
        (lambda data: b"", "holds offsets 0 to 0, not 0 to 30"),
    ],
)
def test_bytes_of_something_else_are_an_error_and_no_missing_rows(
    broker: FakeBroker, change: Callable[[bytes], bytes], reason: str, careless: str
) -> None:
    """Nothing is lost: so failOnDataLoss does not step over it."""
    three_batches(broker)
    broker.sent = change
    with pytest.raises(RangeCorrupt, match=reason):
        read(batch_reader(broker, failOnDataLoss=careless), whole())


def test_a_range_of_another_topic_of_that_name(broker: FakeBroker) -> None:
    three_batches(broker)
    broker.identity_sent = "second"
    with pytest.raises(RangeCorrupt, match="identity second, not first"):
        read(batch_reader(broker), whole())


def end_of(document: dict[str, Any]) -> dict[str, int]:
    return {name: topic["partitions"]["0"] for name, topic in document["topics"].items()}


def test_a_limit_is_kept_only_when_spark_says_so(broker: FakeBroker) -> None:
    three_batches(broker)
    reader = stream_reader(broker, maxOffsetsPerTrigger="7")
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    start = reader.initialOffset()
    assert end_of(start) == {"orders": 0}
    end = reader.latestOffset(start, ReadMaxRows(7))
    assert end_of(end) == {"orders": 7}
    assert end_of(reader.latestOffset(start, ReadAllAvailable())) == {"orders": 30}
    assert end_of(reader.reportLatestOffset() or {}) == {"orders": 30}
    assert read(reader, *reader.partitions(start, end)) == list(range(7))


def test_available_now_ends_where_it_began(broker: FakeBroker) -> None:
    three_batches(broker)
    reader = stream_reader(broker, subscribePattern="o.*", subscribe="")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    three_batches(broker)
    broker.topic("ordered").publish([b"x"])
    assert end_of(reader.latestOffset(start, ReadAllAvailable())) == {"orders": 30}


def test_a_first_batch_that_is_planned_again_begins_where_it_began(broker: FakeBroker) -> None:
    """Spark does not write down where a query begins, and asks again after a failure."""
    three_batches(broker)
    first = stream_reader(broker, startingOffsets="latest")
    start = first.initialOffset()
    broker.topic("orders").publish([b"x"] * 5)
    end = first.latestOffset(start, ReadAllAvailable())
    broker.topic("orders").publish([b"x"] * 5)
    again = stream_reader(broker, startingOffsets="latest")
    written_down = json.loads(json.dumps(end))
    restarted = again.initialOffset()
    assert end_of(restarted) == {"orders": 40}
    assert read(again, *again.partitions(restarted, written_down)) == list(range(30, 35))
    following = again.latestOffset(written_down, ReadAllAvailable())
    assert read(again, *again.partitions(written_down, following)) == list(range(35, 40))
    assert "from" not in following


def test_nothing_new_is_the_very_same_document(broker: FakeBroker) -> None:
    three_batches(broker)
    reader = stream_reader(broker, startingOffsets="latest")
    start = reader.initialOffset()
    assert json.dumps(reader.latestOffset(start, ReadAllAvailable())) == json.dumps(start)
    broker.topic("orders").publish([b"x"])
    end = reader.latestOffset(start, ReadAllAvailable())
    assert json.dumps(reader.latestOffset(end, ReadAllAvailable())) == json.dumps(end)


@pytest.mark.parametrize("named", [{}, {"subscribe": "", "subscribePattern": "ord.*"}])
def test_a_new_topic_begins_at_its_earliest_offset(
    broker: FakeBroker, named: dict[str, str]
) -> None:
    reader = stream_reader(broker, startingOffsets="latest", **named)
    start = reader.initialOffset()
    assert end_of(start) == {}
    three_batches(broker)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert read(reader, *reader.partitions(start, end)) == list(range(30))


def test_a_batch_is_bounded_by_bytes_too(broker: FakeBroker) -> None:
    for _ in range(10):
        broker.topic("orders").publish([b"x" * 1000])
        broker.topic("small").publish([b"x"])
    given = {"subscribe": "orders,small", "maxBytesPerTrigger": "4000"}
    reader = stream_reader(broker, **given)
    start = reader.initialOffset()
    reached: list[dict[str, int]] = []
    while (end := latest(reader, start)) != start:
        reached.append(end_of(end))
        start = end
    assert reached[0] == {"orders": 4, "small": 4}
    assert reached[-1] == {"orders": 10, "small": 10}
    assert len(reached) == 3
    both = stream_reader(broker, **given, maxOffsetsPerTrigger="4")
    end = latest(both, both.initialOffset())
    assert end_of(end) == {"orders": 2, "small": 2}


def test_small_topics_share_a_task(broker: FakeBroker) -> None:
    for number in range(50):
        broker.topic(f"t{number}").publish([b"x"] * 3)
    reader = batch_reader(broker, subscribe=",".join(broker.topics))
    (task,) = reader.partitions()
    assert read(reader, task) == [0, 1, 2] * 50
    assert len(batch_reader(broker, subscribe="t1,t2", minPartitions="2").partitions()) == 2
