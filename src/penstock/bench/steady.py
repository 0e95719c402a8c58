"""An archive beside a steady stream of messages, for minutes: does it keep up, and does its memory
stay flat?

The archive is the command that a user runs, in processes of its own. Each second this process
publishes its share in a few `/mpub`s, and looks at three things: how many messages are durable in
the log, how many the table has, and how much memory the archive's processes hold. The lag is an
age: how long ago that message was published which the table has got to.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from penstock.bench.daemon import Daemon
from penstock.bench.dialect import HOST, DaemonFailed
from penstock.bench.figures import Figure
from penstock.bench.web_load import exchange, request

TOPIC = "steady"
RATE = 20_000  # messages a second
PUBLISHES = 20  # of these a second
BODY_BYTES = 200
BEGIN_S_MAX = 180.0
END_S_MAX = 120.0
SETTLED_SHARE = 0.2  # of the time; before that the JVM is still growing


class Second(NamedTuple):
    """What one look showed."""

    at_s: float  # since the first publish
    lag_s: float
    rss_mb: float


class Published:
    """When which message was published."""

    def __init__(self) -> None:
        self._counts = [0]
        self._times_s = [0.0]

    def add(self, count: int, at_s: float) -> None:
        self._counts.append(self._counts[-1] + count)
        self._times_s.append(at_s)

    @property
    def count(self) -> int:
        return self._counts[-1]

    def lag_s(self, stored: int, now_s: float) -> float:
        """The age of the oldest message that is not among the first `stored`; 0 without one."""
        number = bisect_right(self._counts, stored)
        return now_s - self._times_s[number] if number < len(self._counts) else 0.0


class Table:
    """How many messages a table has, by the statistics of its files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: DeltaTable | None = None

    def stored(self) -> int:
        """Offsets are dense, so the highest tells."""
        try:
            if self._table is None:
                self._table = DeltaTable(str(self._path))
            else:
                self._table.update_incremental()
        except TableNotFoundError:
            return 0
        actions = pa.table(self._table.get_add_actions(flatten=True))
        highest = actions.column("max.offset").to_pylist() if actions.num_rows else []
        return max(highest) + 1 if highest else 0


@contextmanager
def archive(daemon: Daemon, table: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "penstock.pipelines", "archive",
               f"--url=http://{HOST}:{daemon.ports.http}", f"--topics={TOPIC}",
               f"--table={table}", "--master=local[2]"]  # fmt: skip
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def rss_mb(root: int) -> float:
    """Of a process and all that it started."""
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(entry.name)], sizes[int(entry.name)] = int(fields[1]), int(fields[21])
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(sizes.get(pid, 0) for pid in family) * os.sysconf("SC_PAGE_SIZE") / 1e6


def publish(daemon: Daemon, published: Published, began_s: float, rate: int) -> None:
    count = rate // PUBLISHES
    message = struct.pack(">I", BODY_BYTES) + b"x" * BODY_BYTES
    body = struct.pack(">I", count) + message * count
    exchange(daemon.ports.http, request("POST", f"/mpub?topic={TOPIC}&binary=true", body))
    published.add(count, time.monotonic() - began_s)


def steady(daemon: Daemon, directory: Path, seconds: float, rate: int = RATE) -> Iterator[Figure]:
    """Starts when the archive has stored its first messages."""
    table, log = directory / "steady-table", directory / "steady.log"
    published, looked = Published(), Table(table)
    exchange(daemon.ports.http, request("POST", f"/topic/create?topic={TOPIC}"))
    with archive(daemon, table, log) as process:
        began_s = time.monotonic()
        publish(daemon, published, began_s, rate)
        while looked.stored() < published.count:
            _check(process, log, began_s, BEGIN_S_MAX)
            time.sleep(0.2)
        seen = list(_run(daemon, process, published, looked, seconds, rate, log))
        began_s = time.monotonic()
        while looked.stored() < published.count:
            _check(process, log, began_s, END_S_MAX)
            time.sleep(0.2)
    if process.returncode != 0:
        raise DaemonFailed(f"the archive ended with {process.returncode}: {_end_of(log)}")
    yield from figures(seen, seconds, rate)


def _run(
    daemon: Daemon,
    process: subprocess.Popen[bytes],
    published: Published,
    looked: Table,
    seconds: float,
    rate: int,
    log: Path,
) -> Iterator[Second]:
    began_s = time.monotonic()
    done = 0
    shown_s = 0.0
    before = published.count
    history = Published()
    while (now_s := time.monotonic() - began_s) < seconds:
        if now_s < done / PUBLISHES:
            time.sleep(done / PUBLISHES - now_s)
        publish(daemon, history, began_s, rate)
        done += 1
        now_s = time.monotonic() - began_s
        if now_s >= shown_s + 1:
            shown_s = now_s
            _check(process, log, began_s, seconds + END_S_MAX)
            lag_s = history.lag_s(looked.stored() - before, time.monotonic() - began_s)
            yield Second(now_s, lag_s, rss_mb(process.pid))
    published.add(history.count, now_s)


def _check(process: subprocess.Popen[bytes], log: Path, began_s: float, seconds: float) -> None:
    if process.poll() is not None:
        raise DaemonFailed(f"the archive ended with {process.returncode}: {_end_of(log)}")
    if time.monotonic() - began_s > seconds:
        raise DaemonFailed(f"the archive stored nothing for {seconds:.0f} s: {_end_of(log)}")


def _end_of(log: Path) -> str:
    return log.read_bytes()[-2000:].decode("utf-8", "replace")


def figures(seen: list[Second], seconds: float, rate: int) -> Iterator[Figure]:
    """Memory is flat when its last part is no higher than its first, once that has settled."""
    if not seen:
        raise DaemonFailed("too short for a look: give it a few seconds")
    settled = [s for s in seen if s.at_s >= SETTLED_SHARE * seconds] or seen
    part = max(len(settled) // 4, 1)
    first, last = (mean(s.rss_mb for s in half) for half in (settled[:part], settled[-part:]))
    lags = [s.lag_s for s in seen]
    name = f"archive's lag at {rate:,} messages/s for {seconds / 60:g} min"
    yield Figure(f"{name}, longest", max(lags), "s", "< 3")
    yield Figure(f"{name}, median", median(lags), "s", "< 3")
    yield Figure("memory of the archive's processes, at the end", last, "MB", "flat")
    yield Figure("as a share of what it was before", last / first, "x", "about 1")
