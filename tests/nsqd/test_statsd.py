"""statsd: names and forms of the lines, deltas, packets, and a host that is not there."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.nsqd.statsd import Lines, StatsdOptions, check_address, expand_prefix, packets

from .world import Running, eventually, ok, pub

OPTIONS = StatsdOptions("127.0.0.1:1", 1, "p.", 508, memory=False, exclude_ephemeral=False)


def push(nsqd: Running, lines: Lines) -> list[str]:
    found: list[str] = nsqd.call(
        lambda: [line.decode().rstrip("\n") for line in lines.push(nsqd.daemon.broker)]
    )
    return found


def test_lines_and_deltas(tmp_path: Path) -> None:
    with Running(tmp_path) as nsqd, nsqd.client() as client:
        assert client.ask(pub(b"t", b"ab")) == ok()
        assert client.ask(b"SUB t c\n") == ok()
        lines = Lines(OPTIONS)
        assert eventually(lambda: nsqd.channel("t", "c")["depth"] == 1)
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


def test_ephemerals_can_be_left_out_and_memory_put_in(tmp_path: Path) -> None:
    with Running(tmp_path) as nsqd:
        for target in (
            "/topic/create?topic=e%23ephemeral",
            "/topic/create?topic=t",
            "/channel/create?topic=t&channel=c%23ephemeral",
        ):
            assert nsqd.request("POST", target).status == 200
        every = "\n".join(push(nsqd, Lines(OPTIONS)))
        assert "topic.e#ephemeral.depth" in every
        assert "channel.c#ephemeral.depth" in every
        some = push(nsqd, Lines(OPTIONS._replace(exclude_ephemeral=True, memory=True)))
        assert not any("ephemeral" in line for line in some)
        assert [line.split(":")[0] for line in some[4:]] == [
            "p.mem.heap_objects",
            "p.mem.heap_idle_bytes",
            "p.mem.heap_in_use_bytes",
            "p.mem.heap_released_bytes",
            "p.mem.gc_pause_usec_100",
            "p.mem.gc_pause_usec_99",
            "p.mem.gc_pause_usec_95",
            "p.mem.next_gc_bytes",
            "p.mem.gc_runs",
        ]
        assert some[-1].endswith("|c")


def test_packets_are_split_at_line_ends() -> None:
    lines = [b"aaaa\n", b"bbbb\n", b"c" * 20 + b"\n", b"dddd\n"]
    assert packets(lines, 10) == [b"aaaa\nbbbb\n", b"c" * 20 + b"\n", b"dddd\n"]
    assert packets(lines, 9) == lines
    assert packets([], 9) == []


@pytest.mark.parametrize(
    ("prefix", "expanded"),
    [
        ("nsq.%s", "nsq.127_0_0_1_24151."),
        ("nsq.%s.", "nsq.127_0_0_1_24151."),
        ("x", "x."),
        ("", ""),
    ],
)
def test_prefix(prefix: str, expanded: str) -> None:
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


def test_a_host_that_is_not_there_hurts_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flags = ("--statsd-address=no.such.host.invalid:8125", "--statsd-interval=20ms")
    with caplog.at_level("INFO", "penstock.nsqd"), Running(tmp_path, *flags) as nsqd:
        assert eventually(lambda: "statsd no.such.host.invalid:8125" in caplog.text)
        assert nsqd.request("POST", "/pub?topic=t", b"x").body == b"OK"
    assert caplog.text.count("statsd no.such") == 1
