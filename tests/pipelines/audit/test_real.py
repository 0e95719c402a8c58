"""A real nsqd that traces, real consumers, and the two pipelines behind it: they agree."""

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from e2e.daemon import Daemon
from e2e.lookupd import eventually
from e2e.v2client import V2Client
from penstock.pipelines import trace
from penstock.pipelines.audit import program as audit
from penstock.pipelines.progress import Progress
from penstock.trace.events import TOPIC as TRACE
from spark.patience import patiently

from ..node import Node, numbered
from ..sample import defaults

TIMEOUT_MS = 1000
LATER = "2100-01-01T00:00:00Z"  # far behind every settle time


class Bench:
    """An nsqd whose topic `orders` is traced, and the tables made of it."""

    def __init__(self, spark: SparkSession, daemon: Daemon, path: Path, capsys: Any) -> None:
        self.daemon, self.node = daemon, Node(daemon)
        self._spark, self._path, self._capsys = spark, path, capsys

    def traced(self) -> None:
        self.daemon.make("orders", "mail")
        self.daemon.post("/topic/config?topic=orders&trace_rate=1")

    def consumer(self, timeout_ms: int = 60_000) -> V2Client:
        client = self.daemon.client()
        client.identify(msg_timeout=timeout_ms)
        client.sub("orders", "mail")
        return client

    def audited(self, **given: Any) -> tuple[int, dict[str, Any]]:
        """Exit code and report, after the trace pipeline has taken in all there is."""
        table = str(self._path / "trace")
        self._end_is_readable()
        settings = defaults(trace.SETTINGS, url=self.node.url, table=table, once=True)
        answer = Progress("trace", stream=io.StringIO())
        assert patiently(lambda: trace.run(self._spark, settings, answer)) == 0
        chosen = {"topic": "orders", "trace": table, "json": True, "as-of": LATER, **given}
        settings = defaults(audit.SETTINGS, **chosen)
        self._capsys.readouterr()
        code = audit.run(self._spark, settings, Progress("audit", stream=io.StringIO()))
        report: dict[str, Any] = json.loads(self._capsys.readouterr().out)["audit"]
        return code, report

    def _end_is_readable(self) -> None:
        """The trace is synced now and then, and only what is synced is read."""
        self.daemon.post(f"/topic/config?topic={TRACE}&durability=disk")
        self.daemon.post("/topic/create?topic=other")
        for rate in (1, 0):  # a change of a rate is written at once, and all before it
            self.daemon.post(f"/topic/config?topic=other&trace_rate={rate}")
        end = self.trace_end()
        eventually(lambda: self.node.end(TRACE) >= end)

    def trace_end(self) -> int:
        found: int = self.daemon.topic_stats(TRACE)["message_count"]
        return found


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    with Daemon(tmp_path / "nsqd") as daemon:
        yield Bench(spark, daemon, tmp_path, capsys)


def counts(report: dict[str, Any]) -> dict[str, int]:
    return {found["kind"]: found["count"] for found in report["findings"]}


def work(bench: Bench, count: int) -> None:
    """Two consumers: each seventh message is requeued, some with a wait, some time out (and are
    finished too late), some are touched; one consumer leaves with messages in its hands."""
    bench.node.publish("orders", numbered(count))
    with bench.consumer(TIMEOUT_MS) as first, bench.consumer(TIMEOUT_MS) as second:
        for consumer in (first, second):
            consumer.rdy(20)
        taken = [(c, c.message()) for _ in range(10) for c in (first, second)]
        for position, (consumer, message) in enumerate(taken):
            assert message is not None
            if position % 7 == 1:
                consumer.req(message.id, 300 if position % 2 else 0)
            elif position in (4, 5):
                consumer.touch(message.id)
                consumer.fin(message.id)
            elif position not in (6, 7):
                consumer.fin(message.id)
        late = [(c, m) for c, m in taken[6:8] if m is not None]
        second.rdy(0)
        time.sleep(TIMEOUT_MS / 1000 + 0.5)  # the late ones time out
        for consumer, message in late:
            consumer.fin(message.id)  # refused, unless it came again to the same
    finish_all(bench)


def finish_all(bench: Bench) -> None:
    with bench.consumer() as consumer:
        consumer.rdy(50)

        def done() -> bool:
            consumer.drain(0.1)
            found = bench.daemon.channel_stats("orders", "mail")
            return not (found["depth"] + found["in_flight_count"] + found["deferred_count"])

        eventually(done)


def test_hard_work_done_is_clean(bench: Bench) -> None:
    bench.traced()
    work(bench, 200)
    code, report = bench.audited()
    assert (code, counts(report)) == (0, {}), report
    (channel,) = report["channels"]
    assert (channel["messages"], channel["judged"]) == (200, 200)
    assert channel["fates"]["finished"] == 200
    assert channel["sends"] > 200
    assert report["coverage"]["share"] == 1.0


def test_a_kill_makes_nothing_lost(bench: Bench) -> None:
    """What was out comes again, and nobody gave it back; of the last moment nothing is known."""
    bench.traced()
    before = bench.trace_end()
    bench.node.publish("orders", numbered(100))
    eventually(lambda: bench.trace_end() > before)  # the publishes are noted
    with bench.consumer() as consumer:
        consumer.rdy(40)
        consumer.fin(*(message.id for message in consumer.messages(40)[:20]))
        bench.daemon.channel_stats("orders", "mail")
        bench.daemon.kill()
    bench.daemon.start()
    finish_all(bench)
    bench.node.publish("orders", numbered(20))
    finish_all(bench)
    _, report = bench.audited()
    assert not counts(report).keys() - {"stuck"}, report
    assert report["channels"][0]["messages"] == 120
    code, report = bench.audited(url=bench.node.url)  # the channel's own journal knows
    assert (code, counts(report)) == (0, {}), report
