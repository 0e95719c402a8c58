"""Delta tables, and directories of Parquet, as frames of Spark.

Spark reads the files of this machine with its own vectorised reader: bodies come in half the time,
and columns that a query does not use stay in the file. Where the names of directories follow Hive's
convention, as delta-rs's and ours do, it takes the partition values from there, under the types of
the table's schema, so a topic called "0123" stays a text.

All other files are read by Spark's tasks, through pyarrow and delta-rs: those of an object store,
which Spark knows not without jars of Hadoop's, and those whose partition values are in the log
alone. A store's options go to the tasks inside the function that Spark runs there. They are not
among the options of a data source, which Spark shows in plans, and plans end up in logs. A file is
read by one task, a bounded piece of a row group at a time. Columns that it lacks, as they were
added later, are null.

Columns that are not asked for are not read: Spark does not look into the function, so they have to
be named. Conditions hold for files and for rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from penstock import limits
from penstock.errors import ConfigError
from penstock.pipelines.delta_reader import Condition, constants, expression
from penstock.spark.delta_table import NULL_DIRECTORY, TableLocation, partition_text

if TYPE_CHECKING:
    from penstock.pipelines.topic_logs import Topics

_PARQUET = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")  # as Spark writes times
_AS_IT_IS = {"__globPaths__": "false"}  # a path is no pattern, whatever is in it
BROKER = "broker"


def frame_of(
    spark: SparkSession,
    location: TableLocation,
    data: ds.Dataset,
    conditions: Sequence[Condition] = (),
    columns: Collection[str] | None = None,
) -> DataFrame:
    """The rows of an existing dataset that meet all conditions, with the columns in their order:
    all, or those of `columns` that it has, and those of the conditions."""
    wanted = {*(data.schema.names if columns is None else columns)}
    wanted |= {condition.column for condition in conditions}
    chosen = pa.schema([field for field in data.schema if field.name in wanted])
    schema = from_arrow_schema(chosen, prefer_timestamp_ntz=False)
    types = to_arrow_schema(schema, timezone="UTC")
    scanned = pa.schema([types.field(f.name) if f.name in wanted else f for f in data.schema])
    # Plain Parquet may have times of another type, and nothing to skip files by.
    reported = [
        one
        for one in conditions
        if data.schema.field(one.column).type == scanned.field(one.column).type
    ]
    files = {
        fragment.path: ds.get_partition_keys(fragment.partition_expression)
        for fragment in data.get_fragments(expression(reported))
    }
    named = [path for path, partition in files.items() if _is_named(location, path, partition)]
    others = [(path, pickle.dumps(files[path])) for path in files.keys() - named]
    frames = []
    if named:
        met = [condition.met(F.col(f"`{condition.column}`")) for condition in conditions]
        reader = spark.read.schema(schema).options(**_AS_IT_IS)
        reader = reader if named == [location.root] else reader.option("basePath", location.root)
        read = reader.parquet(*named).select(*(f"`{name}`" for name in schema.names))
        frames.append(reduce(DataFrame.where, met, read))
    if others:
        reading = Reading(location, scanned, tuple(types.names), expression(conditions))
        listed = spark.sparkContext.parallelize(others, min(len(others), limits.LAKE_READ_TASKS))
        paths = spark.createDataFrame(listed, "path string, partition binary")
        frames.append(paths.mapInArrow(reading, schema))
    return reduce(DataFrame.union, frames) if frames else spark.createDataFrame([], schema)


def _is_named(location: TableLocation, path: str, partition: Mapping[str, Any]) -> bool:
    """Whether Spark finds the file, and its partition values in the names of its directories."""
    root = location.local_path
    if root is None or not Path(path).is_relative_to(root):
        return False
    texts = {name: partition_text(value) for name, value in partition.items()}
    if {None, NULL_DIRECTORY} & set(texts.values()):  # a topic may be called so
        return False
    found = map(unquote, Path(path).relative_to(root).parent.parts)
    return set(found) == {f"{name}={text}" for name, text in texts.items()}


# --- in tasks ---


@dataclass(frozen=True)
class Reading:
    location: TableLocation
    schema: pa.Schema  # of the table
    columns: tuple[str, ...]
    condition: ds.Expression

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from self.rows(row["path"], pickle.loads(row["partition"]))

    def rows(self, path: str, partition: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        common = constants(partition, self.schema)
        fragment = _PARQUET.make_fragment(path, self.location.files(), partition_expression=common)
        groups = map(fragment.metadata.row_group, range(fragment.metadata.num_row_groups))
        # Bodies may be large: a piece is bounded by bytes.
        row_bytes = max((one.total_byte_size // max(1, one.num_rows) for one in groups), default=1)
        most = min(limits.LAKE_READ_ROWS, limits.LAKE_READ_BYTES // max(1, row_bytes))
        yield from fragment.to_batches(
            self.schema, list(self.columns), filter=self.condition,
            batch_size=max(1, most), batch_readahead=1, use_threads=False,
        )  # fmt: skip


# --- rows of one nsqd only ---
#
# Each nsqd counts a topic's offsets by itself. In a table of several those of one topic interleave,
# and every offset looks as if it were there twice. Rows from before the table had the column
# `broker` are of the nsqd with which it began: another name may go on behind them, not beside them.
# Nodes of a cluster have one log, and each of them may have been asked for a part of its rows.


def require_one_broker(path: str, frame: DataFrame, known: Topics) -> None:
    """ConfigError when the rows of some topic and partition are of several nsqds. `known`: which
    logs the table has noted."""
    if BROKER not in frame.columns:
        return
    spans = frame.groupBy("topic", "partition", BROKER).agg(
        F.min("offset").alias("least"), F.max("offset").alias("most")
    )
    found: dict[tuple[str, int], list[Any]] = {}
    for row in spans.collect():
        found.setdefault((row.topic, row.partition), []).append(row)
    for (topic, _), rows in sorted(found.items()):
        if topic in known and known[topic].is_one_of(row.broker or "" for row in rows):
            continue
        named = [row for row in rows if row.broker is not None]
        unnamed = [row for row in rows if row.broker is None]
        if len(named) > 1 or (named and unnamed and unnamed[0].most >= named[0].least):
            older = "; older ones are of an nsqd without a name" if unnamed else ""
            names = ", ".join(sorted(row.broker for row in named))
            rule = (
                f"{path} has messages of {topic} of several nsqds, whose offsets interleave: name "
                f"one of {names} (--broker){older}"
            )
            raise ConfigError(BROKER, "", rule)
