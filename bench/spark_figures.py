"""What Spark gets out of a log and into one, figure by figure, beside Parquet with the same rows.

Everything runs on one machine: nsqd, Spark's JVM and its Python workers share the cores, so none of
them is pinned. A figure is the median of its repeats; the first run of each kind warms up and does
not count. Each function stands for one line, or a few, of the report.
"""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bench.daemon import Daemon
from bench.dialect import HOST, DaemonFailed
from bench.passes import fill
from bench.scenarios import BATCH, Plan
from penstock.pipelines import archive, replay, trace_table
from penstock.pipelines.audit import program as audit
from penstock.pipelines.progress import Progress
from penstock.pipelines.runner import Pipeline
from penstock.pipelines.settings import resolve
from penstock.spark.brokerapi import BrokerApi
from penstock.spark.decode import decode
from penstock.spark.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC = "rows"
TASKS = 2
TRACE_FILES = 4
EVENTS_EACH = 3  # of a message
DURABLE_S_MAX = 60.0
QUERY_S_MAX = 600


class Figure(NamedTuple):
    name: str
    value: float
    unit: str
    target: str
    cpu_us: float = 0.0  # for each row


def line(figure: Figure) -> str:
    digits = 2 if figure.value < 10 else 1
    value = f"{figure.value:,.0f}" if figure.value >= 1000 else f"{figure.value:.{digits}f}"
    cpu = f", {figure.cpu_us:.2f} CPU us each" if figure.cpu_us else ""
    return f"{figure.name}: {value} {figure.unit} (target {figure.target}{cpu})"


class Sizes(NamedTuple):
    rows: int  # in the log
    batch_rows: int  # of a streaming batch
    tiny_batches: int
    tiny_rows: int
    sink_rows: int
    repeats: int
    body_bytes: int = 200


FULL = Sizes(4_000_000, 500_000, 40, 10, 1_000_000, 5)
QUICK = Sizes(20_000, 5_000, 3, 10, 2_000, 1)


@dataclass
class Bench:
    """What the figures are measured on."""

    spark: SparkSession
    daemon: Daemon
    directory: Path  # for tables and checkpoints; on the disk that is to be measured
    sizes: Sizes
    _serial: int = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.daemon.ports.http}"

    def fresh(self, name: str) -> Path:
        self._serial += 1
        return self.directory / f"{name}-{self._serial}"

    def prepare(self) -> None:
        """Fill the log, and wait until all of it can be read."""
        rows, body_bytes = self.sizes.rows // BATCH * BATCH, self.sizes.body_bytes
        fill(Plan(body_bytes, False, 0), self.daemon, rows, TOPIC, [])
        deadline_s = time.monotonic() + DURABLE_S_MAX
        with BrokerApi(self.url) as api:
            while api.positions([TOPIC]).topics[TOPIC].partitions[0].end < rows:
                if time.monotonic() > deadline_s:
                    raise DaemonFailed("what was published is not durable yet")
                time.sleep(0.05)

    def repeated_s(self, act: Callable[[], object]) -> float:
        """The median time of an act, without its first run."""
        taken = []
        for _ in range(self.sizes.repeats + 1):
            began_s = time.perf_counter()
            act()
            taken.append(time.perf_counter() - began_s)
        return median(taken[1:] or taken)

    # --- frames and queries ---

    def frame(self) -> DataFrame:
        reader = self.spark.read.format("penstock").option("url", self.url)
        return reader.option("subscribe", TOPIC).option("minPartitions", str(TASKS)).load()

    def stream(self, rows_max: int, bounds: dict[str, str] | None = None) -> StreamingQuery:
        """An AvailableNow query from the log to nowhere; ended when this returns."""
        reader = self.spark.readStream.format("penstock").option("url", self.url)
        reader = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest")
        reader = reader.option("minPartitions", str(TASKS)).options(**(bounds or {}))
        frame = reader.option("maxOffsetsPerTrigger", str(rows_max)).load()
        checkpoint = self.fresh("checkpoint")
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(QUERY_S_MAX)
        error = query.exception()
        if error is not None:
            raise error
        return query


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def batches(query: StreamingQuery, rows: int) -> list[Any]:
    """The steady ones: full, and not the first."""
    full = [p for p in query.recentProgress if p["numInputRows"] == rows]
    return full[1:] or full


