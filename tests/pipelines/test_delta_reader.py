"""Delta tables read by Spark without Delta's jars: values, types and skipped files."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ConfigError, LakeFailed, TableUnreadable
from penstock.pipelines.delta_frames import frame_of
from penstock.pipelines.delta_reader import (
    Among,
    ColumnSpan,
    Condition,
    LakeTable,
    dataset_of,
    pruned,
    tables_below,
)
from penstock.spark.delta_table import TableLocation

# Texts that a guess at types would spoil, and names that a file system or a URL can't take.
AWKWARD = ("0123", "1e3", "true", "null", "a.b-c#ephemeral", "2026-01-01", "A_b", "a_b")
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
TYPES = [
    ("topic", "string"),
    ("date", "date"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("attempts", "smallint"),
    ("body", "binary"),
]
DAY = dt.date(2026, 11, 20)


def instant(second: int, day: int = 20) -> dt.datetime:
    return dt.datetime(2026, 11, day, 1, 2, second, 456789, tzinfo=dt.UTC)


def rows(topic: str, first: int, count: int = 5, day: int = 20) -> pa.Table:
    offsets = range(first, first + count)
    return pa.table(
        {
            "topic": [topic] * count,
            "date": pa.array([dt.date(2026, 11, day)] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array(
                [instant(offset - first, day) for offset in offsets], pa.timestamp("us", tz="UTC")
            ),
            "attempts": pa.array([0] * count, pa.int16()),
            "body": pa.array([b"%d" % offset for offset in offsets]),
        }
    )


def append(path: Path, table: pa.Table, **more: Any) -> None:
    write_deltalake(
        str(path), table, mode="append", partition_by=["topic", "date"], target_file_size=None,
        **more,
    )  # fmt: skip


def table_of(path: Path, *parts: pa.Table) -> LakeTable:
    for part in parts:
        append(path, part)
    return LakeTable(str(path))


def read(spark: SparkSession, path: Path, *conditions: Condition) -> DataFrame:
    return frame_of(spark, TableLocation(str(path), {}), dataset_of(str(path)), conditions)


def test_partition_columns_come_back_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    table_of(tmp_path / "t", *(rows(topic, 0) for topic in (*AWKWARD, NULL_DIRECTORY)))
    frame = read(spark, tmp_path / "t")
    assert frame.dtypes == TYPES
    found = {tuple(row) for row in frame.groupBy("topic", "date").count().collect()}
    assert found == {(topic, DAY, 5) for topic in (*AWKWARD, NULL_DIRECTORY)}
    assert frame.where("topic = '0123'").count() == 5


def test_directories_that_do_not_tell_are_no_obstacle(spark: SparkSession, tmp_path: Path) -> None:
    """The log's partition values count, wherever the files are."""
    path = tmp_path / "t"
    append(path, rows("orders", 0))
    append(path, rows("a#ephemeral", 0))
    log = path / "_delta_log"
    for entry in sorted(log.glob("*.json")):
        lines = [json.loads(line) for line in entry.read_text().splitlines()]
        for line in lines:
            if "add" in line and line["add"]["partitionValues"]["topic"] == "a#ephemeral":
                (old,) = path.glob("topic=a%23ephemeral/*/*.parquet")
                old.rename(path / "moved.parquet")
                line["add"]["path"] = "moved.parquet"
        entry.write_text("\n".join(map(json.dumps, lines)) + "\n")
    frame = read(spark, path)
    found = {(row.topic, row.date, row.offset) for row in frame.collect()}
    assert found == {(topic, DAY, n) for topic in ("orders", "a#ephemeral") for n in range(5)}


def test_a_path_is_no_pattern(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "plain", rows("orders", 0))
    awkward = tmp_path / "a b#c{d}[e]*?"
    (tmp_path / "plain").rename(awkward)
    assert read(spark, awkward).count() == 5
    pq.write_table(rows("orders", 0), awkward / "x.parquet")
    assert read(spark, awkward / "x.parquet").count() == 5


