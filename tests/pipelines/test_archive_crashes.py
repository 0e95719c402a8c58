"""The archive is killed at each step; afterwards every message is in the table exactly once.

The steps that matter are hit for certain: a process of Spark's kills itself when it gets there. The
rest is hit at random: the driver with its JVM, and nsqd, while messages flow.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from e2e.daemon import Daemon
from penstock.pipelines import archive
from penstock.pipelines.lake import Place
from penstock.pipelines.lakesink import LakeSink, StreamWriter
from penstock.spark.brokerapi import BrokerApi
from penstock.spark.decode import decode

from .node import Node, numbered
from .test_archive import Archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]
ROUNDS = int(os.environ.get("PENSTOCK_TEST_ROUNDS", "1"))
QUICK_START = (
    "--conf=spark.driver.memory=1g",
    "--conf=spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
)
WAIT_S_MAX = 90.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Daemon(tmp_path / "nsqd") as daemon:
        yield Node(daemon)


# --- at each step, for certain ---


class DyingWriter(StreamWriter):
    """Its process dies at the step that a file beside the table names, once."""

    def _dies_at(self, step: str) -> None:
        orders = Path(self._place.uri + ".dies")
        if orders.exists() and orders.read_text() == step:
            orders.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self._dies_at("before anything was written")
        message = super().write(iterator)
        self._dies_at("after the files were written")
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._dies_at("before the commit")
        super().commit(messages, batchId)
        self._dies_at("after the commit")


class DyingSink(LakeSink):
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return DyingWriter(self.options, schema, overwrite)


STEPS = (
    "before anything was written",
    "after the files were written",
    "before the commit",
    "after the commit",
)


def test_a_process_dies_at_each_step(
    spark: SparkSession, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setattr(archive, "LakeSink", DyingSink)
    made = Archive(spark, node, tmp_path / "lake")
    published = 0
    try:
        for step in STEPS:
            published = node.publish("orders", numbered(50, published))
            (tmp_path / "lake.dies").write_text(step)
            with pytest.raises(StreamingQueryException):
                made.run()
            assert not (tmp_path / "lake.dies").exists()
            made.run()
            assert made.rows('"offset"') == [(n,) for n in range(published)], step
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        spark.dataSource.register(LakeSink)


# --- at random ---


class Traffic:
    """Publishes until it is told to stop; nsqd may be away meanwhile."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        number = 0
        while not self._stop.wait(0.02):
            try:
                self._node.daemon.post("/mpub?topic=orders", b"\n".join(numbered(100, number)))
                number += 100
            except (OSError, AssertionError):
                continue

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Process:
    """`penstock pipeline run archive`, as a user starts it."""

    def __init__(self, node: Node, table: Path, *more: str) -> None:
        self.rows = 0
        self.errors = table.with_suffix(".stderr")
        command = [sys.executable, "-m", "penstock.tools.main", "pipeline", "run", "archive"]
        command += [f"--url={node.url}", "--topics=orders", f"--table={table}", "--json"]
        command += ["--trigger=100ms", "--compact-after=4", "--report-every=100ms"]
        with self.errors.open("ab") as stderr:
            self.process = subprocess.Popen(
                [*command, *QUICK_START, *more],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )

    def wait_for_more_rows(self) -> None:
        self.wait_for_rows(self.rows + 1)

    def wait_for_rows(self, least: int) -> None:
        stdout = cast("Any", self.process.stdout)
        deadline_s = time.monotonic() + WAIT_S_MAX
        for line in stdout:
            self.rows = max(self.rows, json.loads(line).get("rows", 0))
            if self.rows >= least:
                return
            assert time.monotonic() < deadline_s
        raise AssertionError(f"it ended: {self.errors.read_text()[-2000:]}")

    def kill(self) -> None:
        """The driver and its JVM at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self._end()

    def _end(self) -> None:
        self.process.wait()
        cast("Any", self.process.stdout).close()


def in_the_log(node: Node) -> list[tuple[int, str, bytes]]:
    schema = pa.schema([("offset", pa.int64()), ("id", pa.string()), ("body", pa.binary())])
    found = []
    with BrokerApi(node.url) as api:
        spans = api.positions(["orders"]).topics["orders"]
        position, end = 0, spans.partitions[0].end
        while position < end:
            part = api.fetch("orders", 0, spans.identity, position, end)
            for batch in decode(part.data, schema, "orders", 0, position, end):
                found += [(r["offset"], r["id"], r["body"]) for r in batch.to_pylist()]
            position = part.next_offset
    return found


@pytest.mark.timeout(300)
def test_driver_and_nsqd_are_killed_while_messages_flow(tmp_path: Path) -> None:
    """nsqd comes back on its port and the archive goes on by itself; the driver starts again."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    table = tmp_path / "lake"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Daemon(tmp_path / "nsqd", f"--http-address=127.0.0.1:{port}") as daemon:
        node = Node(daemon)
        traffic = Traffic(node)
        try:
            for _ in range(ROUNDS):
                run = Process(node, table)
                run.wait_for_rows(1)
                daemon.kill()
                time.sleep(chance.uniform(0, 2))
                daemon.start()
                run.wait_for_more_rows()
                time.sleep(chance.uniform(0, 1))
                run.kill()
        finally:
            traffic.stop()
        last = Process(node, table, "--once")
        last.process.communicate(timeout=WAIT_S_MAX)
        assert last.process.returncode == 0, last.errors.read_text()[-2000:]
        made = Place(str(table), {}).open()
        assert made is not None
        rows = made.to_pyarrow_table(columns=["offset", "id", "body"]).sort_by("offset")
        found = [(r["offset"], r["id"], r["body"]) for r in rows.to_pylist()]
        assert found == in_the_log(node)
