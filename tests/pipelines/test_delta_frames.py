"""Tables in an object store: what Spark reads of them, and that nobody sees their options."""

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from penstock.errors import ConfigError, LakeFailed, TableUnreadable
from penstock.pipelines.delta_frames import Reading, frame_of
from penstock.pipelines.delta_reader import LakeTable, dataset_of, is_delta
from penstock.pipelines.outages import outage_of
from penstock.pipelines.settings import options_of, options_of_file
from penstock.spark.delta_table import TableLocation

from .store import REGION, SECRET, Store
from .test_delta_reader import rows

EVERY = pc.scalar(True)


def made(bucket: Store, name: str, *parts: pa.Table) -> str:
    for part in parts:
        write_deltalake(
            bucket.table(name),
            part,
            mode="append",
            partition_by=["topic", "date"],
            storage_options=bucket.options,
        )
    return bucket.table(name)


def test_a_column_that_is_not_asked_for_is_not_read(tmp_path: Path) -> None:
    """Its bytes in the file are overwritten, so that who reads it fails."""
    path = tmp_path / "one.parquet"
    pq.write_table(pa.table({"offset": [1, 2], "body": [b"x" * 99, b"y" * 99]}), path)
    chunk = pq.read_metadata(path).row_group(0).column(1)
    assert chunk.path_in_schema == "body"
    with path.open("r+b") as file:
        file.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
        file.write(b"\xff" * chunk.total_compressed_size)

    kinds = {"topic": pa.string(), "offset": pa.int64(), "body": pa.binary()}

    def read(*columns: str) -> list[dict[str, object]]:
        reading = Reading(TableLocation(str(tmp_path), {}), pa.schema(kinds), columns, EVERY)
        found = reading.rows(str(path), {"topic": "a"})  # which is not asked for, either
        return [row for batch in found for row in batch.to_pylist()]

    assert read("offset") == [{"offset": 1}, {"offset": 2}]
    with pytest.raises(OSError, match=r"(?i)page|thrift|deserial|corrupt"):
        read("offset", "body")


def test_missing_columns_come_from_the_partition_or_are_null(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    pq.write_table(pa.table({"offset": [1, 2]}), path)
    columns = {"topic": pa.string(), "date": pa.date32(), "offset": pa.int64(), "key": pa.binary()}
    reading = Reading(TableLocation(str(tmp_path), {}), pa.schema(columns), tuple(columns), EVERY)
    day = dt.date(2026, 1, 31)
    (batch,) = reading.rows(str(path), {"topic": None, "date": day})
    assert batch.schema.equals(reading.schema)
    assert batch.to_pylist() == [
        {"topic": None, "date": day, "offset": n, "key": None} for n in (1, 2)
    ]


def test_plans_show_no_option(spark: SparkSession, bucket: Store) -> None:
    table = LakeTable(made(bucket, "plans", rows("a", 0, 2)), bucket.options)
    frame = frame_of(spark, table.location, table.dataset())
    assert frame.count() == 2
    plan = frame._jdf.queryExecution().toString()
    assert "mapinarrow" in plan.lower()
    assert SECRET not in plan
    assert REGION not in plan


def test_a_store_that_is_away_is_an_outage_and_one_without_the_table_none(bucket: Store) -> None:
    with pytest.raises(TableUnreadable, match="no Delta table"):
        dataset_of(bucket.table("nothing"), bucket.options)
    options = {**bucket.options, "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "max_retries": "0"}
    with pytest.raises(LakeFailed) as met:
        is_delta(bucket.table("t"), options)
    assert outage_of(met.value) == "the table's store"
    with pytest.raises(LakeFailed) as met:
        LakeTable(bucket.table("t"), options=options)
    assert outage_of(met.value) == "the table's store"


def test_options_are_read_and_never_repeated(tmp_path: Path) -> None:
    assert options_of("x", ["A=b", "C=d=e", "A=f"]) == {"A": "f", "C": "d=e"}
    with pytest.raises(ConfigError) as met:
        options_of("storage-option", [SECRET])
    assert SECRET not in str(met.value)
    assert "AWS_REGION=eu-west-1" in str(met.value)
    path = tmp_path / "options"
    path.write_text("# of the lake\n\nA=b\nAWS_REGION = eu\n")
    assert options_of_file(str(path)) == {"A": "b", "AWS_REGION": "eu"}
    path.write_text(f"{SECRET}\n")
    with pytest.raises(ConfigError) as met:
        options_of_file(str(path))
    assert SECRET not in str(met.value)
    assert str(path) in str(met.value)
    with pytest.raises(ConfigError, match="can't be read"):
        options_of_file(str(tmp_path / "none"))


@pytest.mark.long
def test_sql_takes_the_options_of_a_file_and_of_the_environment(
    bucket: Store, tmp_path: Path
) -> None:
    path = made(bucket, "asked", rows("a", 0, 3))
    options = bucket.options
    hidden = {"AWS_SECRET_ACCESS_KEY": options.pop("AWS_SECRET_ACCESS_KEY")}
    given = tmp_path / "options"
    given.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "penstock.tools.main", "sql", "--json"),
            *("--table", f"t={path}", "--storage-options-file", str(given), "--url", "127.0.0.1:1"),
            "select count(*) as n, max(\"offset\") as most from t where topic = 'a'",
        ],
        env={**os.environ, **hidden},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"n": 3, "most": 2}
