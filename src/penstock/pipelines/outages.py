"""A run survives an outage: nsqd, the table or the disk is unreachable, and returns.

Whatever a pipeline does can be done again: what was committed is known by its number, and the rest
was never there. So there is one loop for all of them: an attempt that ends by an outage is made
again after a pause, from the checks before Spark starts to the last commit. Pauses double until
something was done again.

A run that goes on for ever waits as long as the outage lasts. One that ends by itself (`--once`, a
replay, an audit) is waited for by somebody: it fails when an outage lasts longer than
`outage-wait`. Processes of Spark's that die again and again have a reason, so they are counted. One
that comes too late is both: a busy machine is waited for, and tried a few times in any case.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock import limits
from penstock.errors import BrokerRefused, FetchFailed, LakeFailed, PenstockError, TableAway

if TYPE_CHECKING:
    from penstock.pipelines.progress import Progress

_PAUSE_S_MAX = 30.0


@dataclass
class Outages:
    _progress: Progress
    _wait_s_max: float | None  # of one outage; None waits as long as it lasts
    _failures: int = 0  # since something was done
    _rows: int = 0  # that were done then
    _began_s: float = 0.0  # when the first of the failures was

    def ride_out(self, attempt: Callable[[], int | None]) -> int | None:
        """The result of the first attempt that no outage ended; None when a stop is requested
        meanwhile. Any other error is raised."""
        while True:
            try:
                return attempt()
            except Exception as error:
                if self._progress.stopping and outage_of(error):
                    return None
                pause_s = self._pause(error)
                if pause_s is None:
                    raise
                self._progress.say(f"{cause_line(error)}; trying again in {pause_s:g} s")
                outages = self._progress.state.outages + 1
                self._progress.note(outages=outages, waiting=True, rows_per_second=0.0)
            if self._progress.wait(pause_s):
                return None
            self._progress.begin_again()

    def _pause(self, error: Exception) -> float | None:
        """None: it is not to be tried again."""
        is_outage, now_s = bool(outage_of(error)), time.monotonic()
        if not is_outage and not is_crash(error):
            return None
        rows = self._progress.state.rows
        if not self._failures or rows != self._rows:
            self._failures, self._rows, self._began_s = 0, rows, now_s
        self._failures += 1
        pause_s = float(min(2 ** (self._failures - 1), _PAUSE_S_MAX))
        left_s = math.inf if self._wait_s_max is None else self._began_s + self._wait_s_max - now_s
        if not is_outage or (left_s <= 0 and is_late(error)):
            return pause_s if self._failures <= limits.PIPELINE_CRASHES_MAX else None
        return min(pause_s, left_s) if left_s > 0 else None


# --- errors in one line ---
#
# An error in one of our data sources reaches the driver as text within a Java exception within a
# Python exception, a hundred lines long. What a person needs is the one line that our code wrote.

_OURS = re.compile(r"\bpenstock\.errors\.(\w+): ([^\n]+)")
_PYTHON = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt)): ([^\n]+)", re.MULTILINE)
_JAVA_NOISE = re.compile(r"^(?:(?:org|java|py4j|scala)(?:\.\w+)+\.(?:\w|\$)+(?:: )?)+")
_STREAM = re.compile(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+$")
_LATE = "Python worker failed to connect back"
_CRASH = re.compile(
    rf"Python worker exited unexpectedly|{_LATE}|EOFException"
    r"|Stream closed|Socket closed|Broken pipe|Connection reset|no cause message"
)
# The disk under a table, a checkpoint or Spark's own files, in the words of the kernel.
_DISK = re.compile(
    r"No space left on device|Disk quota exceeded|Input/output error|Stale file handle"
    r"|Read-only file system|Transport endpoint is not connected"
)
# An object store, in the words of delta-rs. What it refuses for good (4xx) is no outage, but
# "too many requests" and "request timeout" are.
_STORE = re.compile(r"Generic (?!LocalFileSystem)\w+ error")
_STORE_REFUSAL = re.compile(r"status(?: code)?:? 4(?!08|29)\d\d|\b4(?!08|29)\d\d [A-Z][a-z]+\b")
_NOT_READY = re.compile(r"got response 5\d\d\b")
_FRAMES = ("at ", "An error occurred while calling", "JVM stacktrace")
_LINE_CHARS_MAX = 500


def our_error(error: BaseException) -> tuple[str, str] | None:
    """(class, text) of the error that our own code raised, at any depth."""
    if isinstance(error, PenstockError):
        return type(error).__name__, str(error)
    found = _OURS.search(str(error))
    return (found[1], found[2].strip()) if found else None


def outage_of(error: BaseException) -> str:
    """The unreachable part, which may return any time: nsqd, the store of a table, or a disk. ""
    for errors of other kinds, which a retry would not cure."""
    ours = our_error(error)
    kind, text = ours if ours is not None else ("", str(error))
    if kind == FetchFailed.__name__:
        return "nsqd"
    if kind == BrokerRefused.__name__:
        return "nsqd" if _NOT_READY.search(text) else ""
    if kind == TableAway.__name__:
        return "the table"
    if kind not in ("", LakeFailed.__name__):
        return ""
    if is_late(error):
        return "this machine"
    if _DISK.search(text):
        return "a disk"
    if _STORE.search(text) and not _STORE_REFUSAL.search(text):
        return "the table's store"
    return ""


def is_late(error: BaseException) -> bool:
    """Spark gives a Python process of the driver 10 s to connect, and no setting changes that."""
    return our_error(error) is None and _LATE in str(error)


def _late_line() -> str:
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    why = (
        f"this machine is overloaded (load {load:.0f} on {cores} cores)"
        if load > cores
        else "it was started by the Python that PYSPARK_PYTHON names: look whether that one works"
    )
    return f"a Python process of Spark's was not up within 10 s: {why}"


def is_crash(error: BaseException) -> bool:
    """A Python process of Spark's died: it was killed, or the memory ran out. Spark reports it in
    the words of whatever talked to that process."""
    return not (our_error(error) or outage_of(error)) and bool(_CRASH.search(str(error)))


def cause_line(error: BaseException) -> str:
    ours = our_error(error)
    if ours is not None:
        return ours[1]
    if is_late(error):
        return _late_line()
    text = str(error).strip()
    python = _PYTHON.findall(text) if "Traceback (most recent call last)" in text else []
    if python:
        line = ": ".join(python[-1])
    else:
        lines = [_JAVA_NOISE.sub("", line.strip().removeprefix(": ")) for line in text.splitlines()]
        first = next((line for line in lines if line and not line.startswith(_FRAMES)), "")
        cleaned = _SQLSTATE.sub("", _STREAM.sub("", first))
        name = type(error).__name__
        line = (
            cleaned if name in cleaned or cleaned != first or not cleaned else f"{name}: {cleaned}"
        ) or name
    return line if len(line) <= _LINE_CHARS_MAX else line[: _LINE_CHARS_MAX - 3] + "..."
