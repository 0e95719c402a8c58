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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, storage_options: Mapping[str, str] | None = None) -> None:
    """Make format("penstock") known to this session. `storage_options` are delta-rs's, for a table
    of rejected rows in an object store. Some are secret, and Spark keeps options in plans, which it
    may show on its web pages and in logs; of a registered class it has bytes only."""
    from penstock.spark.source import PenstockSource

    store = {"store": dict(storage_options or {})}
    spark.dataSource.register(type(PenstockSource.__name__, (PenstockSource,), store))
