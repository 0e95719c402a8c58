"""What a reader of the log costs those who publish.

One publisher, measured alone and beside a reader that fetches the same log again and again, window
by window in turn: so both kinds of windows see the same machine, and the median of the ratios to
the neighbours on both sides is what counts. Two placements: pinned, the daemon on its own core and
both clients on the others; and free, everything where the system puts it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from penstock.bench import machine
from penstock.bench.daemon import Daemon
from penstock.bench.dialect import HOST, DaemonFailed
from penstock.bench.passes import Publishers, fill
from penstock.bench.scenarios import BATCH, Plan
from penstock.bench.web_load import READ_BYTES, request

TOPIC = "read"
BODY_BYTES = 200
UNLIMITED_SECONDS = 3600.0


class Windows(NamedTuple):
    """How long one window is, and how many pairs of them."""

    seconds: float
    pairs: int
    messages: int  # published by MPUB in one window
    backlog: int  # messages that the reader reads


FULL = Windows(1.5, 9, 1_000_000, 500_000)
QUICK = Windows(0.2, 2, 20_000, 20_000)


class Cost(NamedTuple):
    alone: float  # milliseconds of a publish, or messages a second
    beside: float
    ratio: float  # of beside to alone, which is the mean of both neighbours: the median
    read_mb: float  # a second, by the reader


@contextmanager
def placed(daemon: Daemon, pinned: bool) -> Iterator[None]:
    """The daemon on its core and this process elsewhere, or both where the system likes."""
    whole = machine.cores()[0] | machine.cores()[1] | _all_cores()
    _move(daemon, machine.cores()[0] if pinned else whole)
    try:
        with machine.pinned(machine.cores()[1] if pinned else whole):
            yield
    finally:
        _move(daemon, machine.cores()[0])


def _all_cores() -> set[int]:
    return set(range(os.cpu_count() or 1))


def _move(daemon: Daemon, cores: set[int]) -> None:
    for task in Path(f"/proc/{daemon.process.pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cores)


@contextmanager
def reader(daemon: Daemon) -> Iterator[list[float]]:
    """A process that reads the log in a loop; what it read, in MB a second, is there at the end."""
    command = [sys.executable, "-m", "penstock.bench.looper", str(daemon.ports.http), TOPIC]
    read: list[float] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            if process.stdout is None or process.stdin is None or not process.stdout.readline():
                raise DaemonFailed("the reader did not start")
            yield read
        finally:
            said, _ = process.communicate()
            if said:
                read.append(float(said))


def cost(daemon: Daemon, windows: Windows, measure: Callable[[], float]) -> Cost:
    beside: list[float] = []
    rates: list[float] = []
    measure()
    alone = [measure()]
    for _ in range(windows.pairs):
        with reader(daemon) as read:
            beside.append(measure())
        rates += read
        alone.append(measure())
    ratios = [2 * b / sum(pair) for b, pair in zip(beside, pairwise(alone), strict=True)]
    return Cost(median(alone), median(beside), median(ratios), median(rates))


def prepare(daemon: Daemon, windows: Windows) -> None:
    fill(Plan(BODY_BYTES, False, 0), daemon, windows.backlog // BATCH * BATCH, TOPIC, [])


def publish_ms(daemon: Daemon, windows: Windows) -> float:
    """The median time of one `/pub` on a kept connection, in milliseconds."""
    data = request("POST", "/pub?topic=single", b"x" * BODY_BYTES)
    taken = []
    with socket.create_connection((HOST, daemon.ports.http)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end_s = time.perf_counter() + windows.seconds
        began_s = time.perf_counter()
        while began_s < end_s:
            sock.sendall(data)
            if not sock.recv(READ_BYTES).startswith(b"HTTP/1.1 200"):
                raise DaemonFailed("a publish failed")
            now_s = time.perf_counter()
            taken.append(now_s - began_s)
            began_s = now_s
    return 1000 * median(taken)


def publish_rate(daemon: Daemon, windows: Windows) -> float:
    """Messages a second by MPUB of 200, eight unanswered."""
    from penstock.bench.load import Load

    with ExitStack() as stack:
        load = Load(samples_max=1)
        count = windows.messages // BATCH * BATCH
        Publishers("batches", count, BATCH, 8).join(load, stack, daemon.dialect, BODY_BYTES)
        seconds = load.go(UNLIMITED_SECONDS)
        return load.acked / seconds
