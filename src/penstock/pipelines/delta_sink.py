"""A streaming query that writes into a Delta table, each batch exactly once, without jars.

The tasks write files, the driver commits them in one transaction that carries the number of the
batch (`delta_table`). One that Spark runs again, because it could not note that it was done, is
recognised by its number, and its second set of files stays outside the table. So do the files of a
batch that failed: the vacuum takes them.

What the writer has to know goes to Spark's processes inside the class of the data source (of a
class that is registered Spark has bytes only): options stand in plans, which Spark may show on its
web pages and in logs, and what delta-rs needs for a store may be secret.

Where the jars of delta-spark are there, Spark's own Delta can write instead, into a table of
Spark's catalog. It puts the name and the number of a batch into the same place (`txnAppId`,
`txnVersion`), so a table may change from one writer to the other and back.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from penstock.errors import ConfigError
from penstock.pipelines.outages import cause_line
from penstock.pipelines.settings import CATALOG_TABLE, Settings
from penstock.pipelines.topic_logs import note, noted_as
from penstock.spark.delta_files import gathered, write
from penstock.spark.delta_table import Shape, Staged, TableLocation, commit, local_path
from penstock.spark.session import bound_batches


@dataclass(frozen=True)
class Target:
    """`log` is a column with the identity of the log that a row's topic has; it is not written, but
    noted in the table (`topic_logs`), with the nsqd of the row where the column `broker` has it."""

    location: TableLocation
    shape: Shape  # the columns are those of the frame
    application: str  # the batches are counted under this name
    log: str = ""
    broker: str = ""
    only_one: bool = False  # a second log of a topic is refused, unless it is an ephemeral one


class LakeSink(DataSource):
    target: ClassVar[Target]

    @classmethod
    def name(cls) -> str:
        return "penstock_delta"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return LakeWriter(self.target, schema)


@dataclass
class Files(WriterCommitMessage):
    staged: list[Staged]
    logs: set[tuple[str, str]]  # (topic, log) of its rows, as they are noted


class LakeWriter(DataSourceStreamArrowWriter):
    def __init__(self, target: Target, schema: StructType) -> None:
        self._target = target
        fields = to_arrow_schema(schema, timezone="UTC")
        columns = pa.schema([field for field in fields if field.name != target.log])
        self._shape = replace(target.shape, schema=columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        logs: set[tuple[str, str]] = set()

        def seen() -> Iterator[pa.RecordBatch]:
            for batch in gathered(iterator):
                logs.update(_logs_of(batch, self._target))
                yield batch

        return Files(write(self._target.location, self._shape, seen()), logs)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        done = [message for message in messages if isinstance(message, Files)]
        staged = [file for message in done for file in message.staged]
        logs = {log for message in done for log in message.logs}
        target, app = self._target, self._target.application
        prepared = partial(note, target.location, app, logs, only_one=target.only_one)
        if staged:
            commit(target.location, self._shape, app, batchId, staged, prepared=prepared)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Spark calls this after a commit that failed, too, and that one may be in the table."""


def _logs_of(batch: pa.RecordBatch | pa.Table, target: Target) -> set[tuple[str, str]]:
    if not target.log:
        return set()
    names = ["topic", target.log, *([target.broker] if target.broker else [])]
    found = pa.table([batch.column(name) for name in names], names=names).group_by(names)
    return {
        (row["topic"], noted_as(row[target.log], row.get(target.broker)))
        for row in found.aggregate([]).to_pylist()
    }


def sink_to(target: Target) -> type[LakeSink]:
    return type(LakeSink.__name__, (LakeSink,), {"target": target})


def started(
    frame: DataFrame, settings: Settings, name: str, target: Target, checkpoint: str
) -> StreamingQuery:
    if table := settings.text(CATALOG_TABLE.name):
        register(frame.sparkSession, table, target.location)
        writer = frame.writeStream.foreachBatch(partial(append, target, table))
    else:
        bound_batches(frame)
        frame.sparkSession.dataSource.register(sink_to(target))
        writer = frame.writeStream.format(LakeSink.name())
    writer = writer.queryName(name).option("checkpointLocation", checkpoint)
    if settings.flag("once"):
        return writer.trigger(availableNow=True).start()
    pause_ms = round(settings.seconds("trigger") * 1000)
    return writer.trigger(processingTime=f"{pause_ms} milliseconds").start()


# --- by delta-spark ---


def register(session: SparkSession, name: str, location: TableLocation) -> None:
    """The table in Spark's catalog. ConfigError when that has another one of this name."""
    path = location.root.replace("'", r"\'")
    try:
        session.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION '{path}'")
        (found,) = session.sql(f"DESCRIBE DETAIL {name}").collect()
    except PySparkException as error:
        raise ConfigError(CATALOG_TABLE.name, name, cause_line(error)) from error
    if local_path(found.location).replace("s3a:", "s3:") != location.root.replace("s3a:", "s3:"):
        raise ConfigError(CATALOG_TABLE.name, name, f"it is {found.location}, not {location.root}")


def append(target: Target, name: str, batch: DataFrame, number: int) -> None:
    """Delta leaves out a batch whose number, or a later one, it has of this application."""
    batch.persist()
    try:
        if target.log:
            names = filter(None, ("topic", target.log, target.broker))
            logs = _logs_of(batch.select(*names).distinct().toArrow(), target)
            properties, app = target.location.properties(), target.application
            note(target.location, app, logs, properties, only_one=target.only_one)
        writer = batch.drop(target.log).write.format("delta").mode("append")
        writer.options(txnAppId=target.application, txnVersion=number).saveAsTable(name)
    finally:
        batch.unpersist()
