"""`format("penstock_delta")`: Spark writes into a Delta table, each batch exactly once, no jars.

The tasks write files, the driver commits them in one transaction that carries the number of the
batch (`delta_table`). One that Spark runs again, because it could not note that it was done, is
recognised by its number, and its second set of files stays outside the table. So do the files of a
batch that failed: the vacuum takes them.

Options: `path`; `partitionBy` and `statistics` (names of columns, with commas between them);
`txnAppId`, the name under which the batches are counted. Delta's own writer calls it the same.
`logColumn` is a column with the identity of the log that a row's topic has; it is not written, but
noted in the table (`topic_logs`), with the nsqd of the row where `brokerColumn` has it. With
`logsOfTopic` `one` a second log of a topic is refused, unless it is an ephemeral one; the default
is `many`.
What delta-rs has to know of the table's store is no option (`with_store`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.errors import ConfigError
from penstock.pipelines.settings import Settings
from penstock.pipelines.topic_logs import note, noted_as
from penstock.spark.delta_files import write
from penstock.spark.delta_table import Shape, Staged, TableLocation, commit
from penstock.spark.options import FROM_SPARK, Named, Natural, comma_separated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

FORMAT = "penstock_delta"


class LakeOptions(Named, frozen=True, kw_only=True, rename="camel"):
    path: str = ""
    partition_by: str = ""
    statistics: str = ""
    txn_app_id: str = ""
    txn_version: Natural = 0
    log_column: str = ""
    broker_column: str = ""
    logs_of_topic: Literal["one", "many"] = "many"


class LakeSink(DataSource):
    store: ClassVar[Mapping[str, str]] = {}  # of delta-rs; secret

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchWriter(self.options, schema, overwrite, self.store)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return StreamWriter(self.options, schema, overwrite, self.store)


@dataclass
class Files(WriterCommitMessage):
    """What one task wrote."""

    staged: list[Staged]
    logs: set[tuple[str, str]]  # (topic, log) of its rows, as they are noted


class _Writer:
    def __init__(
        self,
        options: Mapping[str, str],
        schema: StructType,
        overwrite: bool,
        store: Mapping[str, str],
    ) -> None:
        if overwrite:
            rule = "rows are only added to the table: append"
            raise ConfigError("mode", "complete or overwrite", rule)
        found = self._options = LakeOptions.read(options, FROM_SPARK)
        if not found.path:
            raise ConfigError("option path", None, "it has to be where the table is")
        self._place = TableLocation(found.path, store)
        columns = pa.schema(
            [f for f in to_arrow_schema(schema, timezone="UTC") if f.name != found.log_column]
        )
        by, named = map(comma_separated, (found.partition_by, found.statistics))
        self._shape = Shape(columns, by, named)
        self._application = found.txn_app_id or self._unnamed()

    def _unnamed(self) -> str:
        """What the batches are counted under when nobody says it."""
        return f"penstock-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        logs: set[tuple[str, str]] = set()
        log, broker = self._options.log_column, self._options.broker_column

        def seen() -> Iterator[pa.RecordBatch]:
            for batch in iterator:
                logs.update(_logs_of(batch, log, broker) if log else ())
                yield batch

        return Files(write(self._place, self._shape, seen()), logs)

    def _commit(self, messages: list[Any], version: int) -> None:
        staged = [each for message in messages if message is not None for each in message.staged]
        logs = {log for message in messages if message is not None for log in message.logs}
        place, application = self._place, self._application
        only_one = self._options.logs_of_topic == "one"
        prepared = partial(note, place, application, logs, only_one=only_one)

        if staged:
            commit(place, self._shape, application, version, staged, prepared=prepared)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:
        """Spark calls this after a commit that failed, too, and that one may be in the table."""


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    def _unnamed(self) -> str:
        rule = "a name for this query that goes with its checkpoint"
        raise ConfigError("option txnAppId", None, rule)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages, batchId)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Once, when the caller names the write (`txnAppId`, `txnVersion`); Spark itself may repeat a
    commit otherwise."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages, self._options.txn_version)


def _logs_of(batch: pa.RecordBatch, log: str, broker: str) -> set[tuple[str, str]]:
    names = ["topic", log, *([broker] if broker else [])]
    found = pa.table([batch.column(name) for name in names], names=names).group_by(names)
    return {
        (row["topic"], noted_as(row[log], row.get(broker)))
        for row in found.aggregate([]).to_pylist()
    }


def started(
    frame: DataFrame, settings: Settings, name: str, shape: Shape, **options: str
) -> StreamingQuery:
    """The query of a pipeline that writes the frame into its table."""
    columns = {"partitionBy": shape.partition_by, "statistics": shape.statistics}
    writer = (
        frame.writeStream.format(FORMAT)
        .queryName(name)
        .options(path=settings.text("table"), **{n: ",".join(c) for n, c in columns.items()})
        .options(**options)
    )
    if settings.flag("once"):
        return writer.trigger(availableNow=True).start()
    pause_ms = round(settings.seconds("trigger") * 1000)
    return writer.trigger(processingTime=f"{pause_ms} milliseconds").start()
