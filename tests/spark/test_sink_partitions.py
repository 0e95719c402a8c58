"""Writing into a topic of four partitions of a real nsqd: by key, by number, and spread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from e2e.daemon import Daemon
from penstock.kernel import Section, murmur3_32

from .inlogs import bodies_of, section_of
from .patience import patiently
from .realnsqd import WAIT_S_MAX, Nsqd

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]
COUNT = 4


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nsqd]:
    with Daemon(tmp_path_factory.mktemp("nsqd")) as daemon:
        yield Nsqd(daemon)


@pytest.fixture
def topic(nsqd: Nsqd, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name[:60]
    nsqd.daemon.post(f"/topic/create?topic={name}&partition_num={COUNT}")
    return name


def write(frame: DataFrame, nsqd: Nsqd, **options: Any) -> None:
    frame.write.format("penstock").option("url", nsqd.url).options(**options).mode("append").save()


def test_a_key_keeps_its_partition_and_its_order(
    spark: SparkSession, nsqd: Nsqd, topic: str
) -> None:
    """90 % of the rows have one key."""
    frame = spark.sql(
        "SELECT string(id) AS body, if(id % 10 > 0, 'many', concat('k', id % 7)) AS key"
        " FROM range(0, 2000, 1, 2)"
    )
    write(frame, nsqd, topic=topic, stageBytes="5000")
    nsqd.daemon.post(f"/pub?topic={topic}&key=many", b"published")
    keys = [b"many" if n % 10 else b"k%d" % (n % 7) for n in range(2000)]
    found = bodies_of(nsqd.url, topic)
    for number in range(COUNT):
        wanted = [b"%d" % n for n, key in enumerate(keys) if murmur3_32(key) % COUNT == number]
        if number == murmur3_32(b"many") % COUNT:
            assert len(wanted) >= 1800
            keys.append(b"many")
            wanted.append(b"published")
        assert found[number] == wanted
        stored = section_of(nsqd.url, topic, number, Section.KEY)
        assert stored == [keys[-1 if body == b"published" else int(body)] for body in wanted]


def test_headers_and_keys_of_an_extended_topic(
    spark: SparkSession, nsqd: Nsqd, tmp_path: Path
) -> None:
    nsqd.daemon.post("/topic/create?topic=ext&partition_num=4&extend=true")
    frame = spark.sql(
        """SELECT string(id) AS body, if(id = 1, '{"a" : "1"}', null) AS headers,"""
        " if(id < 3, 'k', null) AS key FROM range(0, 5, 1, 1)"
    )
    write(frame, nsqd, topic="ext")
    number = murmur3_32(b"k") % COUNT
    headers = section_of(nsqd.url, "ext", number, Section.HEADERS)
    assert headers == [b'{"key":"k"}', b'{"a" : "1"}', b'{"key":"k"}']
    table = str(tmp_path / "rejected")
    wrong = spark.sql("SELECT 'x' AS body, '[1]' AS headers")
    write(wrong, nsqd, topic="ext", rejectedTable=table, txnAppId="app", txnVersion="1")
    (rejected,) = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert rejected["headers"] == [{"key": None, "value": b"[1]"}]
    assert rejected["reason"].startswith("the headers are no JSON object of texts")


def test_a_topic_that_grew_is_used_whole(spark: SparkSession, nsqd: Nsqd, topic: str) -> None:
    """Keys stay where they are, and rows without one go to the new partitions too."""
    frame = spark.sql("SELECT string(id) AS body, concat('k', id) AS key FROM range(0, 40, 1, 1)")
    write(frame, nsqd, topic=topic)
    before = bodies_of(nsqd.url, topic)
    nsqd.daemon.post(f"/topic/partition/expand?topic={topic}&partition_num=6")
    write(frame, nsqd, topic=topic)
    assert bodies_of(nsqd.url, topic) == [*(each * 2 for each in before), [], []]
    rows = spark.sql("SELECT repeat(string(id), 100) AS body FROM range(10, 99, 1, 1)")
    write(rows, nsqd, topic=topic, stageBytes="1500")
    after = bodies_of(nsqd.url, topic)
    assert min(len(each) for each in after[COUNT:]) > 0
    assert sum(map(len, after)) == 80 + 89


def test_a_column_names_the_partition(
    spark: SparkSession, nsqd: Nsqd, topic: str, tmp_path: Path
) -> None:
    """90 % of the rows name one, and one row names what is not there."""
    frame = spark.sql(
        "SELECT string(id) AS body, int(CASE WHEN id = 7 THEN 9 WHEN id % 10 > 0 THEN 2"
        " ELSE id % 4 END) AS partition FROM range(0, 500, 1, 2)"
    )
    with pytest.raises(Exception, match=rf"row 7 of task 0 for topic {topic}: there is no part"):
        write(frame, nsqd, topic=topic)
    assert bodies_of(nsqd.url, topic) == [[], [], [], []]
    table = str(tmp_path / "rejected")
    write(frame, nsqd, topic=topic, rejectedTable=table, txnAppId="app", txnVersion="1")
    numbers = [2 if n % 10 else n % 4 for n in range(500)]
    numbers[7] = 9
    assert bodies_of(nsqd.url, topic) == [
        [b"%d" % n for n in range(500) if numbers[n] == number] for number in range(COUNT)
    ]
    (rejected,) = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert (rejected["body"], rejected["partition"]) == (b"7", 9)
    assert rejected["reason"] == "there is no partition 9"


def test_rows_with_neither_are_spread(spark: SparkSession, nsqd: Nsqd, topic: str) -> None:
    """A stream of small batches, of which the last is done again: each is one block, and the blocks
    take turns."""
    nsqd.publish("numbers", [b"%d" % n for n in range(1000)])

    def run(path: Path) -> None:
        frame = (
            spark.readStream.format("penstock")
            .options(url=nsqd.url, subscribe="numbers", startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", "100")
            .load()
            .select("body")
        )
        query = (
            frame.writeStream.format("penstock")
            .options(url=nsqd.url, topic=topic, checkpointLocation=str(path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S_MAX), "it is still running"

    path = nsqd.daemon.data_path.parent / "checkpoint"
    patiently(lambda: run(path))
    last = max((path / "commits").glob("[0-9]*"), key=lambda one: int(one.name))
    last.unlink()
    (path / "commits" / f".{last.name}.crc").unlink()
    patiently(lambda: run(path))
    found = bodies_of(nsqd.url, topic)
    numbers = [[int(body) for body in each] for each in found]
    assert sorted(n for each in numbers for n in each) == list(range(1000))
    assert all(each == sorted(each) for each in numbers)
    assert sorted(len({n // 100 for n in each}) for each in numbers) == [2, 2, 3, 3]
