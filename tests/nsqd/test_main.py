"""The executable as a process: flags, exit codes, signals, and one message all the way."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from penstock import __version__

from .process import NSQD, WAIT_SECONDS, Process
from .world import V2, mpub, ok


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NSQD, *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_message_all_the_way_and_an_orderly_end(nsqd_process: Process, number: int) -> None:
    with V2(nsqd_process.tcp) as client:
        client.send(mpub(b"e2e", [b"one", b"two"]) + b"SUB e2e c\nRDY 1\n")
        assert [client.read(), client.read()] == [ok(), ok()]
        message = client.message()
        assert message.body == b"one"
        client.send(b"FIN %b\n" % message.id)
        assert client.message().body == b"two"
        assert nsqd_process.end(number) == 0
    log = nsqd_process.log.read_text()
    assert re.search(rf"INFO: nsqd v{re.escape(__version__)} \(built w/", log)
    assert re.search(r"INFO: ID: \d+$", log, re.MULTILINE)
    assert "TOPIC(e2e): created" in log
    assert "TOPIC(e2e): new channel(c)" in log
    assert log.rstrip().endswith("INFO: NSQ: bye")


def test_version_and_help() -> None:
    done = run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        rf"nsqd v{re.escape(__version__)} \(built w/python[\d.]+\S*\)\n", done.stdout
    )
    done = run("-help")
    assert done.returncode == 0
    assert "-tcp-address string" in done.stdout
    assert "loopback" in done.stdout


def test_a_wrong_command_line() -> None:
    done = run("-no-such-flag")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "flag provided but not defined: -no-such-flag\nUsage of nsqd:\n  -version\n"
    )


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        (["-node-id=1024"], {}, "node-id: 1024 is not valid: 0 to 1023"),
        (["-tls-required"], {}, "cannot require TLS client connections without TLS key and cert"),
        (["-tls-cert=/no/such", "-tls-key=k"], {}, "tls-cert: '/no/such' is not valid"),
        ([], {"PENSTOCK_MSG_TIMEOUT": "x"}, "PENSTOCK_MSG_TIMEOUT: 'x' is not valid"),
        (
            [],
            {"PENSTOCK_AUTH_HTTP_ADRESSES": "a:1"},
            "'PENSTOCK_AUTH_HTTP_ADRESSES' is not valid: there is no such variable; the nearest is"
            " PENSTOCK_AUTH_HTTP_ADDRESSES",
        ),
        (
            ["-config={}/misspelt.toml"],
            {},
            "'tls_requird' is not valid: there is no such key; the nearest is tls_required",
        ),
        (["-data-path=/no/such"], {}, "/no/such: the data directory does not exist"),
        (["-tcp-address=127.0.0.1:99999"], {}, "tcp-address: '127.0.0.1:99999' is not valid"),
    ],
)
def test_a_start_that_fails_says_why_in_one_line(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], text: str
) -> None:
    (tmp_path / "misspelt.toml").write_text("tls_requird = true\n")
    base = [f"-data-path={tmp_path}", "-tcp-address=127.0.0.1:0", "-http-address="]
    done = run(*base, *(word.format(tmp_path) for word in arguments), **environment)
    assert done.returncode == 1
    fatal = [line for line in done.stderr.splitlines() if " FATAL: " in line]
    assert len(fatal) == 1
    assert text in fatal[0]
    assert "Traceback" not in done.stderr
