"""An archive beside a steady stream of messages, for minutes: does it keep up, and do memory
and files stay flat?

The archive is the command that a user runs, in processes of its own. Each second this process
publishes its share in a few `/mpub`s, and looks: how many messages the table has, how much memory
nsqd and the archive's processes hold, and how many files there are of what could pile up. The lag
is an age: how long ago that message was published which the table has got to.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from penstock.bench import footprint
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
TELL_EVERY_S = 60.0


BOUNDS = {
    "files of the checkpoint": "flat after 100 batches",
    "files of the table's log": "one a batch, for an hour",
    "files of the table": "compacted again and again",
}
Say = Callable[[str], None]


class Second(NamedTuple):
    """What one look showed."""

    at_s: float  # since the first publish
    lag_s: float
    published: int
    memory_mb: dict[str, float]
    counts: dict[str, int]

    def line(self) -> str:
        memory = ", ".join(f"{part} {size:,.0f}" for part, size in self.memory_mb.items())
        counts = ", ".join(f"{what} {count:,}" for what, count in self.counts.items())
        return f"{self.at_s:.0f} s: lag {self.lag_s:.2f} s; MB: {memory}; {counts}"


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
        self.files = 0  # when it was last looked at
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
        self.files = actions.num_rows
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


def publish(daemon: Daemon, published: Published, began_s: float, rate: int) -> None:
    count = rate // PUBLISHES
    message = struct.pack(">I", BODY_BYTES) + b"x" * BODY_BYTES
    body = struct.pack(">I", count) + message * count
    exchange(daemon.ports.http, request("POST", f"/mpub?topic={TOPIC}&binary=true", body))
    published.add(count, time.monotonic() - began_s)


def steady(
    daemon: Daemon, directory: Path, seconds: float, say: Say = print, rate: int = RATE
) -> Iterator[Figure]:
    """Starts when the archive has stored its first messages. A line a minute goes to `say`."""
    table, log = directory / "steady-table", directory / "steady.log"
    published, looked = Published(), Table(table)
    exchange(daemon.ports.http, request("POST", f"/topic/create?topic={TOPIC}"))
    with archive(daemon, table, log) as process:
        began_s = time.monotonic()
        publish(daemon, published, began_s, rate)
        while looked.stored() < published.count:
            _check(process, log, began_s, BEGIN_S_MAX)
            time.sleep(0.2)
        run = Run(daemon, process, table, log, published, looked)
        seen = list(run.seconds(seconds, rate, say))
        began_s = time.monotonic()
        while looked.stored() < published.count:
            _check(process, log, began_s, END_S_MAX)
            time.sleep(0.2)
    if process.returncode != 0:
        raise DaemonFailed(f"the archive ended with {process.returncode}: {_end_of(log)}")
    yield from figures(seen, seconds, rate)


@dataclass
class Run:
    """One steady run: publishing, and a look once a second."""

    daemon: Daemon
    process: subprocess.Popen[bytes]
    table: Path
    log: Path
    published: Published
    looked: Table

    def seconds(self, seconds: float, rate: int, say: Say) -> Iterator[Second]:
        began_s = time.monotonic()
        done, shown_s, told_s = 0, 0.0, 0.0
        before, history = self.published.count, Published()
        while (now_s := time.monotonic() - began_s) < seconds:
            if now_s < done / PUBLISHES:
                time.sleep(done / PUBLISHES - now_s)
            publish(self.daemon, history, began_s, rate)
            done += 1
            now_s = time.monotonic() - began_s
            if now_s >= shown_s + 1:
                shown_s = now_s
                _check(self.process, self.log, began_s, seconds + END_S_MAX)
                lag_s = history.lag_s(self.looked.stored() - before, time.monotonic() - began_s)
                second = Second(now_s, lag_s, history.count, self.memory_mb(), self.counts())
                if now_s >= told_s + TELL_EVERY_S:
                    told_s = now_s
                    say(second.line())
                yield second
        self.published.add(history.count, now_s)

    def memory_mb(self) -> dict[str, float]:
        nsqd = footprint.memory_mb(self.daemon.process.pid)
        return {"nsqd": nsqd, **footprint.parts_mb(self.process.pid)}

    def counts(self) -> dict[str, int]:
        """Of what a leak would show in."""
        jvm = footprint.jvm(self.process.pid)
        return {
            "processes of the archive": len(footprint.descendants(self.process.pid)),
            "open files of nsqd": footprint.open_files(self.daemon.process.pid),
            "open files of the JVM": footprint.open_files(jvm),
            "files of the checkpoint": footprint.files(self.table / "_penstock"),
            "files of the table's log": footprint.files(self.table / "_delta_log"),
            "files of the table": self.looked.files,
        }


def _check(process: subprocess.Popen[bytes], log: Path, began_s: float, seconds: float) -> None:
    if process.poll() is not None:
        raise DaemonFailed(f"the archive ended with {process.returncode}: {_end_of(log)}")
    if time.monotonic() - began_s > seconds:
        raise DaemonFailed(f"the archive stored nothing for {seconds:.0f} s: {_end_of(log)}")


def _end_of(log: Path) -> str:
    return log.read_bytes()[-2000:].decode("utf-8", "replace")


def figures(seen: list[Second], seconds: float, rate: int) -> Iterator[Figure]:
    """What is flat is no higher in the last quarter than in the first, once it has settled."""
    if not seen:
        raise DaemonFailed("too short for a look: give it a few seconds")
    lags = sorted(s.lag_s for s in seen)
    name = f"archive's lag at {rate:,} messages/s for {seconds / 60:g} min"
    yield Figure("messages published", seen[-1].published / seen[-1].at_s, "/s", f"{rate:,}")
    yield Figure(f"{name}, median", median(lags), "s", "< 3")
    yield Figure(f"{name}, p99", lags[int(0.99 * (len(lags) - 1))], "s", "< 3")
    yield Figure(f"{name}, longest", lags[-1], "s", "< 3")
    settled = [s for s in seen if s.at_s >= SETTLED_SHARE * seconds] or seen
    quarter = max(len(settled) // 4, 1)
    first, last = settled[:quarter], settled[-quarter:]
    for part in seen[0].memory_mb:
        was, now = (mean(s.memory_mb[part] for s in some) for some in (first, last))
        about = f"memory of {part}, {was:,.0f} MB before, at the end"
        yield Figure(about, now, "MB", f"flat; {now / max(was, 0.1):.2f} x")
    for what in seen[0].counts:
        was, now = (mean(s.counts[what] for s in some) for some in (first, last))
        yield Figure(f"{what}, {was:,.0f} before, at the end", now, "", BOUNDS.get(what, "flat"))
