"""`_trace` of a broker into a table, and the report out of it."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.errors import ConfigError
from penstock.pipelines import topic_logs, trace
from penstock.pipelines.checkpoints import Checkpoint
from penstock.pipelines.progress import Progress
from penstock.spark.delta_table import TableLocation
from penstock.trace.events import TOPIC, Event, Kind, encode
from spark.fakebroker import FakeBroker
from spark.patience import patiently

from .deltareaders import READERS, wrong
from .sample import defaults

MS_NS = 1_000_000
T0_NS = 1_790_000_000_000 * MS_NS


def life(offset: int, took_ms: int) -> bytes:
    """A body: published, sent after one millisecond, finished."""
    times = (0, 1, took_ms)
    kinds = (Kind.PUBLISHED, Kind.SENT, Kind.FINISHED)
    return encode(
        Event(kind, T0_NS + after * MS_NS, "orders", channel, 0, offset, offset + 1, attempts)
        for kind, after, channel, attempts in zip(
            kinds, times, (None, "billing", "billing"), (0, 1, 1), strict=True
        )
    )


def run(spark: SparkSession, broker: FakeBroker, table: Path, **given: Any) -> int:
    given = {"url": broker.url, "table": str(table), "once": True, **given}
    settings = defaults(trace.SETTINGS, **given)
    trace.check(settings)
    return patiently(lambda: trace.run(spark, settings, Progress("trace", stream=io.StringIO())))


def places(table: Path) -> list[tuple[int, int]]:
    rows = DeltaTable(table).to_pyarrow_table(columns=["trace_offset", "trace_index"])
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def test_every_event_is_in_the_table_once_and_reported(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "trace"
    with FakeBroker() as broker:
        with pytest.raises(ConfigError, match="nothing was ever traced"):
            run(spark, broker, table)
        broker.topic(TOPIC).publish([life(offset, 10) for offset in range(5)])
        assert run(spark, broker, table) == 0
        broker.topic(TOPIC).publish([life(offset, 400) for offset in range(5, 8)])
        assert run(spark, broker, table, report=True, json=True, slowest=2) == 0
    assert places(table) == [(body, index) for body in range(8) for index in range(3)]
    reported = json.loads(capsys.readouterr().out)
    (hour,) = reported["latency"]
    assert (hour["messages"], hour["finished"], hour["total_max_us"]) == (8, 8, 400_000)
    assert (hour["first_sent_p50_us"], hour["total_p50_us"]) == (1000, 10_000)
    assert [row["offset"] for row in reported["slow"]] == [5, 6]
    lives = DeltaTable(f"{table}_lives").to_pyarrow_table(columns=["offset", "channel", "fate"])
    assert sorted(lives["offset"].to_pylist()) == list(range(8))
    assert set(lives["fate"].to_pylist()) == {"finished"}
    for name in ("", "_lives"):
        for reader, count in READERS.items():
            assert (name, reader, wrong(Path(f"{table}{name}"), count)) == (name, reader, [])


def test_a_table_without_its_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "trace"
    with FakeBroker() as broker:
        broker.topic(TOPIC).publish([life(0, 10)])
        run(spark, broker, table)
        with pytest.raises(ConfigError, match="would come again"):
            run(spark, broker, table, checkpoint=str(tmp_path / "other"))
        with FakeBroker() as other:
            other.topic(TOPIC, "second").publish([life(0, 10)])
            with pytest.raises(ConfigError, match="not nodes of one cluster"):
                run(spark, broker, table, url=f"{broker.url},{other.url}")


def test_a_run_that_died_at_its_beginning_is_followed_by_another(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise InterruptedError

    with FakeBroker() as broker:
        broker.topic(TOPIC).publish([life(0, 10)])
        with monkeypatch.context() as patched:
            patched.setattr(Checkpoint, "_make", killed)
            with pytest.raises(InterruptedError):
                run(spark, broker, tmp_path / "trace")
        assert run(spark, broker, tmp_path / "trace") == 0


def test_a_table_that_another_run_has_begun_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Before it has events, too: both would bring them."""
    location = TableLocation(str(tmp_path / "trace"), {})
    location.create(trace.SHAPE, {})
    topic_logs.claim(location, "penstock-archive-trace-other", [TOPIC])
    with FakeBroker() as broker:
        broker.topic(TOPIC).publish([life(0, 10)])
        with pytest.raises(ConfigError, match="penstock-archive-trace-other writes this topic"):
            run(spark, broker, tmp_path / "trace")
    assert places(tmp_path / "trace") == []
