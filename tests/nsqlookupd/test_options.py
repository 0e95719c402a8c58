import contextlib
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import __version__, limits
from penstock.errors import ConfigError
from penstock.nsqlookupd.options import FLAGS, read_options

from .running import Running
from .world import sized

OFFICIAL = {
    "version", "config", "log-level", "log-prefix", "verbose", "tcp-address", "http-address",
    "broadcast-address", "inactive-producer-timeout", "tombstone-lifetime",
}  # fmt: skip
OURS = {
    "log-format", "http-allowed-host", "http-secret-file", "cluster", "cluster-etcd-ca",
    "cluster-password-file", "http-client-tls-root-ca-file", "http-client-tls-cert",
    "http-client-tls-key",
}  # fmt: skip


def test_every_flag_is_known() -> None:
    assert {flag.name for flag in FLAGS} == OFFICIAL | OURS


def test_mistakes() -> None:
    with pytest.raises(ConfigError, match="inactive-producer-timeout"):
        read_options(["--inactive-producer-timeout=0s"], {})
    assert read_options(["--inactive-producer-timeout=0s", "--version"], {}).version


# --- the executable as a process: flags, exit codes, signals ---


LOOKUPD = [sys.executable, "-m", "penstock.nsqlookupd.main"]
PORTS = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
WAIT_SECONDS = 60


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LOOKUPD, *arguments], capture_output=True, text=True, timeout=WAIT_SECONDS
    )


def test_version_and_a_wrong_flag() -> None:
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith(f"nsqlookupd v{__version__} (built w/python")
    done = run("--nope")
    assert done.returncode == 2
    assert done.stderr.startswith("flag provided but not defined: -nope\nUsage of nsqlookupd:")


def test_a_start_that_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run(f"--tcp-address=127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == 1
    assert done.stderr.count("FATAL: failed to start nsqlookupd - listen (") == 1
    done = run("--tombstone-lifetime=-1s")
    assert (done.returncode, done.stderr.count("FATAL: tombstone-lifetime")) == (1, 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it(number: int) -> None:
    with subprocess.Popen([*LOOKUPD, *PORTS], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        message = ""
        while "HTTP: listening on" not in message:
            line = process.stderr.readline()
            assert line
            message += line
        process.send_signal(number)
        message += process.stderr.read()
        assert process.wait(WAIT_SECONDS) == 0
    assert message.startswith("[nsqlookupd] ")
    assert message.rstrip().endswith("INFO: NSQLOOKUPD: bye")


# --- A whole nsqlookupd on real sockets ---


def test_answers_come_in_order_and_a_fatal_one_is_the_last() -> None:
    with Running() as lookupd, lookupd.client() as client:
        assert client.ask(b"  V1PING\nPING\nFOO\n" + b"x" * 300_000) == b"OK"
        assert client.read() == b"OK"
        assert client.read() == b"E_INVALID invalid command FOO"
        assert client.read() == b""


def test_a_half_closed_client_gets_its_answers() -> None:
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


def test_a_silent_client_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
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
        flag = f"--http-address=127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=r"listen \(127.0.0.1"), Running(flag):
            pass
    for flag in ("--tcp-address=127.0.0.1:x", "--tcp-address=", "--http-address="):
        with pytest.raises(ConfigError, match="-address"), Running(flag):
            pass
