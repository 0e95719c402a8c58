"""What Prometheus is told of a run."""

from __future__ import annotations

import io

import pytest

from penstock.errors import ConfigError, FetchFailed
from penstock.pipelines.frame import Pipeline, _measured
from penstock.pipelines.outages import Outages
from penstock.pipelines.progress import Progress, Report
from penstock.pipelines.runmetrics import metrics_text
from penstock.pipelines.settings import defaults

from . import sample


def values(progress: Progress) -> dict[str, float]:
    lines = metrics_text("archive", "nightly", progress).splitlines()
    found = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in found}


LABELS = '{pipeline="archive",name="nightly"}'


def test_the_figures_of_a_run() -> None:
    progress = Progress("archive", 0, io.StringIO())
    before = values(progress)
    assert before[f"penstock_pipeline_up{LABELS}"] == 0
    assert f"penstock_pipeline_lag_rows{LABELS}" not in before  # nobody knows it yet
    progress.report(Report(12, rows_per_second=3.5, lag_rows=4, lag_seconds=1.25))
    progress.note(is_up=True, batch=3, committed_s=1.7e9, logs={("orders", 0): (10, 14)})
    assert values(progress) == {
        f"penstock_pipeline_up{LABELS}": 1,
        f"penstock_pipeline_waiting{LABELS}": 0,
        f"penstock_pipeline_outages_total{LABELS}": 0,
        f"penstock_pipeline_rows_total{LABELS}": 12,
        f"penstock_pipeline_rows_per_second{LABELS}": 3.5,
        f"penstock_pipeline_lag_rows{LABELS}": 4,
        f"penstock_pipeline_lag_seconds{LABELS}": 1.25,
        f"penstock_pipeline_batch{LABELS}": 3,
        f"penstock_pipeline_last_commit_timestamp_seconds{LABELS}": 1.7e9,
        'penstock_pipeline_topic_lag_rows{pipeline="archive",name="nightly",'
        'topic="orders",partition="0"}': 4,
    }


def test_an_outage_is_seen_while_it_lasts() -> None:
    seen: list[tuple[float, float]] = []

    class Looks(Progress):
        def wait(self, seconds: float) -> bool:
            found = values(self)
            names = (f"penstock_pipeline_{n}{LABELS}" for n in ("waiting", "outages_total"))
            waiting, outages = (found[name] for name in names)
            seen.append((waiting, outages))
            return False

    progress, left = Looks("archive", 0, io.StringIO()), [1, 1]

    def attempt() -> int:
        if left:
            left.pop()
            raise FetchFailed("http://a", "refused")
        return 0

    assert Outages(progress, None).ride_out(attempt, 0) == 0
    assert seen == [(1, 1), (1, 2)]
    assert values(progress)[f"penstock_pipeline_waiting{LABELS}"] == 0


def test_a_bad_address_is_named() -> None:
    pipeline: Pipeline = sample.PIPELINE
    settings = defaults(pipeline.settings, topics=("t",), metrics_address="nowhere")
    progress = Progress("sample", 0, io.StringIO())
    with (
        pytest.raises(ConfigError, match="'nowhere' is not valid: host:port"),
        _measured(pipeline, "sample", settings, progress),
    ):
        raise AssertionError("it listens")
