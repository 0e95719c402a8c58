"""A whole nsqlookupd on real sockets."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from penstock import limits
from penstock.errors import ConfigError

from .running import Running
from .test_routes import eventually
from .world import sized


def test_answers_come_in_order_and_a_fatal_one_is_the_last() -> None:
    with Running() as lookupd, lookupd.client() as client:
        assert client.ask(b"  V1PING\nPING\nFOO\n" + b"x" * 300_000) == b"OK"
        assert client.read() == b"OK"
        assert client.read() == b"E_INVALID invalid command FOO"
        assert client.read() == b""


def test_a_half_closed_client_hears_its_answers() -> None:
    with Running() as lookupd, lookupd.client() as client:
        client.socket.sendall(b"  V1PING\nIDENTIFY\n\0\0")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.read() == b"OK"
        assert client.read() == b"E_BAD_BODY IDENTIFY failed to read body size"
        assert client.read() == b""


def test_a_client_that_does_not_read_is_not_read() -> None:
    with Running() as lookupd, lookupd.client() as client:
        client.socket.sendall(b"  V1")
        client.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.socket.sendall(b"PING\n" * 20_000_000)
        (connection,) = lookupd.daemon.connections
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_size() < 4 << 20


def test_who_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOOKUP_MAGIC_NS", 1 * limits.SECOND)
    with Running() as lookupd, lookupd.nsqd("t") as nsqd, lookupd.client() as client:
        client.socket.sendall(b"  V")
        with contextlib.suppress(ConnectionError):
            assert client.read() == b""
        assert nsqd.ask(b"PING\n") == b"OK"


def test_a_stop_ends_connections() -> None:
    with Running() as lookupd:
        client = lookupd.nsqd("t")
    with client, contextlib.suppress(ConnectionError):
        assert client.read() == b""


def test_a_lost_connection_takes_its_producer_along() -> None:
    with Running() as lookupd:
        lookupd.nsqd("t").close()
        assert eventually(lambda: lookupd.get("/lookup?topic=t")["producers"] == [])
        assert lookupd.get("/topics") == {"topics": ["t"]}


def test_unix_sockets(tmp_path: Path) -> None:
    tcp, http = tmp_path / "tcp", tmp_path / "http"
    with Running(f"--tcp-address={tcp}", f"--http-address={http}") as lookupd:
        assert lookupd.daemon.about["http_port"] == -1
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(40)
            sock.connect(str(tcp))
            sock.sendall(b"  V1PING\n")
            assert sock.recv(100) == sized(b"OK")
    assert not tcp.exists()
    assert not http.exists()


def test_a_taken_port_fails_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for flag in ("tcp", "http"):
            with (
                pytest.raises(OSError, match=f"listen \\({address}\\) failed"),
                Running(f"--{flag}-address={address}"),
            ):
                pass
    for flag in ("--tcp-address=127.0.0.1:x", "--tcp-address=", "--http-address="):
        with pytest.raises(ConfigError, match="-address"), Running(flag):
            pass
