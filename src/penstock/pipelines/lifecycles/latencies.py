"""Latencies and slow messages, out of the table of lifecycles (`table`)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from penstock.pipelines.lifecycles.fates import WAITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MICROSECONDS = "unix_micros({until}) - unix_micros({since})"
PERCENTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def wait(name: str) -> str:
    since, until = WAITS[name]
    return _MICROSECONDS.format(since=since, until=until)


def percentile_columns() -> str:
    """Aggregates, all percentiles of a wait in one sketch: `total` is a list of numbers."""
    percents = ", ".join(map(str, PERCENTS.values()))
    return ", ".join(
        f"percentile_approx({wait(name)}, array({percents})) AS {name}, "
        f"max({wait(name)}) AS {name}_max_us"
        for name in WAITS
    )


def _unfolded() -> str:
    return ", ".join(
        f"{name}[{place}] AS {name}_{percent}_us"
        for name in WAITS
        for place, percent in enumerate(PERCENTS)
    )


_LATENCIES = f"""
SELECT topic, channel, hour, messages, sent, finished, {_unfolded()},
    first_sent_max_us, handling_max_us, total_max_us
FROM (
    SELECT topic, channel, date_trunc('HOUR', published) AS hour,
        count(*) AS messages, count(first_sent) AS sent, count(finished) AS finished,
        {percentile_columns()}
    FROM {{lives}} WHERE published IS NOT NULL AND channel IS NOT NULL
    GROUP BY topic, channel, date_trunc('HOUR', published))
"""

_SLOWEST = f"""
SELECT topic, channel, partition, offset, message_id, trace_id, published, first_sent, finished,
    sends, {wait("first_sent")} AS first_sent_us, {wait("handling")} AS handling_us,
    {wait("total")} AS total_us
FROM {{lives}} WHERE published IS NOT NULL AND finished IS NOT NULL
ORDER BY total_us DESC, topic, channel, partition, offset LIMIT :count
"""


def latencies(views: Views, lives: DataFrame) -> DataFrame:
    """Percentiles by topic, channel and hour of the publish, in microseconds: from the publish to
    the first delivery, from there to the end of the handling, and both together."""
    return views.sql(_LATENCIES, lives=lives)


def slowest(views: Views, lives: DataFrame, count: int) -> DataFrame:
    """The messages that took longest from publish to finish."""
    return views.sql(_SLOWEST, {"count": count}, lives=lives)


# --- views ---
#
# SQL over frames by name, for several queries over one that is kept in memory.
#
# `spark.sql(text, lives=frame)` does the same, but makes a view for that one text and drops it,
# and dropping a view drops what was kept of the frames in it: the next query would begin at the
# files again, without a word. Here views live until all queries are done.


class Views:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._names: list[str] = []
        self._kept: list[DataFrame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(self._names):
            self._spark.catalog.dropTempView(name)
        for frame in self._kept:
            frame.unpersist()

    def sql(
        self, text: str, arguments: Mapping[str, Any] | None = None, **frames: DataFrame
    ) -> DataFrame:
        """`{lives}` in the text is the frame of that name, `:since` an argument."""
        names = {name: self._add(frame) for name, frame in frames.items()}
        return self._spark.sql(text.format(**names), dict(arguments or {}))

    def keep(self, frame: DataFrame) -> DataFrame:
        """Computed once, and kept until the end."""
        self._kept.append(frame.persist())
        return frame

    def _add(self, frame: DataFrame) -> str:
        name = f"penstock_{uuid.uuid4().hex}"
        frame.createTempView(name)
        self._names.append(name)
        return name
