"""Data that a query counts on and that is not there, with a real nsqd: each case is a clear error
and nothing is stepped over in silence; with failOnDataLoss=false it goes on, and says so."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2e.daemon import Daemon
from penstock.errors import ConfigError, DataLost
from penstock.spark.source import StreamReader

from .fakebroker import FakeBroker
from .queries import Stream, batch, batch_sizes
from .realnsqd import Nsqd, bodies, until
from .test_reader import batch_reader, read, stream_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
LARGE = [b"%05d" % number + bytes(20_000).replace(b"\0", b"x") for number in range(3)]
CARELESS = {"failOnDataLoss": "false"}


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[Nsqd]:
    """Retention takes a segment as soon as its channel is through with it."""
    flags = ["--segment-bytes=65536", "--retain-age=0", "--retain-bytes=0"]
    with Daemon(tmp_path / "nsqd", *flags) as daemon:
        daemon.post("/topic/create?topic=orders")
        daemon.post("/channel/create?topic=orders&channel=c")
        yield Nsqd(daemon)


def publish_segments(nsqd: Nsqd, count: int) -> None:
    """One after the other of three messages each; the last stays, as it is written to."""
    for _ in range(count):
        nsqd.publish("orders", LARGE)


def forget(nsqd: Nsqd) -> int:
    """Let retention run. Returns the earliest offset that is left."""
    before = earliest(nsqd)
    nsqd.daemon.post("/channel/empty?topic=orders&channel=c")
    until(lambda: earliest(nsqd) > before)
    return earliest(nsqd)


def earliest(nsqd: Nsqd) -> int:
    spans = nsqd.spans("orders")
    assert spans is not None
    return spans.partitions[0].earliest


def damage(nsqd: Nsqd, body: bytes) -> None:
    """Flip a bit of this message on the disk."""
    directory = nsqd.daemon.data_path / "topics" / "orders" / "0"
    for path in directory.glob("[0-9]*.log"):
        at = path.read_bytes().find(body)
        if at >= 0:
            fd = os.open(path, os.O_RDWR)
            os.pwrite(fd, bytes([body[0] ^ 1]), at)
            os.close(fd)
            return
    raise AssertionError(f"{body!r} is nowhere")


def both_ways(
    nsqd: Nsqd, tasks: Any, left: list[int], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What tasks that were planned before now find: an error, or what is left and a word."""
    with pytest.raises(DataLost, match=reason):
        read(batch_reader(nsqd), *tasks)
    with caplog.at_level(logging.WARNING):
        assert read(batch_reader(nsqd, **CARELESS), *tasks) == left
    assert "failOnDataLoss is false" in caplog.text


# --- retention overtakes a reader ---


@pytest.mark.spark
def test_retention_overtakes_a_stream(spark: SparkSession, nsqd: Nsqd, tmp_path: Path) -> None:
    publish_segments(nsqd, 1)
    stream = Stream(spark, nsqd, tmp_path / "stream")
    assert batch_sizes(stream.run()) == [3]
    publish_segments(nsqd, 4)
    first = forget(nsqd)
    assert first > 3
    with pytest.raises(Exception, match=rf"offsets 3 to {first - 1} are gone"):
        stream.run()
    assert [offset for _, offset in stream.rows()] == [0, 1, 2]
    stream.options |= CARELESS
    stream.run()
    assert [offset for _, offset in stream.rows()] == [0, 1, 2, *range(first, 15)]


# --- a topic that was deleted and made anew ---


# --- a partition that is hurt in the middle ---


@pytest.mark.spark
def test_a_hurt_batch(spark: SparkSession, nsqd: Nsqd, caplog: pytest.LogCaptureFixture) -> None:
    for first in (b"before", b"in the middle", b"behind"):
        nsqd.publish("orders", [first, *bodies(9)])
    damage(nsqd, b"in the middle")
    reason = r"orders.*offsets 10 to 19 can't be read: LOG_DAMAGED"
    sound = [*range(10), *range(20, 30)]
    both_ways(nsqd, batch_reader(nsqd).partitions(), sound, reason, caplog)
    with pytest.raises(Exception, match=reason):
        batch(spark, nsqd).count()
    rows = batch(spark, nsqd, **CARELESS).collect()
    assert sorted(row.offset for row in rows) == sound
    within = {"startingOffsets": '{"orders":{"0":20}}'}
    assert batch(spark, nsqd, **within).count() == 10


# --- a schema that does not fit ---


@pytest.mark.spark
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("offset string", "offset string.*its type is bigint"),
        ("offset bigint, price double", "price.*the columns are topic, partition, offset"),
    ],
)
def test_a_schema_that_does_not_fit(
    spark: SparkSession, nsqd: Nsqd, schema: str, reason: str
) -> None:
    nsqd.publish("orders", bodies(3))
    with pytest.raises(Exception, match=reason):
        batch(spark, nsqd, schema).count()


# --- a checkpoint of another topic ---


