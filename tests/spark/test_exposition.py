"""Figures for Prometheus, and how far behind a query is."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cases import each
from penstock.errors import ConfigError
from penstock.spark.exposition import CONTENT_TYPE, Metric, exposed, served
from penstock.spark.lag import LagListener

from .fakebroker import FakeBroker
from .queries import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_text_format() -> None:
    text = exposed(
        [
            Metric("rows", "gauge", "Rows.", 3, {"topic": 'a"b\\\n'}),
            Metric("lag", "gauge", "Lag.", None, {}),
            Metric("rate", "gauge", "Rate.", 0.5, {"topic": "c"}),
            Metric("rows", "gauge", "Rows.", 12345678901234, {"topic": "d"}),
        ]
    )
    assert text.splitlines() == [
        "# HELP penstock_rows Rows.",
        "# TYPE penstock_rows gauge",
        'penstock_rows{topic="a\\"b\\\\\\n"} 3',
        'penstock_rows{topic="d"} 12345678901234',
        "# HELP penstock_rate Rate.",
        "# TYPE penstock_rate gauge",
        'penstock_rate{topic="c"} 0.5',
    ]


def test_it_is_served() -> None:
    with served("127.0.0.1:0", lambda: "penstock_x{} 1\n") as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert answer.headers["Content-Type"] == CONTENT_TYPE
            assert answer.read() == b"penstock_x{} 1\n"
        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/other", timeout=30)
        missing.value.close()
        with (
            pytest.raises(ConfigError, match="can't be listened on"),
            served(f"127.0.0.1:{port}", str),
        ):
            raise AssertionError("two listen on one port")


@each("address", ["", "9209", "host", "h:x", ":9209"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ConfigError, match="host:port"), served(address, str):
        raise AssertionError("it listens")


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
    assert lag.logs == {
        ("a", 0): (40, 40),
        ("a", 1): (500, 900),
        ("a", 2): (60, 60),
        ("a", 3): (0, 3),
    }
    assert lag.behind == sum(end - at for at, end in lag.logs.values()) == 403
    lines = listener.metrics().splitlines()
    assert 'penstock_query_lag_rows{query="copy"} 403' in lines
    for number, behind in enumerate((0, 400, 0, 3)):
        labels = f'query="copy",topic="a",partition="{number}"'
        assert f"penstock_query_topic_lag_rows{{{labels}}} {behind}" in lines


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning")
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
        deadline_s = time.monotonic() + 60
        while 0 not in seen:
            assert time.monotonic() < deadline_s, seen
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    assert sorted(set(seen), reverse=True) == [20, 10, 0]
