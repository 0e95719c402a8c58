"""Kill -9 at random moments while messages flow: the driver, a Python worker, nsqd.

One archive lives on as long as it can: a task that lost its worker is tried again, and nsqd comes
back on its port. Where the archive has ended it is started again, as a supervisor would. At the end
the table holds what the log holds: each message once, in order, to the byte.
"""

import os
import random
import signal
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cases import fresh_seed
from e2e.daemon import Daemon
from e2e.ports import kept_port
from penstock.spark.brokerapi import name_of

from .command import WAIT_S_MAX, Command
from .node import Node, in_the_log

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
ROUNDS = int(os.environ.get("PENSTOCK_TEST_ROUNDS", "10"))
VICTIMS = ("worker",) * 5 + ("broker",) * 3 + ("driver",) * 2
VICTIMS_OF_TWO = ("worker",) * 2 + ("broker",) * 2 + ("driver",)
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
    """nsqds, traffic, and an archive that is started again when it has ended."""

    def __init__(self, path: Path, daemons: Sequence[Daemon], seed: int) -> None:
        self.table, self.nodes = path / "lake", [Node(daemon) for daemon in daemons]
        self.chance = random.Random(seed)
        self.starts = 0
        self.traffic = [Traffic(node, seed + n) for n, node in enumerate(self.nodes)]
        self.archive = self.started()

    def started(self, *flags: str) -> Command:
        self.starts += 1
        return Command(
            self.table.with_suffix(".stderr"),
            "archive",
            f"--url={','.join(node.url for node in self.nodes)}",
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
            daemon = self.chance.choice(self.nodes).daemon
            daemon.kill()
            time.sleep(self.chance.uniform(0, AWAY_S_MAX))
            daemon.start()
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
        self.stop_traffic()
        end = sum(node.end("orders") for node in self.nodes)
        deadline_s = time.monotonic() + WAIT_S_MAX
        while len(in_the_table(self.table)) < end:
            assert time.monotonic() < deadline_s, self.archive.said()
            if self.archive.ended:
                self.archive.finish()
                self.archive = self.started()
            time.sleep(0.1)

    def stop_traffic(self) -> None:
        for traffic in self.traffic:
            traffic.stop()

    def check(self) -> int:
        """What each log has is in the table, and nothing else. How many messages that is."""
        count = 0
        for node, traffic in zip(self.nodes, self.traffic, strict=True):
            log = in_the_log(node, "orders", COLUMNS)
            check_traffic(log, traffic.answered)
            broker = name_of(node.url) if len(self.nodes) > 1 else None
            assert in_the_table(self.table, broker).equals(log)
            count += log.num_rows
        assert len(in_the_table(self.table)) == count
        return count

    def end(self) -> None:
        self.stop_traffic()
        if not self.archive.ended:
            self.archive.kill()


def in_the_table(path: Path, broker: str | None = None) -> pa.Table:
    """All rows, or those of one nsqd of several."""
    of_one = [("broker", "=", broker)] if broker else None
    found = DeltaTable(path).to_pyarrow_table(columns=COLUMNS.names, filters=of_one)
    return found.sort_by("offset").cast(COLUMNS)


def check_traffic(log: pa.Table, answered: int) -> None:
    """All that was answered is there, in order; what came again had lost its answer."""
    numbers = [struct.unpack(">Q", body[:8])[0] for body in log.column("body").to_pylist()]
    firsts = list(dict.fromkeys(numbers))
    assert firsts == list(range(len(firsts)))
    assert len(firsts) >= answered


@pytest.mark.parametrize(
    ("nsqds", "of", "count"),
    [(1, VICTIMS, ROUNDS), (2, VICTIMS_OF_TWO, ROUNDS // 2)],
    ids=["one nsqd", "two nsqds"],
)
def test_driver_workers_and_nsqd_are_killed_while_messages_flow(
    java: None, tmp_path: Path, nsqds: int, of: Sequence[str], count: int
) -> None:
    seed = fresh_seed()
    print(f"PENSTOCK_TEST_SEED={seed}")  # shown when it fails
    with ExitStack() as stack:
        daemons = [
            stack.enter_context(Daemon(tmp_path / f"nsqd-{n}", f"--http-address=127.0.0.1:{port}"))
            for n, port in enumerate(kept_port() for _ in range(nsqds))
        ]
        arena = Arena(tmp_path, daemons, seed)
        try:
            for victim in rounds(arena.chance, of, count):
                arena.go_on()
                time.sleep(arena.chance.uniform(0, PAUSE_S_MAX))
                print(arena.kill(victim), flush=True)
            arena.catch_up()
        finally:
            arena.end()
        messages = arena.check()
    print(f"{messages} messages, {arena.starts} starts")


def rounds(chance: random.Random, of: Sequence[str], count: int) -> list[str]:
    """Each kind in its share, in any order."""
    victims: list[str] = []
    while len(victims) < count:
        victims += chance.sample(of, len(of))
    return victims[:count]
