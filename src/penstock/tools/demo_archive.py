"""The demo's archive: every message also goes into a Delta table, beside the traffic.

It is the pipeline as anybody starts it, in a process of its own, and starts while messages flow
already. Without Java or PySpark the demo says what is missing, and goes on without.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from penstock.errors import ConfigError
from penstock.net.listener import Address

TABLE = "messages"
_PATTERN = "[A-Za-z0-9].*"  # not the topics that nsqd keeps for itself
_STOP_S_MAX = 30.0
_QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_NEEDED = ("pyspark", "pyarrow", "deltalake")


def missing() -> str:
    """What the archive lacks here, "" when nothing."""
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        return "Spark is not installed; `make run ARGS=--spark` installs it first"
    from penstock.spark.session import require_java

    try:
        require_java()
    except ConfigError as error:
        return str(error)
    return ""


def lake_of(data_path: Path) -> Path:
    return data_path / "lake"


class ArchiveProcess:
    """Starts with `run`, which ends when it is cancelled or when the archive ends by itself."""

    def __init__(self, http: Address, data_path: Path) -> None:
        self._arguments = [
            f"--url=http://{http}",
            f"--pattern={_PATTERN}",
            f"--table={lake_of(data_path) / TABLE}",
            "--json",
            "--report-every=500ms",
            "--conf=spark.driver.memory=1g",
            f"--conf=spark.driver.extraJavaOptions={_QUICK_JVM}",
        ]
        self._last: dict[str, Any] = {}
        self._said = "Spark is starting"

    def line(self) -> str:
        """For the display of rates."""
        if "rows" not in self._last:
            return f"{'table':<9} {self._said}"
        last = self._last
        lag = last["lag_seconds"]
        return (
            f"{'table':<9} {'archived':<12} {last['rows_per_second']:>7,.0f}/s  "
            f"total {last['rows']:>11,}  " + (f"lag {lag:.1f} s" if lag is not None else self._said)
        )

    async def run(self) -> None:
        with tempfile.TemporaryFile() as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "penstock.pipelines",
                "archive",
                *self._arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,  # what Java says is none of the demo's
                start_new_session=True,  # Ctrl-C is ours to pass on
            )
            try:
                await self._read(process)
                self._last = {}
                self._said = f"stopped: {_last_line(errors)}"
            finally:
                await _stop(process)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        if process.stdout is None:
            raise RuntimeError("the archive has no stdout")
        while line := await process.stdout.readline():
            report = json.loads(line)
            if "rows" in report:
                self._last = report
            self._said = report.get("event", self._said)
        await process.wait()


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.communicate(), _STOP_S_MAX)
        except TimeoutError:
            process.kill()
            await process.wait()


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "without a word"
