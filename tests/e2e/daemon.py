"""A real nsqd in a process of its own, for tests: start it, corrupt it, ask it.

It listens on ports that the system chooses; the lines that name them are also the sign that it is
ready. What it says goes to a file beside its data path, so nothing is printed unless a test fails
and shows it.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from .v2client import V2Client

START_S_MAX = 90.0  # two cores that others use too
STOP_S_MAX = 60.0
POLL_S = 0.01

_TCP = re.compile(r"TCP: listening on \S*:(\d+)")
_HTTP = re.compile(r"HTTP: listening on \S*:(\d+)")


class DaemonFailed(Exception):
    """It ended, or did not get ready. The text holds all that it said."""


class Daemon:
    """`with Daemon(path, "--durability=os") as daemon:` starts it, and kills what is left of it.

    It can be started again after `stop` or `kill`, on the same data path.
    """

    def __init__(
        self,
        data_path: Path,
        *flags: str,
        stderr: Path | None = None,
        descriptors: int = 0,
        environment: dict[str, str] | None = None,
    ) -> None:
        """`stderr` is for a second daemon on one data path, and for small disks; `descriptors` is
        the limit of open files; `environment` is added to the test's own."""
        self.data_path = data_path
        self.flags = list(flags)
        self.tcp_port = 0
        self.http_port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._stderr_path = stderr or data_path.with_suffix(".stderr")
        self._descriptors = descriptors
        self._environment = environment or {}
        self._run_start = 0  # where in that file the present run begins

    # --- life and death ---

    def spawn(self) -> Self:
        """Start the process, and do not wait until it is ready."""
        if self.process is not None:
            raise RuntimeError("the daemon runs already")
        self.tcp_port = self.http_port = 0  # the former ones may be another daemon's by now
        self.data_path.mkdir(parents=True, exist_ok=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        environment["PYTHONFAULTHANDLER"] = "1"  # a crash of compiled code shows where it was
        environment |= self._environment
        with self._stderr_path.open("ab") as stderr:
            self._run_start = stderr.seek(0, os.SEEK_END)
            self.process = subprocess.Popen(
                self._limited(self.command()),
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                cwd=self.data_path.parent,
                env=environment,
            )
        return self

    def _limited(self, command: list[str]) -> list[str]:
        if not self._descriptors:
            return command
        return ["sh", "-c", f'ulimit -n {self._descriptors}; exec "$@"', "sh", *command]

    def command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "penstock.nsqd.main",
            f"--data-path={self.data_path}",
            "--tcp-address=127.0.0.1:0",
            "--http-address=127.0.0.1:0",
            *self.flags,
        ]

    def start(self) -> Self:
        self.spawn()
        self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline_s:
            output = self.stderr()
            tcp, http_found = _TCP.search(output), _HTTP.search(output)
            if tcp and http_found:
                self.tcp_port, self.http_port = int(tcp[1]), int(http_found[1])
                return
            if self._running().poll() is not None:
                code = self._forget()
                raise DaemonFailed(f"ended with {code} instead of getting ready:\n{output}")
            time.sleep(POLL_S)
        output = self.stderr()
        self.kill()
        raise DaemonFailed(f"not ready after {START_S_MAX} s:\n{output}")

    def signal(self, number: int) -> None:
        self._running().send_signal(number)

    def wait(self, timeout_s: float = STOP_S_MAX) -> int:
        """Wait for the end that something else has caused; the exit code, as Popen gives it."""
        try:
            self._running().wait(timeout_s)
        except subprocess.TimeoutExpired:
            output = self.stderr()
            self.kill()
            raise DaemonFailed(f"still running after {timeout_s} s:\n{output}") from None
        return self._forget()

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """kill -9. Does nothing when it is not running."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._forget()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        return self._running().pid

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            raise RuntimeError("the daemon is not running")
        return self.process

    def _forget(self) -> int:
        process, self.process = self._running(), None
        return process.returncode

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        if error is not None:
            error.add_note(f"the daemon said:\n{self.stderr()[-8000:]}")
        self.kill()

    # --- what it says ---

    def stderr(self) -> str:
        """What the present (or last) run has said so far."""
        with self._stderr_path.open("rb") as file:
            file.seek(self._run_start)
            return file.read().decode("utf-8", "replace")

    # --- asking it ---

    def client(self, timeout_s: float = 40.0) -> V2Client:
        return V2Client(self.tcp_port, timeout_s)

    def http(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=40)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def post(self, path: str, body: bytes = b"") -> bytes:
        """A POST that has to succeed."""
        status, answer = self.http("POST", path, body)
        if status != 200:
            raise AssertionError(f"POST {path}: {status} {answer!r}")
        return answer

    def make(self, topic: str, *channels: str, shape: str = "") -> None:
        """A topic, and channels of it. `shape`: "&partition_num=4"."""
        self.post(f"/topic/create?topic={topic}{shape}")
        for channel in channels:
            self.post(f"/channel/create?topic={topic}&channel={channel}")

    def stats(self) -> dict[str, Any]:
        status, answer = self.http("GET", "/stats?format=json&include_mem=false")
        if status != 200:
            raise AssertionError(f"GET /stats: {status} {answer!r}")
        found: dict[str, Any] = json.loads(answer)
        return found

    def topic_stats(self, topic: str) -> dict[str, Any]:
        rows = [row for row in self.stats()["topics"] if row["topic_name"] == topic]
        if len(rows) != 1:
            raise AssertionError(f"{len(rows)} topics named {topic}")
        found: dict[str, Any] = rows[0]
        return found

    def channel_stats(self, topic: str, channel: str) -> dict[str, Any]:
        channels = self.topic_stats(topic)["channels"]
        rows = [row for row in channels if row["channel_name"] == channel]
        if len(rows) != 1:
            raise AssertionError(f"{len(rows)} channels named {channel}")
        found: dict[str, Any] = rows[0]
        return found


def shared_daemon(*flags: str) -> Any:
    """A fixture: a daemon with these flags for the tests of a module."""

    @pytest.fixture(scope="module")
    def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
        with Daemon(tmp_path_factory.mktemp("nsqd") / "data", *flags) as running:
            yield running

    return daemon


def starved_s(process: str) -> float:
    """How long it (or its first thread) was ready to run and had no processor, so far."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, IndexError):  # a kernel that does not count it
        return 0.0
