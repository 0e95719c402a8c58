"""Kill -9 at random moments while messages flow: the driver, a Python worker, nsqd.

One archive lives on as long as it can: a task that lost its worker is tried again, and nsqd comes
back on its port. Where the archive has ended it is started again, as a supervisor would. At the end
the table holds what the log holds: each message once, in order, to the byte.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from e2e.daemon import Daemon
from e2e.harness import fresh_seed
from penstock.pipelines.lake import Place

from .command import WAIT_S_MAX, Command
from .node import Node, in_the_log

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
ROUNDS = int(os.environ.get("PENSTOCK_TEST_ROUNDS", "20"))
VICTIMS = ("worker",) * 11 + ("broker",) * 6 + ("driver",) * 3
PAUSE_S_MAX = 0.8  # several batches
AWAY_S_MAX = 1.0
BODIES = 30  # of one publish
BODY_BYTES_MAX = 300
COLUMNS = pa.schema([("offset", pa.int64()), ("id", pa.string()), ("body", pa.binary())])


class Traffic:
    """Publishes until it is told to stop; nsqd may be away meanwhile. A body begins with its
    number, and the same bodies go out again when no answer came."""

    def __init__(self, node: Node, seed: int) -> None:
        self.answered = 0
        self._node, self._chance = node, random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        body = self._batch()
        while not self._stop.wait(0.03):
            try:
                self._node.daemon.post("/mpub?topic=orders&binary=true", body)
            except (OSError, AssertionError):
                continue
            self.answered += BODIES
            body = self._batch()

    def _batch(self) -> bytes:
        parts = [struct.pack(">I", BODIES)]
        for number in range(self.answered, self.answered + BODIES):
            rest = self._chance.randbytes(self._chance.randrange(BODY_BYTES_MAX))
            parts.append(struct.pack(">IQ", 8 + len(rest), number) + rest)
        return b"".join(parts)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Arena:
    """nsqd, traffic, and an archive that is started again when it has ended."""

    def __init__(self, path: Path, daemon: Daemon, seed: int) -> None:
        self.table, self.daemon, self.node = path / "lake", daemon, Node(daemon)
        self.chance = random.Random(seed)
        self.starts = 0
        self.traffic = Traffic(self.node, seed)
        self.archive = self.started()

    def started(self, *flags: str) -> Command:
        self.starts += 1
        return Command(
            self.table.with_suffix(".stderr"),
            "archive",
            f"--url={self.node.url}",
            "--topics=orders",
            f"--table={self.table}",
            "--trigger=50ms",
            "--compact-after=8",
            *flags,
        )

    def kill(self, victim: str) -> str:
        """What was killed."""
        if victim == "driver":
            self.archive.kill()
        elif victim == "broker":
            self.daemon.kill()
            time.sleep(self.chance.uniform(0, AWAY_S_MAX))
            self.daemon.start()
        else:
            return self.kill_worker()
        return victim

    def kill_worker(self) -> str:
        workers = self.archive.workers()
        if not workers:
            return "no worker"
        kind = self.chance.choice(sorted(workers))
        with suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(self.chance.choice(workers[kind]), signal.SIGKILL)
        return kind

    def go_on(self) -> None:
        """Until the archive has stored more, be it a new one."""
        while not self.archive.wait_for_rows(self.archive.rows + 1):
            print(f"it ended with {self.archive.finish()}: {self.archive.said()}")
            self.archive = self.started()

    def catch_up(self) -> None:
        """With all that was published: the traffic ends."""
        self.traffic.stop()
        end, deadline_s = self.node.end("orders"), time.monotonic() + WAIT_S_MAX
        while len(in_the_table(self.table)) < end:
            assert time.monotonic() < deadline_s, self.archive.said()
            if self.archive.ended:
                self.archive.finish()
                self.archive = self.started()
            time.sleep(0.1)

    def end(self) -> None:
        self.traffic.stop()
        if not self.archive.ended:
            self.archive.kill()


def in_the_table(path: Path) -> pa.Table:
    made = Place(str(path), {}).open()
    assert made is not None
    return made.to_pyarrow_table(columns=COLUMNS.names).sort_by("offset").cast(COLUMNS)


def check_traffic(log: pa.Table, answered: int) -> None:
    """All that was answered is there, in order; what came again had lost its answer."""
    numbers = [struct.unpack(">Q", body[:8])[0] for body in log.column("body").to_pylist()]
    firsts = list(dict.fromkeys(numbers))
    assert firsts == list(range(len(firsts)))
    assert len(firsts) >= answered


def test_driver_workers_and_nsqd_are_killed_while_messages_flow(java: None, tmp_path: Path) -> None:
    seed = fresh_seed()
    print(f"PENSTOCK_TEST_SEED={seed}")  # shown when it fails
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Daemon(tmp_path / "nsqd", f"--http-address=127.0.0.1:{port}") as daemon:
        arena = Arena(tmp_path, daemon, seed)
        try:
            for victim in rounds(arena.chance):
                arena.go_on()
                time.sleep(arena.chance.uniform(0, PAUSE_S_MAX))
                print(arena.kill(victim), flush=True)
            arena.catch_up()
        finally:
            arena.end()
        log = in_the_log(arena.node, "orders", COLUMNS)
        check_traffic(log, arena.traffic.answered)
        assert in_the_table(arena.table).equals(log)
    print(f"{log.num_rows} messages, {arena.starts} starts")


def rounds(chance: random.Random) -> list[str]:
    """Each kind in its share, in any order."""
    victims: list[str] = []
    while len(victims) < ROUNDS:
        victims += chance.sample(VICTIMS, len(VICTIMS))
    return victims[:ROUNDS]
