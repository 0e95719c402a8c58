"""The executable as a process: flags, exit codes, signals."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import pytest

from penstock import __version__

LOOKUPD = [sys.executable, "-m", "penstock.nsqlookupd.main"]
PORTS = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
WAIT_SECONDS = 60


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LOOKUPD, *arguments], capture_output=True, text=True, timeout=WAIT_SECONDS
    )


def test_version_help_and_a_wrong_flag() -> None:
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith(f"nsqlookupd v{__version__} (built w/python")
    done = run("--help")
    assert done.returncode == 0
    assert "-inactive-producer-timeout" in done.stdout
    done = run("--nope")
    assert done.returncode == 2
    assert done.stderr.startswith("flag provided but not defined: -nope\nUsage of nsqlookupd:")


def test_a_start_that_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run(f"--tcp-address=127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == 1
    assert done.stderr.count("FATAL: failed to start nsqlookupd - [Errno") == 1
    done = run("--tombstone-lifetime=-1s")
    assert (done.returncode, done.stderr.count("FATAL: tombstone-lifetime")) == (1, 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it(number: int) -> None:
    with subprocess.Popen([*LOOKUPD, *PORTS], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        while "HTTP: listening on" not in said:
            line = process.stderr.readline()
            assert line
            said += line
        process.send_signal(number)
        said += process.stderr.read()
        assert process.wait(WAIT_SECONDS) == 0
    assert said.startswith("[nsqlookupd] ")
    assert said.rstrip().endswith("INFO: NSQLOOKUPD: bye")
