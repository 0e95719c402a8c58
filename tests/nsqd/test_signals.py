"""SIGHUP and SIGQUIT of the real process, and what a closed terminal leaves behind."""

from __future__ import annotations

import http.client
import os
import pty
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from e2e.certificates import Certificates
from e2e.lookupd import eventually
from e2e.ports import kept_port
from e2e.v2upgraded import Upgraded

from .process import NSQD, WAIT_SECONDS, Process
from .world import V2, ok, pub


def wait_until(done: Callable[[], bool], process: Process) -> None:
    eventually(done, WAIT_SECONDS, process.log.read_text)


def test_sigquit_writes_the_stacks_and_stops_in_order(nsqd_process: Process) -> None:
    with V2(nsqd_process.tcp) as client:
        assert client.ask(pub(b"t", b"x")) == ok()
    assert nsqd_process.end(signal.SIGQUIT) == 0
    log = nsqd_process.log.read_text()
    assert "SIGQUIT: stopping; the stacks are" in log
    assert "thread MainThread:\n" in log
    assert log.rstrip().endswith("INFO: NSQ: bye")


def test_sighup_without_a_terminal_reloads_and_goes_on(tmp_path: Path, data_path: Path) -> None:
    config = tmp_path / "nsqd.toml"
    config.write_text('log_level = "info"\n')
    process = Process(data_path, f"--config={config}")
    try:
        config.write_text('log_level = "debug"\nmax_rdy_count = 7\n')
        process.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "INFO: reloaded: certificates" in process.log.read_text(), process)
        assert "only a restart makes it so: -max-rdy-count" in process.log.read_text()
        assert shown(process, "log_level") == b"1"
        assert shown(process, "max_rdy_count") == b"2500"
        config.write_text('log_levle = "info"\n')
        process.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "nothing is reloaded: " in process.log.read_text(), process)
        assert "the nearest is log_level" in process.log.read_text()
        assert shown(process, "log_level") == b"1"
    finally:
        assert process.end(signal.SIGTERM) == 0


def shown(process: Process, key: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", process.http.port, WAIT_SECONDS)
    try:
        connection.request("GET", f"/config/{key}")
        return connection.getresponse().read()
    finally:
        connection.close()


def certificates_of(tcp: int, https: int) -> set[bytes]:
    """What the two TLS ports show, by hand: no authority is asked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    web = http.client.HTTPSConnection("127.0.0.1", https, timeout=WAIT_SECONDS, context=context)
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
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    web = http.client.HTTPSConnection("127.0.0.1", https, timeout=WAIT_SECONDS, context=context)
    try:
        web.request("POST", "/topic/create?topic=x", headers={"Origin": "https://evil.example"})
        return web.getresponse().status
    finally:
        web.close()


def test_sighup_takes_a_renewed_certificate(tmp_path: Path, data_path: Path) -> None:
    first = Certificates(tmp_path / "first")
    second = Certificates(tmp_path / "second")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def install(certificates: Certificates) -> None:
        cert.write_bytes(certificates.cert.read_bytes())
        key.write_bytes(certificates.key.read_bytes())

    install(first)
    flags = (f"--tls-cert={cert}", f"--tls-key={key}", "--https-address=127.0.0.1:0")
    process = Process(data_path, *flags)
    try:
        https = process._wait_for(r"INFO: HTTPS: listening on 127\.0\.0\.1:(\d+)$").port
        before = certificates_of(process.tcp.port, https)
        assert len(before) == 1
        cert.write_text("rubbish")
        process.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "nothing is reloaded: tls-cert" in process.log.read_text(), process)
        assert certificates_of(process.tcp.port, https) == before
        install(second)
        process.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "INFO: reloaded: certificates" in process.log.read_text(), process)
        after = certificates_of(process.tcp.port, https)
        assert len(after) == 1
        assert after != before
        assert cross_site_status(https) == 403
    finally:
        assert process.end(signal.SIGTERM) == 0


def in_terminal(command: list[str]) -> tuple[int, int]:
    """The process and the other end of its terminal, which it leads as a shell does."""
    pid, master = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    return pid, master


def read_until(master: int, pattern: bytes) -> bytes:
    seen = b""
    deadline = time.monotonic() + WAIT_SECONDS
    while not re.search(pattern, seen):
        assert time.monotonic() < deadline, seen
        try:
            seen += os.read(master, 65536)
        except OSError as error:  # it ended
            raise AssertionError(seen) from error
    return seen


def test_a_closed_terminal_stops_it_in_order(data_path: Path) -> None:
    log = data_path.parent / "log"
    flags = f"--data-path={data_path} --tcp-address=127.0.0.1:0 --http-address="
    shell = f"exec {' '.join(NSQD)} {flags} 2> >(tee {log} >&2)"
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