# --- reading ---


def raw(bench: Bench) -> Iterator[Figure]:
    """Fetch and decode in this process, as a task of Spark does, without Spark."""
    always = [(name, column.arrow_type) for name, column in COLUMNS.items() if column.always]
    schema = pa.schema(always)
    counted = 0

    def read() -> None:
        nonlocal counted
        counted = 0
        with BrokerApi(bench.url) as api:
            spans = api.positions([TOPIC]).topics[TOPIC]
            offset, end = spans.partitions[0].earliest, spans.partitions[0].end
            for fetched in api.fetches(TOPIC, 0, spans.identity, offset, end):
                held = fetched.base_offset, fetched.next_offset
                for piece in decode(fetched.data, schema, TOPIC, 0, offset, end, span=held):
                    counted += piece.num_rows
                offset = fetched.next_offset

    before_s = time.process_time()
    seconds = bench.repeated_s(read)
    cpu_s = (time.process_time() - before_s) / (bench.sizes.repeats + 1)
    rate, cpu_us = counted / seconds, 1e6 * cpu_s / counted
    yield Figure("raw fetch and decode, one core", rate, "rows/s", ">= 2,000,000", cpu_us)


def batch(bench: Bench) -> Iterator[Figure]:
    rows = bench.frame().count()
    seconds = bench.repeated_s(lambda: noop(bench.frame()))
    yield Figure("batch read through Spark", rows / seconds, "rows/s", ">= 1,200,000")
    table = bench.fresh("parquet")
    bench.frame().write.parquet(str(table))
    seconds = bench.repeated_s(lambda: noop(bench.spark.read.parquet(str(table))))
    yield Figure("Spark reading the same rows from Parquet", rows / seconds, "rows/s", "beside it")
    shutil.rmtree(table)


def streaming(bench: Bench) -> Iterator[Figure]:
    rows = bench.sizes.batch_rows
    rates = []
    for _ in range(max(bench.sizes.repeats // 2, 1)):
        for progress in batches(bench.stream(rows), rows):
            rates.append(rows / (progress["durationMs"]["triggerExecution"] / 1000))
    name = f"streaming, AvailableNow, batches of {rows:,}"
    yield Figure(name, median(rates), "rows/s", ">= 600,000")


def tiny(bench: Bench) -> Iterator[Figure]:
    """Batches of a few rows: what a batch costs that has nothing to do."""
    rows, count = bench.sizes.tiny_rows, bench.sizes.tiny_batches
    with BrokerApi(bench.url) as api:
        end = api.positions([TOPIC]).topics[TOPIC].partitions[0].end
    bounds = {"startingOffsets": f'{{"{TOPIC}":{{"0":{end - rows * count}}}}}'}
    taken = [
        progress["durationMs"]["triggerExecution"]
        for progress in batches(bench.stream(rows, bounds), rows)
    ]
    yield Figure(f"a micro-batch of {rows} rows", median(taken), "ms", "<= 300")


# --- writing ---


def sink(bench: Bench) -> Iterator[Figure]:
    """From Parquet into a topic, committed."""
    rows = bench.sizes.sink_rows
    source = bench.fresh("source")
    bench.frame().select("body").limit(rows).repartition(TASKS).write.parquet(str(source))

    def write() -> None:
        frame = bench.spark.read.parquet(str(source))
        writer = frame.write.format("penstock").mode("append").option("url", bench.url)
        writer.option("topic", "written").save()

    seconds = bench.repeated_s(write)
    yield Figure("sink to a topic", rows / seconds, "rows/s", ">= 250,000")
    shutil.rmtree(source)


def archived(bench: Bench) -> Iterator[Figure]:
    """The whole log into a new Delta table."""
    counted = 0

    def run() -> None:
        nonlocal counted
        table = archived_table(bench)
        counted = sum(archived_rows(table))
        shutil.rmtree(table)

    seconds = bench.repeated_s(run)
    yield Figure("archive to Delta", counted / seconds, "rows/s", ">= 250,000")


def archived_table(bench: Bench) -> Path:
    table = bench.fresh("archive")
    given = {"url": bench.url, "topics": [TOPIC], "table": str(table), "once": True}
    given["max-offsets-per-trigger"] = bench.sizes.batch_rows
    run_pipeline(bench, archive.PIPELINE, given)
    return table


def run_pipeline(bench: Bench, pipeline: Pipeline, given: dict[str, Any]) -> None:
    """What it says is of no interest, unless it fails."""
    own = {name.replace("-", "_"): value for name, value in given.items()}
    settings = resolve(pipeline.name, pipeline.settings, [], {}, {pipeline.name: own})
    said = io.StringIO()
    pipeline.check(settings)
    with redirect_stdout(said):
        code = pipeline.run(bench.spark, settings, Progress(pipeline.name, 1e9, said))
    if code != 0:
        raise DaemonFailed(f"{pipeline.name} ended with {code}: {said.getvalue()[:500]}")


def replayed(bench: Bench) -> Iterator[Figure]:
    """From an archive's table into a topic: the plan, and all chunks."""
    table, rows = archived_table(bench), bench.sizes.sink_rows
    given = {"url": bench.url, "table": str(table), "topics": [TOPIC], "to-offset": rows}

    def run() -> None:
        name = bench.fresh("replay").name
        run_pipeline(bench, replay.PIPELINE, {**given, "to": name, "name": name})

    seconds = bench.repeated_s(run)
    yield Figure("replay of a table into a topic", rows / seconds, "rows/s", "beside the sink")
    shutil.rmtree(table)


def archived_rows(table: Path) -> list[int]:
    """How many rows each file of a Delta table has."""
    actions = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True))
    counts: list[int] = actions.column("num_records").to_pylist()
    return counts


