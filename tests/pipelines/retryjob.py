"""Tasks that fail, in an embedded session as a pipeline opens it. Prints a line of JSON: how often
the task was tried that fails so many times.

`retryjob.py DIRECTORY JAVA_OPTIONS`
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.pipelines import archive
from penstock.pipelines.session import open_for
from penstock.pipelines.settings import defaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

ALWAYS = 99


def failing(
    directory: str, times: int, how: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task that leaves a mark when it is tried, and fails so many times."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tempfile.NamedTemporaryFile(dir=directory, delete=False):
            pass
        if len(os.listdir(directory)) <= times:
            if how == "dies":
                os._exit(1)
            raise OSError("the disk is away for a moment")
        yield from batches

    return work


def tried(spark: SparkSession, directory: Path, times: int, how: str) -> tuple[int, int]:
    """(rows that came out, or -1; how often it was tried)."""
    directory.mkdir()
    frame = spark.range(0, 10, numPartitions=1).mapInArrow(
        failing(str(directory), times, how), "id bigint"
    )
    try:
        rows = frame.count()
    except Exception:  # whatever Spark makes of it
        rows = -1
    return rows, len(list(directory.iterdir()))


def main(path: Path, java: str) -> None:
    conf = ("spark.driver.memory=512m", f"spark.driver.extraJavaOptions={java}")
    settings = defaults(
        archive.SETTINGS, topics=("a",), table=str(path), conf=conf, **{"spark-log": "off"}
    )
    with open_for(archive.PIPELINE, settings) as spark:
        cases = {"raises once": 1, "dies once": 1, "raises always": ALWAYS}
        found = {
            name: tried(spark, path / name, times, name.partition(" ")[0])
            for name, times in cases.items()
        }
        print(json.dumps({"master": spark.sparkContext.master, **found}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
