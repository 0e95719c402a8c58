"""How far behind a query is."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from e2e.lookupd import eventually
from penstock.spark.lag import LagListener

from .fakebroker import FakeBroker
from .queries import Stream


def progress(end: str, latest: str) -> Any:
    source = SimpleNamespace(endOffset=end, latestOffset=latest)
    batch = SimpleNamespace(
        id="q1", name="copy", batchId=7, processedRowsPerSecond=float("nan"), sources=[source]
    )
    return SimpleNamespace(progress=batch, id="q1")


def skewed(*ends: int) -> str:
    partitions = {str(number): end for number, end in enumerate(ends)}
    return json.dumps({"version": 1, "topics": {"a": {"identity": "x", "partitions": partitions}}})


def test_lag_is_told_by_partition_and_adds_up() -> None:
    """Also of one that came after the batch was planned."""
    listener = LagListener()
    listener.onQueryProgress(progress(skewed(40, 500, 60), skewed(40, 900, 60, 3)))
    lag = listener.lags["q1"]
    spans = [(40, 40), (500, 900), (60, 60), (0, 3)]
    assert lag.logs == {("a", number): span for number, span in enumerate(spans)}
    assert lag.behind == sum(end - at for at, end in lag.logs.values()) == 403
    registry = CollectorRegistry()
    registry.register(listener)
    of_query = {"query": "copy"}
    assert registry.get_sample_value("penstock_query_lag_rows", of_query) == 403
    for number, behind in enumerate((0, 400, 0, 3)):
        labels = {**of_query, "topic": "a", "partition": str(number)}
        assert registry.get_sample_value("penstock_query_topic_lag_rows", labels) == behind


def test_a_listener_hears_of_a_real_query(
    spark: SparkSession, broker: FakeBroker, tmp_path: Path
) -> None:
    broker.topic("orders").publish([b"x"] * 30)
    seen: list[int] = []

    class Listens(LagListener):
        def onQueryProgress(self, event: Any) -> None:
            super().onQueryProgress(event)
            seen.extend(lag.behind for lag in self.lags.values())

    listener = Listens()
    spark.streams.addListener(listener)
    try:
        Stream(spark, broker, tmp_path, maxOffsetsPerTrigger="10").run()
        eventually(lambda: 0 in seen, say=lambda: seen)
    finally:
        spark.streams.removeListener(listener)
    assert sorted(set(seen), reverse=True) == [20, 10, 0]
