"""SIGHUP and SIGQUIT of the real process, and what a closed terminal leaves behind."""

import asyncio
import http.client
import os
import pty
import re
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from e2e.certificates import Certificates
from e2e.daemon import Daemon
from e2e.lookupd import eventually
from e2e.ports import kept_port
from e2e.v2upgraded import Upgraded
from penstock.command.run import serve

WAIT_S = 60


def hang_up(daemon: Daemon, answer: str) -> None:
    daemon.signal(signal.SIGHUP)
    eventually(lambda: answer in daemon.stderr(), WAIT_S, daemon.stderr)


def test_sigquit_writes_the_stacks_and_stops_in_order(daemon: Daemon) -> None:
    daemon.post("/pub?topic=t", b"x")
    daemon.signal(signal.SIGQUIT)
    assert daemon.wait() == 0
    log = daemon.stderr()
    assert "SIGQUIT: stopping; the stacks are" in log
    assert "thread MainThread:\n" in log
    assert log.rstrip().endswith("INFO: NSQ: bye")


async def test_a_stop_ends_a_start_that_waits() -> None:
    async def start() -> None:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()

    service: Any = SimpleNamespace(ended=asyncio.Future(), broken=False, start=start)
    async with asyncio.timeout(20):
        assert await serve(service, "nsqd") == 0


def test_sighup_without_a_terminal_reloads_and_goes_on(tmp_path: Path) -> None:
    config = tmp_path / "nsqd.toml"
    config.write_text('log_level = "info"\n')
    with Daemon(tmp_path / "data", f"--config={config}") as daemon:
        config.write_text('log_level = "debug"\nmax_rdy_count = 7\n')
        hang_up(daemon, "INFO: reloaded: certificates")
        assert "changed settings that need a restart: -max-rdy-count" in daemon.stderr()
        assert daemon.http("GET", "/config/log_level") == (200, b"1")
        assert daemon.http("GET", "/config/max_rdy_count") == (200, b"2500")
        config.write_text('log_levle = "info"\n')
        hang_up(daemon, "reload failed, nothing has changed: ")
        assert "the nearest is log_level" in daemon.stderr()
        assert daemon.http("GET", "/config/log_level") == (200, b"1")
        assert daemon.stop() == 0


def trusting() -> ssl.SSLContext:
    """No authority is asked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def certificates_of(tcp: int, https: int) -> set[bytes]:
    """What the two TLS ports show."""
    context = trusting()
    web = http.client.HTTPSConnection("127.0.0.1", https, timeout=WAIT_S, context=context)
    try:
        web.connect()
        assert isinstance(web.sock, ssl.SSLSocket)
        found = {web.sock.getpeercert(True)}
    finally:
        web.close()
    with Upgraded(tcp, context) as client:
        client.pub("t", b"x")
        assert isinstance(client.socket, ssl.SSLSocket)
        found.add(client.socket.getpeercert(True))
    return {one for one in found if one is not None}


def cross_site_status(https: int) -> int:
    """Of a request that a foreign page made: a renewed listener is as careful as the first one."""
    web = http.client.HTTPSConnection("127.0.0.1", https, timeout=WAIT_S, context=trusting())
    try:
        web.request("POST", "/topic/create?topic=x", headers={"Origin": "https://evil.example"})
        return web.getresponse().status
    finally:
        web.close()


def test_sighup_takes_a_renewed_certificate(tmp_path: Path) -> None:
    first = Certificates(tmp_path / "first")
    second = Certificates(tmp_path / "second")
    cert, key, config = (tmp_path / name for name in ("cert.pem", "key.pem", "nsqd.toml"))
    config.touch()

    def install(certificates: Certificates) -> None:
        cert.write_bytes(certificates.cert.read_bytes())
        key.write_bytes(certificates.key.read_bytes())

    install(first)
    flags = (f"--tls-cert={cert}", f"--tls-key={key}", "--https-address=127.0.0.1:0",
             f"--config={config}")  # fmt: skip
    with Daemon(tmp_path / "data", *flags) as daemon:
        listening = r"INFO: HTTPS: listening on 127\.0\.0\.1:(\d+)"
        eventually(lambda: re.search(listening, daemon.stderr()), WAIT_S, daemon.stderr)
        https = int(re.findall(listening, daemon.stderr())[0])
        before = certificates_of(daemon.tcp_port, https)
        assert len(before) == 1
        cert.write_text("rubbish")
        hang_up(daemon, "reload failed, nothing has changed: tls-cert")
        assert certificates_of(daemon.tcp_port, https) == before
        install(second)
        config.write_text('nsqlookupd_tcp_addresses = ["nowhere"]')
        hang_up(daemon, "reload failed, nothing has changed: lookupd-tcp-address")
        assert certificates_of(daemon.tcp_port, https) == before
        config.write_text("")
        hang_up(daemon, "INFO: reloaded: certificates")
        after = certificates_of(daemon.tcp_port, https)
        assert len(after) == 1
        assert after != before
        assert cross_site_status(https) == 403
        assert daemon.stop() == 0


def in_terminal(command: list[str]) -> tuple[int, int]:
    """The process and the other end of its terminal, which it leads as a shell does."""
    pid, master = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    return pid, master


def read_until(master: int, pattern: bytes) -> bytes:
    seen = b""
    deadline = time.monotonic() + WAIT_S
    while not re.search(pattern, seen):
        assert time.monotonic() < deadline, seen
        try:
            seen += os.read(master, 65536)
        except OSError as error:  # it ended
            raise AssertionError(seen) from error
    return seen


def test_a_closed_terminal_stops_it_in_order(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    command = " ".join(Daemon(tmp_path / "data").command())
    shell = f"exec {command} 2> >(tee {tmp_path}/log >&2)"
    pid, master = in_terminal(["/bin/bash", "-c", shell])
    read_until(master, rb"TCP: listening")
    os.close(master)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_closing_the_terminal_of_a_demo_leaves_nothing_running(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.tools.main", "demo"]
    command += [f"--data-path={tmp_path}/demo", "--archive=off", "--admin=off", "--rate=100"]
    ports = kept_port(), kept_port()
    command += [f"--tcp-address=127.0.0.1:{ports[0]}", f"--http-address=127.0.0.1:{ports[1]}"]
    pid, master = in_terminal(command)
    seen = read_until(master, rb"metrics +2 consumers")
    found = re.search(rb"process (\d+)", seen)
    assert found is not None
    os.close(master)
    os.waitpid(pid, 0)
    assert subprocess.run(["ps", "-p", found[1].decode()], capture_output=True).returncode == 1
