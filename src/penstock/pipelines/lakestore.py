"""The rows of a table's files in an object store, as a frame of Spark.

Spark's own reader knows no object store without jars of Hadoop's, so here its tasks read the files
by pyarrow, through delta-rs: what reads the table's log reaches its files too. Options go to the
tasks inside the function that Spark runs there. They are not among the options of a data source,
which Spark shows in plans, and plans end up in logs.

A file is read by one task, a bounded piece of a row group at a time. Columns that it lacks, as they
were added later, are null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from penstock import limits
from penstock.spark.lake import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class StoredFile(NamedTuple):
    place: str  # the table's, or the directory of a file elsewhere
    path: str  # below it
    partition: Mapping[str, Any]  # columns that are not in the file


def frame_of(
    spark: SparkSession,
    schema: StructType,
    files: Sequence[StoredFile],
    options: Mapping[str, str],
) -> DataFrame:
    from pyspark.sql.pandas.types import to_arrow_schema

    rows = [(file.place, file.path, _written(file.partition)) for file in files]
    slices = max(1, min(len(rows), limits.LAKE_READ_TASKS))
    named = spark.createDataFrame(
        spark.sparkContext.parallelize(rows, slices), "place string, path string, partition string"
    )
    return named.mapInArrow(Reading(dict(options), to_arrow_schema(schema, timezone="UTC")), schema)


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
        files = Place(place, self.options).files()
        with files.open_input_file(path) as opened, pq.ParquetFile(opened, pre_buffer=True) as file:
            there = set(file.schema_arrow.names) - set(partition)
            names = [name for name in self.schema.names if name in there]
            for batch in file.iter_batches(_rows_at_once(file), columns=names):
                yield self._completed(batch, partition)

    def _completed(
        self, batch: pa.RecordBatch, partition: Mapping[str, str | None]
    ) -> pa.RecordBatch:
        columns = [self._column(field, batch, partition) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(
        self, field: pa.Field, batch: pa.RecordBatch, partition: Mapping[str, str | None]
    ) -> pa.Array:
        if field.name in partition:
            value = pa.scalar(partition[field.name], pa.string()).cast(field.type)
            return pa.repeat(value, batch.num_rows)
        if field.name in batch.schema.names:
            return batch.column(field.name).cast(field.type)
        return pa.nulls(batch.num_rows, field.type)


def _rows_at_once(file: pq.ParquetFile) -> int:
    """Bodies may be large: a piece is bounded by bytes."""
    metadata = file.metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    row_bytes = max(
        (group.total_byte_size // max(1, group.num_rows) for group in groups), default=1
    )
    return max(1, min(limits.LAKE_READ_ROWS, limits.LAKE_READ_BYTES // max(1, row_bytes)))


def _written(partition: Mapping[str, Any]) -> str:
    """As texts, from which the tasks make values of the columns' types again."""
    return json.dumps({name: _text(value) for name, value in partition.items()})


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.isoformat() if isinstance(value, date) else str(value)
