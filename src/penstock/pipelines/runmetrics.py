"""What Prometheus is told of a run: its report and its facts, as they are at the moment."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.pipelines.progress import Progress, Report
from penstock.spark.exposition import Metric, exposed


def metrics_text(pipeline: str, name: str, progress: Progress) -> str:
    return exposed(_metrics({"pipeline": pipeline, "name": name}, progress))


def _metrics(labels: dict[str, str], progress: Progress) -> Iterator[Metric]:
    report, facts = progress.last or Report(0), progress.facts

    def gauge(name: str, text: str, value: float | None) -> Metric:
        return Metric(f"pipeline_{name}", "gauge", text, value, labels)

    def counter(name: str, text: str, value: float) -> Metric:
        return Metric(f"pipeline_{name}_total", "counter", text, value, labels)

    yield gauge("up", "1 when Spark has started.", int(facts.is_up))
    yield gauge("waiting", "1 while an outage is waited out.", int(progress.waiting))
    yield counter("outages", "Attempts that ended by an outage.", progress.outages)
    yield counter("rows", "Rows done by this run.", report.rows)
    yield gauge("rows_per_second", "Rows a second, lately.", report.rows_per_second)
    yield gauge("lag_rows", "Rows that the logs have and the target has not.", report.lag_rows)
    text = "The target has everything up to this many seconds ago."
    yield gauge("lag_seconds", text, report.lag_seconds)
    yield gauge("batch", "Number of the last batch that was committed.", facts.batch)
    text = "When that was, in seconds since 1970."
    yield gauge("last_commit_timestamp_seconds", text, facts.committed_s)
    for (topic, partition), (at, end) in facts.logs.items():
        more = {**labels, "topic": topic, "partition": str(partition)}
        text = "Rows of each partition of each topic that the target has not."
        yield Metric("pipeline_topic_lag_rows", "gauge", text, end - at, more)
