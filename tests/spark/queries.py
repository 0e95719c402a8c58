"""Queries for tests, over anything that has a `url`: the fake broker, or a real nsqd."""

from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from .patience import patiently

WAIT_S_MAX = 200  # two cores that others use too


class Broker(Protocol):
    @property
    def url(self) -> str: ...


def batch(spark: SparkSession, broker: Broker, schema: str = "", **options: Any) -> DataFrame:
    reader = spark.read.format("penstock").option("url", broker.url)
    if schema:
        reader = reader.schema(schema)
    return reader.options(**{"subscribe": "orders", **options}).load()


class Stream:
    """A query that appends to Parquet; each run goes on from the checkpoint of the one before."""

    def __init__(
        self,
        spark: SparkSession,
        broker: Broker,
        path: Path,
        schema: str = "topic string, offset bigint, body binary",
        **options: Any,
    ):
        self.spark, self.broker, self.path, self.schema = spark, broker, path, schema
        self.options = {"subscribe": "orders", "startingOffsets": "earliest", **options}

    def run(self) -> StreamingQuery:
        return patiently(self._run)

    def _run(self) -> StreamingQuery:
        frame = (
            self.spark.readStream.format("penstock")
            .schema(self.schema)
            .option("url", self.broker.url)
            .options(**self.options)
            .load()
        )
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(self.path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self.path / "data"))
        )
        assert query.awaitTermination(WAIT_S_MAX), "it is still running"
        return query

    def rows(self) -> list[tuple[str, int]]:
        frame = self.spark.read.parquet(str(self.path / "data"))
        return sorted((row.topic, row.offset) for row in frame.collect())


def batch_sizes(query: StreamingQuery) -> list[int]:
    return [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
