"""/metrics: the form that Prometheus reads, and that the numbers are the right ones."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock import limits
from penstock.net.sync import SyncTimes
from penstock.nsqd.metrics import CHANNEL_METRICS, TOPIC_METRICS, cluster_lines
from penstock.nsqd.statsd import Lines, StatsdOptions

from .world import Running, eventually, ok, pub

SAMPLE = re.compile(r'([a-z0-9_]+)(?:\{([a-z_]+="(?:[^"\\\n]|\\.)*",?)*\})? (-?[\d.e+-]+)')
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def samples(text: str) -> dict[str, float]:
    """By name and labels. Every line has to be right, and every sample to follow its head."""
    found: dict[str, float] = {}
    kind = name = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind == "counter" if name.endswith("_total") else kind in ("gauge", "histogram")
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            base = (
                re.sub(r"_(bucket|sum|count)$", "", match[1]) if kind == "histogram" else match[1]
            )
            assert base == name, line
            key = line.rpartition(" ")[0]
            assert key not in found, line
            found[key] = float(match[3])
    return found


def test_the_numbers(tmp_path: Path) -> None:
    with Running(tmp_path) as nsqd, nsqd.client() as client:
        for body in (b"a", b"bc"):
            assert client.ask(pub(b"t", body)) == ok()
        client.send(b"SUB t c\nRDY 1\n")
        assert client.read() == ok()
        client.send(b"FIN %b\n" % client.message().id)
        client.send(b"REQ %b 60000\n" % client.message().id)
        assert nsqd.request("POST", "/channel/pause?topic=t&channel=c").status == 200
        answer = nsqd.request("GET", "/metrics")
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        found = samples(answer.body.decode())
        topic = {m.name: found[f'nsqd_{m.name}{{topic="t"}}'] for m in TOPIC_METRICS}
        channel = {
            m.name: found[f'nsqd_{m.name}{{topic="t",channel="c"}}'] for m in CHANNEL_METRICS
        }
        assert (topic["topic_messages_total"], topic["topic_message_bytes_total"]) == (2, 3)
        assert topic["topic_stored_bytes"] > 0
        names = ("messages_total", "deliveries_total", "finishes_total", "requeues_total")
        assert [channel[f"channel_{name}"] for name in names] == [2, 2, 1, 1]
        names = ("depth", "in_flight", "deferred", "clients", "paused", "timeouts_total")
        assert [channel[f"channel_{name}"] for name in names] == [0, 0, 1, 1, 1, 0]
        assert (found["nsqd_healthy"], found["nsqd_connections"]) == (1, 1)
        client.socket.close()
        assert eventually(lambda: nsqd.channel("t", "c")["client_count"] == 0)
        later = samples(nsqd.request("GET", "/metrics").body.decode())
        assert later['nsqd_channel_deliveries_total{topic="t",channel="c"}'] == 2
        assert found["nsqd_sync_seconds_count"] >= 1
        assert found['nsqd_sync_seconds_bucket{le="+Inf"}'] == found["nsqd_sync_seconds_count"]
        assert found["process_resident_memory_bytes"] > 1_000_000


def test_latencies_are_there_when_they_are_asked_for(tmp_path: Path) -> None:
    flags = "--e2e-processing-latency-percentile=0.99,0.5"
    with Running(tmp_path, flags) as nsqd, nsqd.client() as client:
        assert client.ask(pub(b"t", b"x")) == ok()
        assert client.ask(b"SUB t c\n") == ok()
        client.send(b"RDY 1\n")
        client.send(b"FIN %b\n" % client.message().id)
        assert eventually(lambda: nsqd.channel("t", "c")["e2e_processing_latency"]["count"] == 1)
        found = samples(nsqd.request("GET", "/metrics").body.decode())
        for quantile in ("0.99", "0.5"):
            labels = f'topic="t",channel="c",quantile="{quantile}"'
            assert 0 < found[f"nsqd_channel_e2e_latency_seconds{{{labels}}}"] < 5
        lines = Lines(StatsdOptions("", 1, "", 508, memory=False, exclude_ephemeral=False))
        told = nsqd.call(lambda: b"".join(lines.push(nsqd.daemon.broker))).decode()
        assert "topic.t.channel.c.e2e_processing_latency_99:" in told
        assert "topic.t.e2e_processing_latency_50:" in told
        text = nsqd.request("GET", "/stats").body.decode()
        assert re.search(r"e2e%: [\d.]+(us|ms|s), [\d.]+(us|ms|s)\n", text)


def test_refused_publishes_are_counted(tmp_path: Path) -> None:
    with Running(tmp_path) as nsqd, nsqd.client() as client:
        assert client.ask(pub(b"t", b"x")) == ok()
        nsqd.call(lambda: nsqd.daemon.broker.topics["t"].leader().group.stop("a bad disk"))
        assert nsqd.request("POST", "/pub?topic=t", b"x").status == 503
        assert nsqd.request("POST", "/mpub?topic=t", b"x").status == 503
        assert client.ask(pub(b"t", b"x")).data == b"E_PUB_FAILED PUB failed a bad disk"
        found = samples(nsqd.request("GET", "/metrics").body.decode())
        assert found["nsqd_publishes_refused_total"] == 3
        assert (found["nsqd_healthy"], found['nsqd_topic_refusing{topic="t"}']) == (0, 1)


def test_every_metric_is_in_the_document(nsqd: Running) -> None:
    state: Any = SimpleNamespace(under_replicated=0, offline=0, leader_changes=0, lag=0)
    text = nsqd.request("GET", "/metrics").body.decode() + "\n".join(cluster_lines(state))
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    rows = re.compile(r"^\| `(\w+)` \| (?:gauge|counter|histogram)", re.MULTILINE)
    of_daemons, _, _ = DOCUMENT.read_text().partition("\n## Pipelines\n")
    assert names == set(rows.findall(of_daemons))


def test_sync_times_fall_into_buckets() -> None:
    times = SyncTimes()
    for took_ns in (0, limits.SYNC_BUCKETS_NS[0], limits.SYNC_BUCKETS_NS[0] + 1, 1 << 60):
        times.note(took_ns)
    counts, total_ns = times.read()
    assert (counts[0], counts[1], counts[-1], sum(counts)) == (2, 1, 1, 4)
    assert total_ns == (1 << 60) + 2 * limits.SYNC_BUCKETS_NS[0] + 1
