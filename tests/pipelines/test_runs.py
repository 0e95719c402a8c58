"""The messages of `_pipelines`: what is one, and what is none."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from cases import each
from penstock import limits
from penstock.errors import FetchFailed
from penstock.pipelines.outages import Outages
from penstock.pipelines.progress import Progress, Report, metrics_text
from penstock.pipelines.runner import Pipeline, Run
from penstock.pipelines.runs import PARTS_MAX, Part, RunMessageInvalid, State, decode, parts_of
from penstock.pipelines.settings import defaults

from . import sample

LEAST = {"kind": "state", "run": "r1", "seq": 1, "pipeline": "archive", "state": "running",
         "time_s": 2.5, "started_s": 1}  # fmt: skip
PART = {"kind": "part", "run": "r1", "form": "html", "part": 0, "parts": 1, "text": "<p>"}


def test_what_a_later_version_adds_is_passed_over() -> None:
    assert decode(json.dumps(LEAST | {"more": {"a": 1}}).encode()) == State(
        run="r1", seq=1, pipeline="archive", state="running", time_s=2.5, started_s=1.0
    )


@each(
    "change",
    [
        {"kind": "other"},
        {"run": ""},
        {"run": "../../etc/passwd"},
        {"run": "r1\n"},
        {"pipeline": "<script>"},
        {"state": "vanished"},
        {"seq": -1},
        {"seq": 1 << 60},
        {"time_s": "now"},
        {"time_s": -1},
        {"rows": -1},
        {"rows": 1.5},
        {"rows_per_second": 1e300},
        {"options": {"--x": 1}},
        {"options": {"a": {"b": 1}}},
        {"reason": "x" * (limits.RUN_TEXT_CHARS + 1)},
        {"logs": [["t", 0, 1]]},
        {"logs": [["t", 0, 1, 2]] * (limits.RUN_LOGS_MAX + 1)},
    ],
)
def test_what_is_no_state(change: dict[str, Any]) -> None:
    with pytest.raises(RunMessageInvalid):
        decode(json.dumps(LEAST | change).encode())


@each(
    "change",
    [
        {"form": "js"},
        {"part": 1},
        {"parts": 0},
        {"parts": PARTS_MAX + 1},
        {"text": "x" * (limits.RUN_PART_CHARS + 1)},
    ],
)
def test_what_is_no_part(change: dict[str, Any]) -> None:
    assert isinstance(decode(json.dumps(PART).encode()), Part)
    with pytest.raises(RunMessageInvalid):
        decode(json.dumps(PART | change).encode())


def test_a_page_that_is_too_long_is_none() -> None:
    assert list(parts_of("r1", "html", "x" * (limits.RUN_PAGE_CHARS + 1))) == []


# --- what Prometheus is told of a run ---


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


def test_a_bad_address_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    pipeline: Pipeline = sample.PIPELINE
    settings = defaults(pipeline.settings, topics=("t",), metrics_address="nowhere")
    assert Run(pipeline, "sample", settings).exit_code() == 1
    assert "'nowhere' is not valid: host:port" in capsys.readouterr().err
