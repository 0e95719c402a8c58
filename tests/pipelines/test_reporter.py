"""Telling about a run: what is told, when, and that a run never feels it."""

import io
import threading
import time
import urllib.request
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cases import each
from e2e.lookupd import eventually
from penstock import limits
from penstock.errors import BrokerRefused, ConfigError, FetchFailed, PenstockError
from penstock.pipelines import reporter
from penstock.pipelines.archive import SETTINGS
from penstock.pipelines.progress import Progress
from penstock.pipelines.reporter import (
    Outlet,
    RunMetrics,
    Screen,
    Teller,
    furthest_behind,
    reported,
    served,
)
from penstock.pipelines.runner import Pipeline
from penstock.pipelines.runs import LogOffsets, Part, Report, RunStatus, decode
from penstock.pipelines.settings import COMMON, Settings

from . import sample
from .sample import defaults

WAIT_S = 60.0


class Kept(Outlet):
    """An nsqd that takes everything, or says why not."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.error: PenstockError | None = None
        self.asked = 0

    def publish(self, body: bytes) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error
        self.bodies.append(body)

    def close(self) -> None:
        pass

    @property
    def states(self) -> list[RunStatus]:
        return [one for one in map(decode, self.bodies) if isinstance(one, RunStatus)]


def settings(**changed: Any) -> Settings:
    return defaults(sample.PIPELINE.settings, topics=("t",), **changed)


class World:
    def __init__(self, **changed: Any) -> None:
        self.out = io.StringIO()
        self.progress = Progress("sample", 0, self.out)
        self.nsqd = Kept()
        chosen = settings(**changed)
        self.teller = Teller(sample.PIPELINE, "nightly", chosen, self.progress, self.nsqd)

    def look(self) -> RunStatus:
        self.teller.look()
        return self.nsqd.states[-1]


def test_a_run_from_its_start_to_its_end() -> None:
    world = World(rows=5)
    first = world.look()
    assert (first.state, first.name, first.pipeline) == ("started", "nightly", "sample")
    assert first.options == {"topics": ["t"], "rows": 5}
    world.progress.note(
        phase="running", table="/lake", checkpoint="/lake/c", batch=3, committed_s=99.0
    )
    world.progress.note(logs={("t", 0): (4, 9)}, version_of=lambda: 12)
    world.progress.report(Report(7, 2.5, lag_rows=5, lag_seconds=1.0, left_seconds=2.0))
    world.progress.say("hello")
    now = world.look()
    assert (now.state, now.rows, now.rows_per_second, now.lag_rows) == ("running", 7, 2.5, 5)
    assert (now.table, now.table_version, now.batch, now.said) == ("/lake", 12, 3, "hello")
    assert now.logs == [LogOffsets("t", 0, 4, 9)]
    world.progress.end("finished", 0)
    world.teller.start()
    world.teller.end()
    last = world.nsqd.states[-1]
    assert (last.state, last.code, last.rows, last.left_seconds) == ("finished", 0, 7, None)
    seqs = [state.seq for state in world.nsqd.states]
    assert seqs == sorted(set(seqs))
    assert {state.run for state in world.nsqd.states} == {first.run}


def test_unchanged_reports_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RUN_ALIVE_S", 1e9)
    world = World()
    world.progress.report(Report(7, lag_seconds=1.0))
    for lag_s in (2.0, 3.0, 4.0):
        world.progress.report(Report(7, lag_seconds=lag_s))
        world.teller.look()
    assert len(world.nsqd.bodies) == 1
    monkeypatch.setattr(limits, "RUN_ALIVE_S", 0.0)
    world.progress.note(reported_s=time.time() - 60)  # an outage
    assert world.look().lag_seconds == pytest.approx(64.0, abs=5.0)
    assert len(world.nsqd.bodies) == 2


def test_a_failure_is_told_with_its_reason_and_no_secret() -> None:
    world = World(conf=("spark.secret=hunter22",))
    world.progress.end("failed", 3, "http://me:pw@host/x?sig=1 says hunter22 is wrong")
    world.teller.start()
    world.teller.end()
    last = world.nsqd.states[-1]
    assert (last.state, last.code) == ("failed", 3)
    assert last.reason == "http://***@host/x?*** says *** is wrong"
    assert not any(b"hunter22" in body for body in world.nsqd.bodies)


def test_pages_come_in_parts_and_once() -> None:
    world = World()
    page = "x" * (limits.RUN_PART_CHARS + 1)
    world.progress.note(pages=(("html", page), ("json", "{}")))
    world.look()
    world.look()
    parts = [one for one in map(decode, world.nsqd.bodies) if isinstance(one, Part)]
    assert [(one.form, one.part, one.parts) for one in parts] == [
        ("html", 0, 2),
        ("html", 1, 2),
        ("json", 0, 1),
    ]


def test_a_page_that_nsqd_finds_too_large_is_left_out_with_a_word() -> None:
    world = World()

    class Small(Kept):
        def publish(self, body: bytes) -> None:
            if len(body) > 1000:
                raise BrokerRefused("http://h/pub", 413, "MSG_TOO_BIG", {})
            super().publish(body)

    world.nsqd = world.teller._outlet = Small()
    world.progress.note(outcome="3 findings", pages=(("html", "x" * 1000), ("json", "{}")))
    assert world.look().outcome == "3 findings; its html report is larger than nsqd's max-msg-size"
    (part,) = (one for one in map(decode, world.nsqd.bodies) if isinstance(one, Part))
    assert part.form == "json"


@pytest.mark.parametrize(
    ("error", "failures"),
    [
        (BrokerRefused("http://h/pub", 503, "FAILED", {"reason": "the disk is full"}), 1),
        (FetchFailed("http://h/pub", "refused"), 2),
    ],
)
def test_a_refusal_is_said_once(error: PenstockError, failures: int) -> None:
    world = World()
    world.progress.say("working")
    world.nsqd.error = error
    for number in range(5):
        world.teller.look()
        assert ("does not hear of this run" in world.out.getvalue()) == (number + 1 >= failures)
    assert world.out.getvalue().count("does not hear of this run") == 1
    world.nsqd.error = None
    assert world.look().said == "working"


def test_an_nsqd_that_answers_nothing_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RUN_END_S", 0.2)
    world, let_go, asked = World(), threading.Event(), threading.Event()

    def hang(body: bytes) -> None:
        asked.set()
        let_go.wait(WAIT_S)

    monkeypatch.setattr(world.nsqd, "publish", hang)
    world.teller.start()
    assert asked.wait(WAIT_S)
    world.progress.report(Report(1))
    world.teller.end()
    assert not let_go.is_set()  # it came back although the thread still waits
    let_go.set()
    world.teller._thread.join(WAIT_S)


def test_a_run_that_exits_is_reported_as_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    monkeypatch.setattr(reporter, "Outlet", lambda settings: kept)
    progress = Progress("sample", 0, io.StringIO())
    pipeline: Pipeline = sample.PIPELINE
    with pytest.raises(SystemExit), reported(pipeline, "sample", settings(), progress):
        raise SystemExit
    assert kept.states[-1].state == "stopped"


def test_an_address_that_is_none_fails_no_run() -> None:
    out = io.StringIO()
    progress = Progress("sample", 0, out)
    with reported(sample.PIPELINE, "sample", settings(url="http://"), progress):
        eventually(lambda: "does not hear of this run" in out.getvalue())
        progress.end("finished", 0)
    assert "url" in out.getvalue()


# --- what of a run's settings leaves the driver ---


def screen(**changed: object) -> Screen:
    return Screen((*COMMON, *SETTINGS), defaults(SETTINGS, **changed))


def test_explicit_options_are_shown_and_no_value_of_storage_and_spark() -> None:
    found = screen(
        table="s3://lake/orders",
        topics=("orders", "bills"),
        once=True,
        trigger=2 * 10**9,
        storage_option=("AWS_SECRET_ACCESS_KEY=abc/DEF=ghi", "AWS_REGION=eu-west-1"),
        conf=("spark.hadoop.fs.s3a.secret.key=hunter22", "spark.ui.enabled=true"),
    )
    assert found.options() == {
        "table": "s3://lake/orders",
        "topics": ["orders", "bills"],
        "once": True,
        "trigger": "2s",
        "storage-option": ["AWS_SECRET_ACCESS_KEY=***", "AWS_REGION=***"],
        "conf": ["spark.hadoop.fs.s3a.secret.key=***", "spark.ui.enabled=***"],
    }


def test_urls_lose_their_user_and_their_query() -> None:
    found = screen(table="abfs://me:pw@lake/x?sig=s3cr3t&b=1", url="http://u:p@host:4151")
    assert found.options() == {"table": "abfs://***@lake/x?***", "url": "http://***@host:4151"}
    assert found.text("at 'https://h/p?token=1': no") == "at 'https://h/p?***': no"
    assert found.text("a@b.c and /x?y=1") == "a@b.c and /x?y=1"


def test_the_furthest_behind_come_first_where_there_are_many() -> None:
    logs = {(f"t{n:04}", 0): (0, n) for n in range(limits.RUN_LOGS_MAX + 50)}
    found = furthest_behind(logs)
    assert len(found) == limits.RUN_LOGS_MAX
    assert (found[0].topic, found[-1].topic) == ("t0050", "t0149")


# --- what Prometheus is told of a run ---


def values(progress: Progress) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(RunMetrics("archive", "nightly", progress))
    lines = generate_latest(registry).decode().splitlines()
    found = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in found}


LABELS = '{name="nightly",pipeline="archive"}'


def test_the_figures_of_a_run() -> None:
    progress = Progress("archive", 0, io.StringIO())
    before = values(progress)
    assert before[f"penstock_pipeline_up{LABELS}"] == 0
    assert f"penstock_pipeline_lag_rows{LABELS}" not in before  # nobody knows it yet
    progress.report(Report(12, rows_per_second=3.5, lag_rows=4, lag_seconds=1.25))
    progress.note(phase="running", batch=3, committed_s=1.7e9, logs={("orders", 0): (10, 14)})
    progress.note(waiting=True, outages=2)
    assert values(progress) == {
        f"penstock_pipeline_up{LABELS}": 1,
        f"penstock_pipeline_waiting{LABELS}": 1,
        f"penstock_pipeline_outages_total{LABELS}": 2,
        f"penstock_pipeline_rows_total{LABELS}": 12,
        f"penstock_pipeline_rows_per_second{LABELS}": 3.5,
        f"penstock_pipeline_lag_rows{LABELS}": 4,
        f"penstock_pipeline_lag_seconds{LABELS}": pytest.approx(1.25, abs=5.0),
        f"penstock_pipeline_batch{LABELS}": 3,
        f"penstock_pipeline_last_commit_timestamp_seconds{LABELS}": 1.7e9,
        'penstock_pipeline_topic_lag_rows{name="nightly",partition="0",pipeline="archive",'
        'topic="orders"}': 4,
    }


def test_they_are_served() -> None:
    metrics = RunMetrics("archive", "nightly", Progress("archive", 0, io.StringIO()))
    with served("127.0.0.1:0", metrics) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert f"penstock_pipeline_up{LABELS} 0.0" in answer.read().decode()
        with (
            pytest.raises(ConfigError, match="can't be listened on"),
            served(f"127.0.0.1:{port}", metrics),
        ):
            raise AssertionError("two listen on one port")


@each("address", ["", "9209", "host", "h:x", ":9209"])
def test_addresses_that_are_none(address: str) -> None:
    metrics = RunMetrics("archive", "nightly", Progress("archive", 0, io.StringIO()))
    with pytest.raises(ConfigError, match="host:port"), served(address, metrics):
        raise AssertionError("it listens")
