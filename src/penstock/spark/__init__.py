"""Spark reads Penstock's log: the data source "penstock", batch and streaming.

    import penstock.spark
    penstock.spark.register(spark)
    spark.read.format("penstock").option("url", ...).option("subscribe", "orders").load()

`source` is all that knows of PySpark's classes. Below it are rules and a client that need no
Spark: `options` and `offsets` (pure), `brokerapi` (HTTP), `decode` (raw batches to Arrow),
`delta_table`. Spark is a reader of the log, not an NSQ consumer: it moves no channel, and nobody
waits for it. A session with the settings that Python sources need is opened by
`penstock.spark.session`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

Source = TypeVar("Source", bound="DataSource")


def register(spark: SparkSession, storage_options: Mapping[str, str] | None = None) -> None:
    """Make format("penstock") known to this session. `storage_options` are delta-rs's, for a table
    of rejected rows in an object store."""
    from penstock.spark.source import PenstockSource

    spark.dataSource.register(with_store(PenstockSource, storage_options or {}))


def with_store(source: type[Source], store: Mapping[str, str]) -> type[Source]:
    """A class of the same name whose attribute `store` has what delta-rs has to know of a table's
    store. Some of that is secret, and Spark keeps options in plans, which it may show on its web
    pages and in logs. Of a class that is registered it has bytes only."""
    return type(source.__name__, (source,), {"store": dict(store)}) if store else source
