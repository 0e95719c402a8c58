"""The sink as Spark calls it, over a fake broker: modes, versions, repeats and refusals."""

import itertools
import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.kernel import Section, decode_bodies, decode_sections

from .fakebroker import FakeBroker
from .patience import patiently
from .queries import WAIT_S_MAX

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_sink.py"


def write(frame: DataFrame, broker: FakeBroker, mode: str = "append", **options: Any) -> None:
    frame.write.format("penstock").option("url", broker.url).options(**options).mode(mode).save()


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr("string(id) AS body")


def bodies(broker: FakeBroker, topic: str) -> list[bytes]:
    return [body for data in broker.topics[topic].batches for body in decode_bodies(data, 0)]


class Copy:
    """A query from one topic to another; each run goes on from the checkpoint."""

    def __init__(self, spark: SparkSession, broker: FakeBroker, path: Path, **options: Any) -> None:
        self.spark, self.broker, self.path = spark, broker, path
        self.options = {"topic": "copy", **options}

    def run(self, mode: str = "append", rate: int = 100) -> StreamingQuery:
        return patiently(lambda: self._run(mode, rate))

    def _run(self, mode: str, rate: int) -> StreamingQuery:
        frame = (
            self.spark.readStream.format("penstock")
            .options(url=self.broker.url, subscribe="orders", startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", str(rate))
            .load()
        )
        if mode != "append":
            frame = frame.groupBy("topic").count().selectExpr("string(count) AS body")
        query = (
            frame.writeStream.format("penstock")
            .options(url=self.broker.url, checkpointLocation=str(self.path), **self.options)
            .outputMode(mode)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S_MAX), "it is still running"
        return query

    def forget_last(self, kind: str = "commits") -> None:
        """As if the driver had died before Spark wrote down that the batch is done."""
        last = max((self.path / kind).glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (self.path / kind / f".{last.name}.crc").unlink()


# --- batch ---


def test_a_write_is_one_commit(spark: SparkSession, broker: FakeBroker) -> None:
    write(numbers(spark, 1000), broker, topic="orders", stageBytes="1000")
    assert bodies(broker, "orders") == [b"%d" % n for n in range(1000)]
    commits = [path for _, path, _ in broker.requests if path == "/stage/commit"]
    assert len(commits) == 1
    assert len(broker.topics["orders"].batches) > 2  # blocks of both tasks, in their order
    write(numbers(spark, 10), broker, topic="orders")
    assert broker.topics["orders"].end == 1010


def test_a_version_is_written_once_for_each_topic(spark: SparkSession, broker: FakeBroker) -> None:
    for _ in range(2):
        for topic in ("orders", "bills"):
            write(numbers(spark, 10), broker, topic=topic, txnAppId="job", txnVersion="3")
    assert (broker.topics["orders"].end, broker.topics["bills"].end) == (10, 10)
    assert broker.stages == {}
    write(numbers(spark, 10), broker, topic="orders", txnAppId="job", txnVersion="4")
    assert broker.topics["orders"].end == 20


def with_a_big_row(spark: SparkSession) -> DataFrame:
    return numbers(spark, 1000).selectExpr(
        "CASE WHEN body = '700' THEN repeat('x', 101) ELSE body END AS body"
    )


def test_a_task_that_fails_drops_what_it_staged(spark: SparkSession, broker: FakeBroker) -> None:
    broker.message_bytes_max = 100
    with pytest.raises(Exception, match="row 700 of task 0 for topic orders: the body has 101"):
        write(with_a_big_row(spark).coalesce(1), broker, topic="orders", stageBytes="100")
    assert any(path.startswith("/stage/") for _, path, _ in broker.requests)
    assert (broker.topics, broker.stages) == ({}, {})


def rejected(path: Path) -> list[tuple[Any, ...]]:
    table = DeltaTable(str(path)).to_pyarrow_table(columns=["app", "version", "topic", "body"])
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_refused_rows_go_into_a_table_once(
    spark: SparkSession, broker: FakeBroker, tmp_path: Path
) -> None:
    """Also when the driver dies between the two commits, and when it does all of it again."""
    broker.message_bytes_max = 100
    given = {"topic": "orders", "txnAppId": "app", "txnVersion": "3"}
    given["rejectedTable"] = str(tmp_path / "rejected")
    with pytest.raises(Exception, match=r"1 rows or more can't be .* 0 may be") as caught:
        write(with_a_big_row(spark), broker, rejectedRowsMax="0", **given)
    assert "101 bytes" in str(caught.value)
    assert (broker.topics, rejected(tmp_path / "rejected")) == ({}, [])
    broker.refused = {"/stage/commit"}
    with pytest.raises(Exception, match="STAGE_NOT_FOUND"):
        write(with_a_big_row(spark), broker, **given)
    assert broker.topics == {}
    broker.refused = set()
    for _ in range(2):
        write(with_a_big_row(spark), broker, **given)
        assert bodies(broker, "orders") == [b"%d" % n for n in range(1000) if n != 700]
        assert rejected(tmp_path / "rejected") == [("app", 3, "orders", b"x" * 101)]


# --- streaming ---


def test_each_batch_is_a_version_of_the_query(
    spark: SparkSession, broker: FakeBroker, tmp_path: Path
) -> None:
    broker.topic("orders").publish([b"%d" % n for n in range(250)], 5_000)
    query = Copy(spark, broker, tmp_path).run()
    assert bodies(broker, "copy") == bodies(broker, "orders")
    assert broker.versions == {f"{query.id}/copy": 2}
    times = [decode_sections(b, 0)[Section.TIMESTAMP] for b in broker.topics["copy"].batches]
    assert set(itertools.chain(*(table.values() for table in times))) == {5_000}


def test_stages_say_for_which_batch_they_are(
    spark: SparkSession, broker: FakeBroker, tmp_path: Path
) -> None:
    for number in range(4):
        broker.topic("orders").publish([b"%d" % number] * 50)
    Copy(spark, broker, tmp_path / "checkpoint", stageBytes="100").run()
    write(numbers(spark, 10), broker, topic="two_tasks")
    tasks: set[str] = set()
    attempts: dict[tuple[str, str], set[str]] = {}
    for _, path, query in broker.requests:
        if path == "/stage":
            tasks.add(query["stage"][0].partition("-")[0])
            batch = query["app"][0], query["version"][0]
            attempts.setdefault(batch, set()).add(query["attempt"][0])
    committed = {(q["app"][0], q["version"][0]) for _, path, q in broker.requests if "com" in path}
    assert attempts.keys() == committed
    assert (len(committed), len(tasks)) == (3, 4)  # two batches of a task each, and one of two
    assert [len(one) for one in attempts.values()] == [1] * len(committed)


def test_a_batch_that_is_done_again_changes_nothing(
    spark: SparkSession, broker: FakeBroker, tmp_path: Path
) -> None:
    broker.topic("orders").publish([b"%d" % n for n in range(250)])
    copy = Copy(spark, broker, tmp_path / "checkpoint")
    copy.run()
    copy.forget_last()
    broker.topic("orders").publish([b"new"])
    copy.run()
    assert bodies(broker, "copy") == bodies(broker, "orders")
    assert broker.stages == {}  # what was staged again is dropped
    for kind in ("commits", "offsets") * 2:  # as in a backup
        copy.forget_last(kind)
    with pytest.raises(StreamingQueryException, match="older than the topic, which has batch 3 of"):
        copy.run(rate=1000)
    shutil.rmtree(tmp_path / "checkpoint")
    copy.run(rate=1000)  # another checkpoint is another query
    assert bodies(broker, "copy") == bodies(broker, "orders") * 2


def test_an_app_of_ones_own_outlives_the_checkpoint(
    spark: SparkSession, broker: FakeBroker, tmp_path: Path
) -> None:
    broker.topic("orders").publish([b"%d" % n for n in range(50)])
    for name in ("first", "second"):
        Copy(spark, broker, tmp_path / name, txnAppId="mine").run()
    assert bodies(broker, "copy") == bodies(broker, "orders")
    assert broker.versions == {"mine/copy": 0}


def test_the_example_counts_words(spark: SparkSession, broker: FakeBroker, tmp_path: Path) -> None:
    """It writes what changes, in foreachBatch, with a version of its own."""
    main = runpy.run_path(str(EXAMPLE))["main"]
    for line in (b"one two", b"two three two"):
        broker.topic("lines").publish([line])
        main(broker.url, "lines", "words", str(tmp_path))
    counts = [json.loads(body) for body in bodies(broker, "words")]
    assert sorted((each["word"], each["count"]) for each in counts[:2]) == [("one", 1), ("two", 1)]
    assert sorted((each["word"], each["count"]) for each in counts[2:]) == [
        ("three", 1),
        ("two", 3),
    ]
    assert list(broker.versions.values()) == [1]
