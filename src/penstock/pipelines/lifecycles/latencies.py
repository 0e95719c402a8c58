"""Latencies and slow messages, out of the table of lifecycles (`table`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipelines.lifecycles.fates import WAITS
from penstock.pipelines.views import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