def test_conditions_hold_for_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table_of(path, rows("orders", 0), rows("orders", 5, day=21), rows("bills", 0))
    frame = read(spark, path, Among("topic", ("orders",)), ColumnSpan("offset", 3, 7))
    assert [row.offset for row in frame.orderBy("offset").collect()] == [3, 4, 5, 6]
    plan = frame._jdf.queryExecution().toString()  # by Spark's own reader, which is faster
    assert "mapinarrow" not in plan.lower()
    assert read(spark, path, ColumnSpan("offset", 100)).collect() == []
    assert read(spark, path, Among("partition", (0,)), Among("topic", ("bills",))).count() == 5


def test_files_that_can_not_hold_such_rows_are_skipped(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", *(rows("orders", n * 5, day=20 + n) for n in range(4)))

    def opened(*conditions: Condition) -> list[int]:
        firsts = {table.location.full(file.path): file.least["offset"] for file in table.files()}
        return sorted(firsts[path] for path in pruned(table.dataset(), conditions).files)

    assert opened() == [0, 5, 10, 15]
    assert opened(ColumnSpan("offset", 4, 6)) == [0, 5]
    assert opened(ColumnSpan("offset", 5, 10)) == [5]
    assert opened(ColumnSpan("offset", 20)) == []
    assert opened(Among("topic", ("bills",))) == []
    assert opened(Among("offset", (7, 99))) == [5]
    assert opened(ColumnSpan("date", dt.date(2026, 11, 22))) == [10, 15]
    assert opened(ColumnSpan("timestamp", instant(2, 21), instant(9, 21))) == [5]
    assert opened(Among("partition", (0,))) == [0, 5, 10, 15]
    assert opened(Among("attempts", (1,)), Among("body", (b"1",))) == []


def test_a_time_within_the_last_millisecond_of_a_file_is_not_skipped(tmp_path: Path) -> None:
    """The log cuts times off at the millisecond; the last row here is 789 microseconds later."""
    data = table_of(tmp_path / "t", rows("orders", 0)).dataset()
    assert len(pruned(data, [ColumnSpan("timestamp", instant(4))]).files) == 1
    assert pruned(data, [ColumnSpan("timestamp", instant(5))]).files == []


def test_unsupported_table_features_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, rows("orders", 0), configuration={"delta.appendOnly": "false"})
    entry = path / "_delta_log" / f"{0:020}.json"
    text = entry.read_text()
    for feature in ("deletionVectors", "columnMapping"):
        entry.write_text("\n".join(_with_feature(line, feature) for line in text.splitlines()))
        with pytest.raises(LakeFailed, match=feature):
            LakeTable(str(path))
    entry.write_text(text)
    assert LakeTable(str(path)).delta.version() == 0


def _with_feature(line: str, feature: str) -> str:
    document = json.loads(line)
    if "protocol" in document:
        document["protocol"] = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": [feature],
            "writerFeatures": [feature],
        }
    if "metaData" in document and feature == "columnMapping":
        document["metaData"]["configuration"]["delta.columnMapping.mode"] = "id"
    return json.dumps(document)


def test_a_path_without_a_table_says_so(tmp_path: Path) -> None:
    with pytest.raises(TableUnreadable, match=r"nowhere: there is no table$"):
        dataset_of(str(tmp_path / "nowhere"))


def test_the_tables_of_a_directory(tmp_path: Path) -> None:
    append(tmp_path / "archive", rows("orders", 0))
    (tmp_path / "plain").mkdir()
    pq.write_table(rows("orders", 0), tmp_path / "plain" / "x.parquet")
    (tmp_path / "empty").mkdir()
    (tmp_path / "_hidden").mkdir()
    pq.write_table(rows("orders", 0), tmp_path / "_hidden" / "x.parquet")
    assert list(tables_below(str(tmp_path))) == ["archive", "plain"]
    assert tables_below(str(tmp_path / "archive")) == {"archive": str(tmp_path / "archive")}
    with pytest.raises(ConfigError, match="directory"):
        tables_below(str(tmp_path / "nothing"))
