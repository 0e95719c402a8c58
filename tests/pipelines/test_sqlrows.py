"""Values of a query as texts, whatever the time zone of the machine."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from penstock.pipelines.sqlrows import distinct, instant, read, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    os.environ.get("TZ")
    time.tzset()


@pytest.mark.spark
def test_rows_of_a_query(spark: SparkSession, elsewhere: None) -> None:
    """The hour of the first time exists twice in New York."""
    result = read(
        spark.sql(
            "select timestamp'2026-11-01 05:30:00.000001Z' t, date'2026-11-01' d, 1.50bd m, "
            "cast('é' as binary) b, unhex('ff00') raw, null n, 1 t, double('nan') f, true y, "
            "named_struct('at', timestamp'2026-06-01 00:00:00Z', 'xs', array(1, null)) s"
        )
    )
    assert result.names == ["t", "d", "m", "b", "raw", "n", "t_2", "f", "y", "s"]
    assert list(result.rows) == [
        [
            "2026-11-01T05:30:00.000001Z",
            "2026-11-01",
            Decimal("1.50"),
            "é",
            "base64:/wA=",
            None,
            1,
            "nan",
            True,
            {"at": "2026-06-01T00:00:00.000000Z", "xs": [1, None]},
        ]
    ]
    assert [n for n, is_number in zip(result.names, result.numeric, strict=True) if is_number] == [
        "m",
        "t_2",
        "f",
    ]


@pytest.mark.spark
def test_a_limit_and_all(spark: SparkSession) -> None:
    frame = spark.range(10)
    assert len(list(read(frame, 3).rows)) == 3
    assert len(list(read(frame).rows)) == 10


def test_values() -> None:
    assert instant(-1) == "1969-12-31T23:59:59.999999Z"
    assert shown({b"k": b"v"}) == {"k": "v"}
    assert shown(dt.timedelta(seconds=1)) == "0:00:01"
    assert distinct(["a", "b", "a", "a"]) == ["a", "b", "a_2", "a_3"]
