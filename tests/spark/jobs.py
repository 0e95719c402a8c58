"""Programs that the cluster's tests hand to another Python: `jobs.py batch URL`, `connect PORT URL
DIRECTORY`. Each prints one line of JSON. Nothing of ours is imported before the session is there:
with --py-files it comes with the session."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    import pyarrow as pa


def whence(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Where a task found the package, and which kernel it runs."""
    import pyarrow as pa

    import penstock
    from penstock.kernel import crc32c

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"file": [penstock.__file__], "kernel": [crc32c.__module__]})


def source(reader: Any, url: str) -> Any:
    return reader.format("penstock").option("url", url).option("subscribe", "orders")


def batch(url: str) -> dict[str, Any]:
    spark = SparkSession.builder.getOrCreate()
    import penstock.spark

    penstock.spark.register(spark)
    frame = source(spark.read, url).option("minPartitions", "4").load()
    tasks = frame.mapInArrow(whence, "file string, kernel string").distinct().collect()
    return {"rows": frame.count(), "tasks": [row.asDict() for row in tasks]}


def connect(port: str, url: str, directory: str) -> dict[str, Any]:
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    import penstock.spark
    from penstock.spark.functions import register_functions

    penstock.spark.register(spark)
    register_functions(spark)
    frame = source(spark.read, url).load()
    timed = frame.selectExpr("count(guid_time(id))").collect()[0][0]
    query = (
        source(spark.readStream, url)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{directory}/data")
    )
    query.awaitTermination(240)
    streamed = spark.read.parquet(f"{directory}/data")
    found = {"rows": frame.count(), "timed": timed, "streamed": streamed.count()}
    return {**found, "client": type(spark).__module__}


if __name__ == "__main__":
    work = {"batch": batch, "connect": connect}[sys.argv[1]]
    print(json.dumps(work(*sys.argv[2:])))
