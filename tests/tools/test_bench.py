"""`penstock bench` against a daemon: that it measures what it says, not what comes out."""

import json

import pytest

from e2e.daemon import Daemon
from penstock.tools import bench
from penstock.tools.main import main


def run(daemon: Daemon, *words: str) -> int:
    return main(["bench", *words, f"--nsqd-tcp-address=127.0.0.1:{daemon.tcp_port}"])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "IDLE_S_MAX", 0.3)


@pytest.mark.parametrize("batch", [1, 30])
def test_published_messages_are_consumed(
    batch: int, daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"--topic=t{batch}"
    size = ["--size=50", f"--batch={batch}", "--connections=3", "--json"]
    assert run(daemon, "publish", topic, "--count=1000", *size) == 0
    published = json.loads(capsys.readouterr().out)
    assert (published["messages"], published["batch"]) == (1000, batch)
    assert published["messages_per_second"] > 0
    assert 0 < published["p50_ms"] <= published["p99_ms"] <= published["max_ms"]
    stats = json.loads(daemon.http("GET", f"/stats?format=json&topic=t{batch}")[1])
    assert stats["topics"][0]["message_count"] == 1000
    assert stats["topics"][0]["message_bytes"] == 50_000
    for wanted, found in ((600, 600), (600, 400)):
        assert run(daemon, "consume", topic, f"--count={wanted}", "--json") == 0
        assert json.loads(capsys.readouterr().out)["messages"] == found


def test_the_latency_is_of_its_own_messages(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(daemon, "publish", "--topic=bench_latency", "--count=50") == 0
    capsys.readouterr()
    assert run(daemon, "latency", "--count=40", "--rate=1000", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["topic"], found["messages"]) == ("bench_latency", 40)
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]


def test_nothing_to_consume(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(daemon, "consume", "--topic=empty") == 1
    assert "nothing came from bench in empty: publish first" in capsys.readouterr().err