# --- SQL over events ---


def audited(bench: Bench) -> Iterator[Figure]:
    """Lifecycles and checks over a trace table of messages that were published, sent, finished."""
    table = bench.fresh("trace")
    messages = bench.sizes.rows // 4
    for part in range(TRACE_FILES):
        low, high = (messages * n // TRACE_FILES for n in (part, part + 1))
        write_deltalake(table, trace_events(low, high), mode="append", partition_by=["date"])
    given: dict[str, Any] = {"topic": TOPIC, "trace": str(table), "json": True}
    seconds = bench.repeated_s(lambda: run_pipeline(bench, audit.PIPELINE, given))
    yield Figure("audit", EVENTS_EACH * messages / seconds, "events/s", ">= 500,000")
    shutil.rmtree(table)


def trace_events(low: int, high: int) -> pa.Table:
    """Of messages [low, high): one every 50 microseconds, sent 1 ms and finished 2 ms later."""
    number = np.repeat(np.arange(low, high), EVENTS_EACH)
    kind = np.tile(np.arange(EVENTS_EACH), high - low)
    micros = 1_700_000_000_000_000 + 50 * number + 1000 * kind
    order = np.argsort(micros, kind="stable")
    number, kind, micros = number[order], kind[order], micros[order]
    count = len(number)
    ids = pa.array([f"{(at + 1) << 22:016x}" for at in range(low, high)])
    time_ = pa.array(micros).cast(pa.timestamp("us", tz="UTC"))
    offset = pa.array(number)
    sent = pa.array(kind > 0)
    columns = {
        "date": time_.cast(pa.timestamp("us")).cast(pa.date32()),
        "event": pa.array(["published", "sent", "finished"]).take(pa.array(kind)),
        "time": time_,
        "topic": pa.array([TOPIC]).take(pa.array(np.zeros(count, np.int64))),
        "channel": pa.array([None, "c"]).take(sent.cast(pa.int64())),
        "partition": pa.array(np.zeros(count, np.int32)),
        "offset": offset,
        "messages": pa.array(np.ones(count, np.int64)),
        "message_id": ids.take(pa.array(number - low)),
        "trace_id": pa.nulls(count, pa.int64()),
        "attempts": pa.array((kind > 0).astype(np.int16)),
        "client": pa.array([None, "a:1"]).take(sent.cast(pa.int64())),
        "trace_partition": pa.array(np.zeros(count, np.int32)),
        "trace_offset": pa.array(number // 300),
        "trace_index": pa.array((number % 300 * EVENTS_EACH + kind).astype(np.int32)),
    }
    return pa.table(columns).select(trace_table.SCHEMA.names).cast(trace_table.SCHEMA)


FIGURES: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "raw": raw,
    "batch": batch,
    "streaming": streaming,
    "tiny": tiny,
    "sink": sink,
    "archive": archived,
    "replay": replayed,
    "audit": audited,
}
