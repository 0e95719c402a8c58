"""/metrics: the form that Prometheus reads, and that the numbers are the right ones."""

import re
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.nsqd.metrics import CHANNEL_METRICS, TOPIC_METRICS, cluster_lines
from penstock.nsqd.options import read_options
from penstock.nsqd.statsd import Lines, check_address, expand_prefix, packets

from .world import Running, eventually, ok, pub, running_with

nsqd = running_with()

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
            assert client.ask(pub("t", body)) == ok()
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
        eventually(lambda: nsqd.channel("t", "c")["client_count"] == 0)
        later = samples(nsqd.request("GET", "/metrics").body.decode())
        assert later['nsqd_channel_deliveries_total{topic="t",channel="c"}'] == 2
        assert found["nsqd_sync_seconds_count"] >= 1
        assert found['nsqd_sync_seconds_bucket{le="+Inf"}'] == found["nsqd_sync_seconds_count"]
        assert found["process_resident_memory_bytes"] > 1_000_000


def test_latencies_are_there_when_they_are_asked_for(tmp_path: Path) -> None:
    flags = "--e2e-processing-latency-percentile=0.99,0.5"
    with Running(tmp_path, flags) as nsqd, nsqd.client() as client:
        assert client.ask(pub("t", b"x")) == ok()
        client.consume("t", "c", 1)
        client.send(b"FIN %b\n" % client.message().id)
        eventually(lambda: nsqd.channel("t", "c")["e2e_processing_latency"]["count"] == 1)
        found = samples(nsqd.request("GET", "/metrics").body.decode())
        for quantile in ("0.99", "0.5"):
            labels = f'topic="t",channel="c",quantile="{quantile}"'
            assert 0 < found[f"nsqd_channel_e2e_latency_seconds{{{labels}}}"] < 5
        lines = Lines(OPTIONS, 1)
        document = nsqd.call(lambda: b"".join(lines.push(nsqd.daemon.broker))).decode()
        assert "topic.t.channel.c.e2e_processing_latency_99:" in document
        assert "topic.t.e2e_processing_latency_50:" in document
        text = nsqd.request("GET", "/stats").body.decode()
        assert re.search(r"e2e%: [\d.]+(us|ms|s), [\d.]+(us|ms|s)\n", text)


def test_every_metric_is_in_the_document(nsqd: Running) -> None:
    state: Any = SimpleNamespace(
        under_replicated=0, offline=0, leader_changes=0, lag=0, lag_bytes=0, clock_ahead_ns=0
    )
    text = nsqd.request("GET", "/metrics").body.decode() + "\n".join(cluster_lines(state))
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    rows = re.compile(r"^\| `(\w+)` \| (?:gauge|counter|histogram)", re.MULTILINE)
    of_daemons, _, _ = DOCUMENT.read_text().partition("\n## Pipelines\n")
    assert names == set(rows.findall(of_daemons))


# --- statsd: names and forms of the lines, deltas, packets, and a host that is not there ---


FLAGS = ["--statsd-address=127.0.0.1:1", "--statsd-prefix=p", "--statsd-mem-stats=false"]
OPTIONS = read_options(FLAGS, {})


def push(nsqd: Running, lines: Lines) -> list[str]:
    found: list[str] = nsqd.call(
        lambda: [line.decode().rstrip("\n") for line in lines.push(nsqd.daemon.broker)]
    )
    return found


