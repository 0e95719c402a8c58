"""The lag of a streaming query: of our pipelines, and of any query.

Spark says after each batch where it ended, and where the logs ended when it was planned. What lies
between has not been read yet.
"""

import json
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.errors import ConfigError
from penstock.spark.offsets import from_document

logger = logging.getLogger(__name__)

Log = tuple[str, int]  # topic and partition
_ENDS = ("endOffset", "latestOffset")


class QueryLag(NamedTuple):
    name: str  # or its id, when it has none
    behind: int  # rows that the logs had and the query has not read
    logs: Mapping[Log, tuple[int, int]]  # (read to, end of the log)


class LagListener(StreamingQueryListener, Collector):
    """Writes a line for each query that lags, and has the figures for Prometheus."""

    def __init__(self) -> None:
        self.lags: dict[str, QueryLag] = {}  # by the query's id

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:
        batch = event.progress
        sources = [{name: getattr(source, name) for name in _ENDS} for source in batch.sources]
        behind = lag_rows(sources)
        if behind is None:
            return  # it reads nothing of ours
        lag = QueryLag(batch.name or str(batch.id), behind, logs_of(sources))
        self.lags[str(batch.id)] = lag
        if behind:
            logger.info("query %s is %d rows behind", lag.name, behind)

    def onQueryTerminated(self, event: Any) -> None:
        self.lags.pop(str(event.id), None)

    def collect(self) -> list[GaugeMetricFamily]:
        def gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"penstock_query_{name}", text, labels=["query", *labels])

        behind = gauge("lag_rows", "Rows that the logs had and the query had not read.")
        text = "The same of each partition of each topic."
        of_logs = gauge("topic_lag_rows", text, "topic", "partition")
        for lag in list(self.lags.values()):
            behind.add_metric([lag.name], lag.behind)
            for (topic, partition), (at, end) in lag.logs.items():
                of_logs.add_metric([lag.name, topic, str(partition)], end - at)
        return [behind, of_logs]


def lag_rows(sources: list[Any]) -> int | None:
    """Rows that the logs had when the batch was planned, and that no batch has read yet. None: no
    source is ours."""
    ours = [one for one in sources if None not in [_positions(one[name]) for name in _ENDS]]
    return sum(end - at for one in ours for at, end in logs_of([one]).values()) if ours else None


def logs_of(sources: list[Any]) -> dict[Log, tuple[int, int]]:
    """The progress in each log, and its end when the batch was planned. A log that no batch has met
    yet is read to 0: the messages behind it add up to `lag_rows`."""
    found: dict[Log, tuple[int, int]] = {}
    for source in sources:
        reached, latest = (_positions(source[name]) for name in _ENDS)
        if reached is None:
            continue
        latest = latest or reached
        for log in {**reached, **latest}:
            at = reached[log]
            found[log] = (at, max(at, latest.get(log, at)))
    return found


def _positions(offset: Any) -> Counter[Log] | None:
    """Offsets of the source "penstock", summed over its nsqds; None for those of other sources."""
    try:
        known = from_document(json.loads(offset) if isinstance(offset, str) else offset)
    except (ConfigError, ValueError):
        return None
    found: Counter[Log] = Counter()
    for log, at in known.items():
        found[log.topic, log.partition] += at
    return found
