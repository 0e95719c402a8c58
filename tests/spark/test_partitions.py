"""Topics of several partitions, of which one has nearly all: what is planned, and what is read."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock import limits
from penstock.errors import ConfigError, DataLost
from penstock.spark.encode import BadRow, message_columns
from penstock.spark.source import BatchReader, StreamReader, Task
from penstock.spark.stager import with_headers

from .fakebroker import FakeBroker
from .test_reader import batch_reader, latest, stream_reader

SIZES = {0: 4, 1: 90, 2: 0, 3: 6}  # of 100


def skewed(broker: FakeBroker, name: str = "orders") -> None:
    for number, size in SIZES.items():
        log = broker.topic(name).partition(number)
        for _ in range(size):
            log.publish([b"x" * 100])


def read(reader: BatchReader | StreamReader, tasks: Any) -> dict[int, list[int]]:
    """Offsets by partition, as they come."""
    found: dict[int, list[int]] = {}
    for task in tasks:
        for piece in reader.read(task):
            for row in piece.to_pylist():
                found.setdefault(row["partition"], []).append(row["offset"])
    return found


def spans(tasks: Any) -> dict[int, tuple[int, int]]:
    ranges = [each for task in tasks if isinstance(task, Task) for each in task.ranges]
    return {each.log.partition: (each.start, each.end) for each in ranges}


def ends(document: dict[str, Any], topic: str = "orders") -> dict[str, int]:
    found: dict[str, int] = document["topics"][topic]["partitions"]
    return found


# --- what is read ---


def test_every_partition_is_read_once(broker: FakeBroker) -> None:
    skewed(broker)
    whole = {number: list(range(size)) for number, size in SIZES.items() if size}
    for given in ({}, {"minPartitions": "8"}, {"maxRecordsPerPartition": "7"}):
        reader = batch_reader(broker, **given)
        assert read(reader, reader.partitions()) == whole
    tasks = batch_reader(broker, minPartitions="8").partitions()
    assert len(tasks) >= 8  # the large one is cut


def test_a_skewed_partition_neither_starves_others_nor_is_starved(broker: FakeBroker) -> None:
    skewed(broker)
    reader = stream_reader(broker, maxOffsetsPerTrigger="20")
    start, steps = reader.initialOffset(), []
    while (end := latest(reader, start)) != start:
        steps.append(spans(reader.partitions(start, end)))
        start = end
    first = {number: end - begin for number, (begin, end) in steps[0].items()}
    assert first == {0: 1, 1: 18, 3: 1}
    assert all({1, 3} <= set(step) for step in steps)
    assert len(steps) == 5  # as many as without skew: all come to their end at the same time
    assert ends(start) == {"0": 4, "1": 90, "2": 0, "3": 6}


def test_a_partition_that_comes_begins_at_0(broker: FakeBroker) -> None:
    """Also behind a checkpoint from when the topic had one."""
    broker.topic("orders").publish([b"x"] * 3)
    reader = stream_reader(broker, startingOffsets="latest")
    start = reader.initialOffset()
    assert ends(start) == {"0": 3}
    reader.prepareForTriggerAvailableNow()
    skewed(broker)
    assert ends(latest(reader, start)) == {"0": 3}  # as it was when AvailableNow began
    going = stream_reader(broker, startingOffsets="latest")
    end = latest(going, start)
    assert ends(end) == {"0": 7, "1": 90, "2": 0, "3": 6}
    found = read(going, going.partitions(start, end))
    assert found == {0: [3, 4, 5, 6], 1: list(range(90)), 3: list(range(6))}


# --- some partitions ---


def test_assigned_partitions_are_read_and_no_others(broker: FakeBroker) -> None:
    skewed(broker)
    reader = batch_reader(broker, subscribe="", assign='{"orders": [0, 3]}')
    assert read(reader, reader.partitions()) == {0: [0, 1, 2, 3], 3: [0, 1, 2, 3, 4, 5]}
    stream = stream_reader(broker, subscribe="", assign='{"orders": [3]}')
    end = latest(stream, stream.initialOffset())
    assert ends(end) == {"3": 6}
    other = stream_reader(broker, subscribe="", assign='{"orders": [0]}')
    with pytest.raises(ConfigError, match=r"orders 3.*reads orders 0.*checkpoint of its own"):
        latest(other, end)
    more = stream_reader(broker, subscribe="", assign='{"orders": [0, 3]}')
    assert ends(latest(more, end)) == {"0": 4, "3": 6}
    fewer = stream_reader(broker, subscribe="", assign='{"orders": [0]}')
    with pytest.raises(DataLost, match=r"orders.*partition 3.*does not read it any more"):
        latest(fewer, latest(more, end))


def test_an_assigned_partition_that_is_not_there(broker: FakeBroker) -> None:
    skewed(broker)
    given = {"subscribe": "", "assign": '{"orders": [0, 7]}'}
    with pytest.raises(DataLost, match=r"partition 7.*no such partition"):
        batch_reader(broker, **given).partitions()
    stream = stream_reader(broker, **given)
    start = latest(stream, stream.initialOffset())
    broker.topic("orders").partition(7).publish([b"x"] * 2)
    end = latest(stream, start)
    assert read(stream, stream.partitions(start, end)) == {7: [0, 1]}


# --- bounds ---


def test_offsets_are_given_for_each_partition(broker: FakeBroker) -> None:
    skewed(broker)
    starts = '{"orders": {"0": 1, "1": 85, "2": -2, "3": -2}}'
    stops = '{"orders": {"0": 3, "1": -1, "2": -1, "3": 2}}'
    reader = batch_reader(broker, startingOffsets=starts, endingOffsets=stops)
    assert spans(reader.partitions()) == {0: (1, 3), 1: (85, 90), 3: (0, 2)}
    some = '{"orders": {"0": 1, "1": 85}}'
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(ConfigError, match=rf"{option}.*0, 1.*all partitions.*0, 1, 2, 3"):
            batch_reader(broker, **{option: some}).partitions()
    both = {"subscribe": "", "assign": '{"orders": [0, 1]}', "startingOffsets": some}
    assert spans(batch_reader(broker, **both).partitions()) == {0: (1, 4), 1: (85, 90)}


def test_a_stream_may_begin_before_its_topic_is_there(broker: FakeBroker) -> None:
    """Whatever number of partitions it comes with: what is not named is read whole."""
    reader = stream_reader(broker, startingOffsets='{"orders": {"0": 0}}')
    start = reader.initialOffset()
    skewed(broker)
    again = reader.initialOffset()  # its first batch failed, so it asks once more
    assert ends(again) == {"0": 0, "1": 0, "2": 0, "3": 0}
    assert ends(latest(reader, start)) == ends(latest(reader, again))
    named = '{"orders": {"0": 0, "7": 0}}'
    with pytest.raises(ConfigError, match=r"name partitions of orders, 0, 1, 2, 3, and no other"):
        stream_reader(broker, startingOffsets=named).initialOffset()


# --- topics that end ---


@pytest.mark.parametrize("behind", [None, 1])
def test_a_deleted_topic_is_no_loss_when_all_of_it_was_read(
    broker: FakeBroker, behind: int | None
) -> None:
    skewed(broker)
    broker.topic("other").publish([b"x"])
    reader = stream_reader(broker, subscribe="orders,other")
    start = latest(reader, reader.initialOffset())
    was = {number: log.end + (number == behind) for number, log in
           broker.topics.pop("orders").partitions.items()}  # fmt: skip
    broker.ended["orders"] = {"first": was[0]}
    broker.ended_partitions["orders"] = {"first": was}
    if behind is None:
        assert list(latest(reader, start)["topics"]) == ["other"]
    else:
        with pytest.raises(DataLost, match=r"partition 1.*offset 90.*ended at 91.*onTopicDeleted"):
            latest(reader, start)


@pytest.mark.parametrize("partitions", [1, 4, 6])
def test_a_topic_that_was_made_again_is_read_from_its_beginning(
    broker: FakeBroker, partitions: int
) -> None:
    skewed(broker)
    reader = stream_reader(broker)
    start = latest(reader, reader.initialOffset())
    del broker.topics["orders"]
    for number in range(partitions):
        broker.topic("orders", "second").partition(number).publish([b"x"] * 2)
    with pytest.raises(DataLost, match="deleted and made again"):
        latest(reader, start)
    careless = stream_reader(broker, failOnDataLoss="false")
    end = latest(careless, start)
    again = {number: [0, 1] for number in range(partitions)}
    assert read(careless, careless.partitions(start, end)) == again


# --- an extended topic: keys are headers, and headers have a bound ---


FIRST = np.array([True, False, True, True])


def rows(**columns: pa.Array) -> pa.RecordBatch:
    return message_columns({"body": pa.array([b"a", b"b", b"c", b"d"]), **columns})


def test_a_key_is_a_header() -> None:
    keys = pa.array(["k", "other topic", 'a "ß"\n', None])
    found = with_headers(rows(key=keys), FIRST)
    wanted = [b'{"key":"k"}', None, '{"key":"a \\"ß\\"\\n"}'.encode(), None]
    assert found.column("headers").to_pylist() == wanted
    assert found.column("key").to_pylist()[0] == b"k"


def test_headers_of_its_own_stay() -> None:
    headers = pa.array(['{"x":"1"}', None, None, '{"key":"y"}'])
    found = with_headers(rows(key=pa.array(["k"] * 4), headers=headers), FIRST)
    assert found.column("headers").to_pylist() == [
        b'{"x":"1"}', None, b'{"key":"k"}', b'{"key":"y"}',
    ]  # fmt: skip


def test_a_key_that_is_no_text_is_a_key_alone() -> None:
    found = with_headers(rows(key=pa.array([b"\xff", b"x", None, None])), FIRST)
    assert found.column("headers").null_count == 4
    assert with_headers(rows(), FIRST).schema.names == ["body"]


def test_headers_have_a_bound() -> None:
    fits = '{"a":"' + "x" * (limits.HEADERS_BYTES_MAX - 8) + '"}'
    headers = pa.array([fits, fits + " ", fits + " ", None])
    with pytest.raises(BadRow, match="65536 bytes of headers: an extended topic has at") as caught:
        with_headers(rows(headers=headers), FIRST)
    assert caught.value.indexes == [2]
    assert with_headers(rows(headers=headers), FIRST & False).num_rows == 4