def test_lines_and_deltas(tmp_path: Path) -> None:
    with Running(tmp_path) as nsqd, nsqd.client() as client:
        assert client.ask(pub("t", b"ab")) == ok()
        assert client.ask(b"SUB t c\n") == ok()
        lines = Lines(OPTIONS, 1)
        eventually(lambda: nsqd.channel("t", "c")["depth"] == 1)
        assert push(nsqd, lines) == [
            "p.topic.t.message_count:1|c",
            "p.topic.t.message_bytes:2|c",
            "p.topic.t.depth:0|g",
            "p.topic.t.backend_depth:0|g",
            "p.topic.t.channel.c.message_count:1|c",
            "p.topic.t.channel.c.depth:1|g",
            "p.topic.t.channel.c.backend_depth:0|g",
            "p.topic.t.channel.c.in_flight_count:0|g",
            "p.topic.t.channel.c.deferred_count:0|g",
            "p.topic.t.channel.c.requeue_count:0|c",
            "p.topic.t.channel.c.timeout_count:0|c",
            "p.topic.t.channel.c.clients:1|g",
        ]
        again = push(nsqd, lines)
        assert again[:2] == ["p.topic.t.message_count:0|c", "p.topic.t.message_bytes:0|c"]
        assert "p.topic.t.channel.c.depth:1|g" in again
        nsqd.request("POST", "/topic/delete?topic=t")
        nsqd.request("POST", "/topic/create?topic=t")
        assert push(nsqd, lines)[0] == "p.topic.t.message_count:0|c"


def test_ephemerals_can_be_left_out_and_memory_put_in(nsqd: Running) -> None:
    topics = "/topic/create?topic=e%23ephemeral", "/topic/create?topic=t"
    nsqd.post(*topics, "/channel/create?topic=t&channel=c%23ephemeral")
    every = "\n".join(push(nsqd, Lines(OPTIONS, 1)))
    assert "topic.e#ephemeral.depth" in every
    assert "channel.c#ephemeral.depth" in every
    flags = [*FLAGS[:2], "--statsd-exclude-ephemeral"]
    some = push(nsqd, Lines(read_options(flags, {}), 1))
    assert not any("ephemeral" in line for line in some)
    heap = ("heap_objects", "heap_idle_bytes", "heap_in_use_bytes", "heap_released_bytes")
    pauses = ("gc_pause_usec_100", "gc_pause_usec_99", "gc_pause_usec_95")
    names = [f"p.mem.{name}" for name in (*heap, *pauses, "next_gc_bytes", "gc_runs")]
    assert [line.split(":")[0] for line in some[4:]] == names
    assert some[-1].endswith("|c")


def test_prefix() -> None:
    address = "nsq.127_0_0_1_24151."
    for prefix, expanded in (("nsq.%s", address), ("nsq.%s.", address), ("x", "x."), ("", "")):
        assert expand_prefix(prefix, "127.0.0.1", 24151) == expanded


def test_an_address_without_a_port_is_refused() -> None:
    check_address("")
    check_address("h:8125")
    with pytest.raises(ConfigError, match="statsd-address"):
        check_address("h")


def test_packets_arrive_and_stay_small(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(40)
        flags = (
            f"--statsd-address=127.0.0.1:{receiver.getsockname()[1]}",
            "--statsd-interval=50ms",
            "--statsd-udp-packet-size=200",
            "--broadcast-address=me",
        )
        with Running(tmp_path, *flags) as nsqd:
            nsqd.request("POST", "/pub?topic=t", b"x")
            port = nsqd.daemon.http_address.port
            seen = b""
            while b"topic.t.message_count:1|c" not in seen:
                packet = receiver.recv(65536)
                assert len(packet) <= 200
                assert packet.endswith(b"\n")
                seen += packet
            assert b"nsq.me_%d.mem.heap_objects:" % port in seen


def test_a_missing_host_is_harmless(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flags = ("--statsd-address=no.such.host.invalid:8125", "--statsd-interval=20ms")
    with caplog.at_level("INFO", "penstock.nsqd"), Running(tmp_path, *flags) as nsqd:
        eventually(lambda: "statsd no.such.host.invalid:8125" in caplog.text)
        assert nsqd.request("POST", "/pub?topic=t", b"x").body == b"OK"
    assert caplog.text.count("statsd no.such") == 1


def test_packets_are_split_at_line_ends() -> None:
    lines = [b"aaaa\n", b"bbbb\n", b"c" * 20 + b"\n", b"dddd\n"]
    assert packets(lines, 10) == [b"aaaa\nbbbb\n", b"c" * 20 + b"\n", b"dddd\n"]
    assert packets(lines, 9) == lines
    assert packets([], 9) == []
