"""Delta tables as frames of Spark.

Spark reads the files of this machine with its own vectorised reader. Where the names of directories
follow Hive's convention, as delta-rs's and ours do, it takes the partition values from there, under
the types that the table's schema names, so a topic called "0123" stays a text.

All other files are read by Spark's tasks, through pyarrow and delta-rs: those of an object store,
which Spark knows not without jars of Hadoop's, and those whose partition values are in the log
alone. A store's options go to the tasks inside the function that Spark runs there. They are not
among the options of a data source, which Spark shows in plans, and plans end up in logs. A file is
read by one task, a bounded piece of a row group at a time. Columns that it lacks, as they were
added later, are null.

Columns that are not asked for are not read. Spark sees by itself which it needs of the files that
it reads; for the others they have to be named, as it does not look into the function. Conditions
are also applied to the rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock import limits
from penstock.errors import ConfigError, TableUnreadable
from penstock.pipelines.delta_reader import (
    Condition,
    LakeFile,
    LakeTable,
    constants,
    is_delta,
    is_remote,
)
from penstock.spark.delta_table import TableLocation, partition_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARQUET = ds.ParquetFileFormat()
_AS_IT_IS = {"__globPaths__": "false"}  # a path is no pattern, whatever is in it
BROKER = "broker"


def frame_of(
    spark: SparkSession,
    table: LakeTable,
    conditions: Sequence[Condition] = (),
    columns: Collection[str] | None = None,
) -> DataFrame:
    """The rows that meet all conditions, with the table's columns in their order: all, or those of
    `columns` that it has, and those of the conditions."""
    schema = StructType.fromJson(json.loads(table.delta.schema().to_json()))
    if columns is not None:
        wanted = {*columns, *(condition.column for condition in conditions)}
        schema = StructType([field for field in schema.fields if field.name in wanted])
    files = table.files(conditions)
    named = [file for file in files if not is_remote(file.uri) and file.partition_is_in_path()]
    others = [file for file in files if file not in named]
    frame = _read(spark, schema, named, table.root) if named else None
    if others:
        more = _read_by_tasks(spark, schema, table, others)
        frame = more if frame is None else frame.union(more)
    return _where(spark.createDataFrame([], schema) if frame is None else frame, conditions)


def read_table(
    spark: SparkSession,
    path: str,
    conditions: Sequence[Condition] = (),
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A Delta table, or else a directory (or file) of Parquet, which has no log to skip by."""
    if is_delta(path, options):
        return frame_of(spark, LakeTable(path, options=options), conditions)
    if options and is_remote(path):
        raise TableUnreadable(path, "it is no Delta table, and only these are read from a store")
    return _where(spark.read.options(**_AS_IT_IS).parquet(path), conditions)


def _where(frame: DataFrame, conditions: Sequence[Condition]) -> DataFrame:
    for condition in conditions:
        frame = frame.where(condition.condition())
    return frame


def _read(
    spark: SparkSession, schema: StructType, files: Sequence[LakeFile], root: str
) -> DataFrame:
    reader = spark.read.schema(schema).options(**_AS_IT_IS, basePath=root)
    frame = reader.parquet(*(file.uri for file in files))
    return frame.select(*(f"`{name}`" for name in schema.names))


# --- in tasks ---


def _read_by_tasks(
    spark: SparkSession, schema: StructType, table: LakeTable, files: Sequence[LakeFile]
) -> DataFrame:
    rows = [  # of a partition texts, from which the tasks make values of the columns' types again
        (*table.split(file), json.dumps({n: partition_text(v) for n, v in file.partition.items()}))
        for file in files
    ]
    slices = max(1, min(len(rows), limits.LAKE_READ_TASKS))
    named = spark.createDataFrame(
        spark.sparkContext.parallelize(rows, slices), "place string, path string, partition string"
    )
    reading = Reading(table.options, to_arrow_schema(schema, timezone="UTC"))
    return named.mapInArrow(reading, schema)


@dataclass(frozen=True)
class Reading:
    """Names of files in, their rows out."""

    options: dict[str, str]
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from self.rows(row["place"], row["path"], json.loads(row["partition"]))

    def rows(
        self, place: str, path: str, partition: Mapping[str, str | None]
    ) -> Iterator[pa.RecordBatch]:
        where = TableLocation(place, self.options)
        names = self.schema.names
        kinds = {name: self.schema.field(name).type for name in partition if name in names}
        values = {n: pa.scalar(partition[n], pa.string()).cast(kind) for n, kind in kinds.items()}
        fragment = _PARQUET.make_fragment(
            where.full(path), where.files(), partition_expression=constants(values)
        )
        count = _rows_at_once(fragment.metadata)
        yield from fragment.to_batches(
            self.schema, names, batch_size=count, batch_readahead=1, use_threads=False
        )


def _rows_at_once(metadata: pq.FileMetaData) -> int:
    """Bodies may be large: a piece is bounded by bytes."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    row_bytes = max(
        (group.total_byte_size // max(1, group.num_rows) for group in groups), default=1
    )
    return max(1, min(limits.LAKE_READ_ROWS, limits.LAKE_READ_BYTES // max(1, row_bytes)))


# --- rows of one nsqd only ---
#
# Each nsqd counts a topic's offsets by itself. In a table of several, those of one topic
# interleave: put into the order of the offsets they come in an order that never was, and every
# offset looks as if it were there twice. Rows from before the table had the column `broker` have
# null there. They are of the nsqd with which the table began, so another name may go on behind
# them, but not beside them.


def require_one_broker(path: str, frame: DataFrame) -> None:
    """ConfigError when the rows of some topic and partition are of several nsqds."""
    if BROKER not in frame.columns:
        return
    spans = frame.groupBy("topic", "partition", BROKER).agg(
        F.min("offset").alias("least"), F.max("offset").alias("most")
    )
    found: dict[tuple[str, int], list[Any]] = {}
    for row in spans.collect():
        found.setdefault((row.topic, row.partition), []).append(row)
    for (topic, _), rows in sorted(found.items()):
        if not _is_one(rows):
            raise ConfigError(BROKER, "", _rule(path, topic, rows))


def _is_one(rows: list[Any]) -> bool:
    named = [row for row in rows if row.broker is not None]
    unnamed = [row for row in rows if row.broker is None]
    if not named or not unnamed:
        return len(named) <= 1
    return len(named) == 1 and unnamed[0].most < named[0].least


def _rule(path: str, topic: str, rows: list[Any]) -> str:
    names = sorted(row.broker for row in rows if row.broker is not None)
    older = "; older ones are of an nsqd without a name" if len(names) < len(rows) else ""
    return (
        f"{path} has messages of {topic} of several nsqds, whose offsets interleave: name one of "
        f"{', '.join(names)} (--broker){older}"
    )
