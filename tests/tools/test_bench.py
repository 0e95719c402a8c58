"""`penstock bench` against a daemon: that it measures what it says, not what comes out."""

import pytest

from e2e.daemon import Daemon

from .utilities import Run, as_json, tcp


@pytest.fixture
def bench(penstock: Run, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("penstock.tools.bench.IDLE_S_MAX", 0.3)
    return lambda *words: penstock("bench", *words, tcp(daemon))


@pytest.mark.parametrize("batch", [1, 30])
def test_published_messages_are_consumed(batch: int, daemon: Daemon, bench: Run) -> None:
    topic = f"--topic=t{batch}"
    size = ["--size=50", f"--batch={batch}", "--connections=3", "--json"]
    published = as_json(bench("publish", topic, "--count=1000", *size))
    assert (published["messages"], published["batch"]) == (1000, batch)
    assert published["messages_per_second"] > 0
    assert 0 < published["p50_ms"] <= published["p99_ms"] <= published["max_ms"]
    stats = daemon.topic_stats(f"t{batch}")
    assert (stats["message_count"], stats["message_bytes"]) == (1000, 50_000)
    for wanted, found in ((600, 600), (600, 400)):
        consumed = as_json(bench("consume", topic, f"--count={wanted}", "--json"))
        assert consumed["messages"] == found


def test_the_latency_is_of_its_own_messages(bench: Run) -> None:
    assert bench("publish", "--topic=bench_latency", "--count=50")[0] == 0
    found = as_json(bench("latency", "--count=40", "--rate=1000", "--json"))
    assert (found["topic"], found["messages"]) == ("bench_latency", 40)
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]


def test_nothing_to_consume(bench: Run) -> None:
    code, _, err = bench("consume", "--topic=empty")
    assert (code, "nothing came from bench in empty: publish first" in err) == (1, True)
