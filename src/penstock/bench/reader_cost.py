"""What a reader of the log costs those who publish.

One publisher, measured alone and beside a reader that fetches a log again and again. Windows are
short, and come in pairs of neighbours, now the one first and now the other: so both kinds see the
same machine, and whatever wanders is slower than a pair. What counts is the median of the pairs'
ratios; the quartiles say how far to trust it. The topic that is published to is deleted after each
window: else the disk falls behind after some seconds, and its pace is what would be measured.

Two placements: pinned, the daemon on its own core and both clients on the others; and free,
everything where the system puts it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median, quantiles
from typing import NamedTuple

from penstock.bench.daemon import Daemon
from penstock.bench.dialect import HOST, DaemonFailed
from penstock.bench.passes import Publishers, fill
from penstock.bench.scenarios import BATCH, Plan
from penstock.bench.web_load import READ_BYTES, exchange, request

TOPIC, PUBLISHED = "read", "written"
BODY_BYTES = 200
WINDOW = 8  # MPUBs unanswered
COUNT_MAX = 1_000_000_000 // BATCH * BATCH  # messages: more than a window has time for
SETTLE_SECONDS = 0.02


class Windows(NamedTuple):
    """How long one window is, and how many pairs of them."""

    seconds: float
    pairs: int
    backlog: int  # messages that the reader reads


FULL = Windows(0.25, 60, 500_000)
QUICK = Windows(0.1, 2, 20_000)


class Cost(NamedTuple):
    alone: float  # milliseconds of a publish, or messages a second
    beside: float
    ratios: tuple[float, float, float]  # of beside to alone: lower quartile, median, upper
    read_mb: float  # a second, by the reader

    @property
    def spread(self) -> str:
        return f"{self.ratios[0]:.2f} to {self.ratios[2]:.2f}"


class Reader:
    """A process that reads while it is told to. Use as a context manager."""

    def __init__(self, daemon: Daemon) -> None:
        self.rates: list[float] = []  # MB a second, of each time
        command = [sys.executable, "-m", "penstock.bench.log_reader", str(daemon.ports.http), TOPIC]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Reader:
        self._hear()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    @contextmanager
    def reading(self) -> Iterator[None]:
        self._say()
        self._hear()
        try:
            yield
        finally:
            self._say()
            self.rates.append(float(self._hear()))

    def _say(self) -> None:
        if self._process.stdin is None:
            raise DaemonFailed("the reader has no input")
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _hear(self) -> str:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise DaemonFailed("the reader ended")
        return line


def cost(daemon: Daemon, windows: Windows, measure_in: Callable[[Daemon, float], float]) -> Cost:
    def measure() -> float:
        return measure_in(daemon, windows.seconds)

    alone: list[float] = []
    beside: list[float] = []
    with Reader(daemon) as reader:
        measure()
        for number in range(windows.pairs):
            for reads in (True, False) if number % 2 else (False, True):
                if reads:
                    with reader.reading():
                        beside.append(measure())
                else:
                    alone.append(measure())
                _forget(daemon)
    ratios = [b / a for a, b in zip(alone, beside, strict=True)]
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    return Cost(median(alone), median(beside), (low, middle, high), median(reader.rates))


def _forget(daemon: Daemon) -> None:
    """What was published, before the system writes it to the disk."""
    exchange(daemon.ports.http, request("POST", f"/topic/delete?topic={PUBLISHED}"))
    time.sleep(SETTLE_SECONDS)


def prepare(daemon: Daemon, windows: Windows) -> None:
    fill(Plan(BODY_BYTES, False, 0), daemon, windows.backlog // BATCH * BATCH, TOPIC, [])


def publish_ms(daemon: Daemon, seconds: float) -> float:
    """The median time of one `/pub` on a kept connection, in milliseconds."""
    data = request("POST", f"/pub?topic={PUBLISHED}", b"x" * BODY_BYTES)
    taken = []
    with socket.create_connection((HOST, daemon.ports.http)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end_s = time.perf_counter() + seconds
        began_s = time.perf_counter()
        while began_s < end_s:
            sock.sendall(data)
            if not sock.recv(READ_BYTES).startswith(b"HTTP/1.1 200"):
                raise DaemonFailed("a publish failed")
            now_s = time.perf_counter()
            taken.append(now_s - began_s)
            began_s = now_s
    return 1000 * median(taken)


def publish_rate(daemon: Daemon, seconds: float) -> float:
    """Messages a second by MPUB of 200, eight unanswered."""
    from penstock.bench.load import Load

    with ExitStack() as stack:
        load = Load(samples_max=1)
        endless = Publishers(PUBLISHED, COUNT_MAX, BATCH, WINDOW)
        endless.join(load, stack, daemon.dialect, BODY_BYTES)
        taken_s = load.go(seconds)
        return load.acked / taken_s