@pytest.mark.spark
def test_a_checkpoint_of_another_topic(spark: SparkSession, nsqd: Nsqd, tmp_path: Path) -> None:
    """Never a matter of failOnDataLoss: this query would begin where nobody wanted it to."""
    nsqd.publish("orders", bodies(3))
    nsqd.publish("payments", bodies(9))
    stream = Stream(spark, nsqd, tmp_path / "stream")
    stream.run()
    stream.options |= {"subscribe": "payments", **CARELESS}
    with pytest.raises(Exception, match=r"reads orders.*payments.*checkpoint of its own"):
        stream.run()
    assert stream.rows() == [("orders", offset) for offset in range(3)]


def test_a_topic_that_the_query_leaves_out(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.topic("orders").publish([b"x"] * 4)
    broker.topic("payments").publish([b"x"] * 5)
    both = stream_reader(broker, subscribe="orders,payments")
    start = both.latestOffset(both.initialOffset(), both.getDefaultReadLimit())
    limit = both.getDefaultReadLimit()
    with pytest.raises(DataLost, match=r"payments.*does not read it any more.*offset 5"):
        stream_reader(broker).latestOffset(start, limit)
    end = stream_reader(broker, **CARELESS).latestOffset(start, limit)
    assert list(end["topics"]) == ["orders"]
    assert "does not read it any more" in caplog.text
    del broker.topics["payments"]
    with pytest.raises(DataLost, match=r"payments.*the topic is gone"):
        stream_reader(broker).latestOffset(start, limit)
    with pytest.raises(ConfigError, match="needs a checkpoint of its own"):
        stream_reader(broker, subscribe="payments").latestOffset(
            stream_reader(broker).latestOffset({"version": 1, "topics": {}}, limit), limit
        )


# --- a topic that ends ---


def ended(broker: FakeBroker, name: str, at: int) -> None:
    broker.ended[name] = {broker.topics.pop(name).identity: at}


def begun(broker: FakeBroker) -> tuple[StreamReader, dict[str, Any]]:
    """Over two topics, and how far it is: at the end of both."""
    for name in ("orders", "payments"):
        broker.topic(name).publish([b"x"] * 4)
    reader = stream_reader(broker, subscribe="", subscribePattern=".*")
    start = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    return reader, start


def test_a_topic_that_was_read_to_its_end_is_no_loss(broker: FakeBroker) -> None:
    reader, start = begun(broker)
    ended(broker, "payments", 4)
    broker.topic("orders").publish([b"x"])
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end["topics"] == {"orders": {"identity": "first", "partitions": {"0": 5}}}
    assert read(reader, *reader.partitions(start, end)) == [4]


@pytest.mark.parametrize("known", [True, False])
def test_a_topic_that_was_not_read_to_its_end_is_one(
    broker: FakeBroker, known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is one whose end nobody knows: nsqd was started since."""
    reader, start = begun(broker)
    ended(broker, "payments", 6)
    broker.ended = broker.ended if known else {}
    limit = reader.getDefaultReadLimit()
    with pytest.raises(DataLost, match=r"payments.*the topic is gone, and was read to offset 4"):
        reader.latestOffset(start, limit)
    ignoring = stream_reader(broker, subscribe="", subscribePattern=".*", onTopicDeleted="ignore")
    assert list(ignoring.latestOffset(start, limit)["topics"]) == ["orders"]
    assert "deleted topics are ignored" in caplog.text


def test_a_topic_that_is_back_is_one_unless_it_is_wanted(broker: FakeBroker) -> None:
    reader, start = begun(broker)
    ended(broker, "payments", 4)
    broker.topic("payments", "second").publish([b"x"] * 2)
    limit = reader.getDefaultReadLimit()
    with pytest.raises(DataLost, match=r"payments.*deleted and made again"):
        reader.latestOffset(start, limit)
    ignoring = stream_reader(broker, subscribe="", subscribePattern=".*", onTopicDeleted="ignore")
    end = ignoring.latestOffset(start, limit)
    assert end["topics"]["payments"] == {"identity": "second", "partitions": {"0": 2}}
    assert read(ignoring, *ignoring.partitions(start, end)) == [0, 1]


def test_an_ephemeral_topic_comes_and_goes(broker: FakeBroker) -> None:
    name = "live#ephemeral"
    broker.topic(name).publish([b"x"] * 4)
    reader, start = begun(broker)
    limit = reader.getDefaultReadLimit()
    del broker.topics[name]
    gone = reader.latestOffset(start, limit)
    assert name not in gone["topics"]
    broker.topic(name, "second").publish([b"x"] * 2)
    for before in (start, gone):
        end = reader.latestOffset(before, limit)
        assert read(reader, *reader.partitions(before, end)) == [0, 1]


def test_a_topic_that_ends_under_a_batch(broker: FakeBroker) -> None:
    """What the batch was to read of it is lost; a batch that reads nothing of it goes on."""
    reader, start = begun(broker)
    for name in ("orders", "payments"):
        broker.topic(name).publish([b"x"])
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    ended(broker, "payments", 5)
    with pytest.raises(DataLost, match=r"payments.*the topic is gone"):
        reader.partitions(start, end)
    end["topics"]["payments"]["partitions"]["0"] = 4
    assert read(reader, *reader.partitions(start, end)) == [4]
