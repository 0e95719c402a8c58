"""A pipeline as a user starts it: `penstock pipeline run` in processes of its own, to be killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, cast

from spark import quickjvm

WAIT_S_MAX = 200.0  # a driver takes ten seconds to start, a minute on a busy machine
POLL_S = 0.02


class Command:
    """What it says of its progress is read all the time, so that its pipe never fills."""

    def __init__(self, errors: Path, name: str, *flags: str) -> None:
        self.rows = 0
        self._events: list[dict[str, Any]] = []
        self._errors = errors
        command = [sys.executable, "-m", "penstock.tools.main", "pipeline", "run", name]
        command += ["--json", "--report-every=100ms", "--conf=spark.driver.memory=1g"]
        command += [f"--conf=spark.driver.extraJavaOptions={quickjvm.options()}", *flags]
        mark = uuid.uuid4().hex
        self._mark = mark.encode()
        with errors.open("ab") as stderr:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, "COMMAND_OF_TESTS": mark},
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,))
        self._reader.start()

    def _read(self, stdout: TextIO) -> None:
        for line in stdout:
            report = json.loads(line)
            self.rows = max(self.rows, report.get("rows", 0))
            if "rows" not in report:
                self._events.append(report)

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def output(self) -> str:
        """For a test that fails: its events, and its last errors with those of runs before."""
        events = [str(event) for event in self._events[-20:]]
        return "\n".join([*events, self._errors.read_text()[-3000:]])

    def wait_for_rows(self, least: int) -> bool:
        """False when it has ended before."""
        deadline_s = time.monotonic() + WAIT_S_MAX
        while self.rows < least:
            if self.ended:
                return False
            assert time.monotonic() < deadline_s, f"{self.rows} rows, not {least}: {self.output()}"
            time.sleep(POLL_S)
        return True

    def kill(self) -> None:
        """The driver and its JVM at once. The JVM is in a process group of its own."""
        for number in (*self.java(), self.process.pid):
            with suppress(ProcessLookupError):  # it has ended by itself
                os.kill(number, signal.SIGKILL)
        self.finish()

    def java(self) -> list[int]:
        """The JVM; none while Spark has not started yet."""
        return [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if b"org.apache.spark.deploy.SparkSubmit" in _read_bytes(path)
            and self._mark in _read_bytes(path.with_name("environ"))
        ]

    def finish(self) -> int:
        """Wait for its end, and give the exit code."""
        code = self.process.wait(WAIT_S_MAX)
        self._reader.join(WAIT_S_MAX)
        cast("TextIO", self.process.stdout).close()
        return code


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has just ended
        return b""
