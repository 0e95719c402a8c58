"""`make bench-spark`: the figures of the data pipeline, measured with a fresh nsqd and an embedded
Spark."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench import machine
from bench.daemon import Daemon, penstock
from bench.dialect import DaemonFailed
from bench.spark_figures import FIGURES, FULL, QUICK, Bench, Figure, Sizes, line
from penstock.errors import PenstockError
from penstock.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
STDOUT = Path("-")
EPILOG = """examples:
  make bench-spark ARGS="--quick"
  make bench-spark ARGS="raw batch --json figures.json"

Nothing is pinned: nsqd and Spark share the machine. Other work on it shows in every
figure, so look at the load that is printed first."""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m bench.spark",
        description="Measure the data pipeline.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("name", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}")
    p.add_argument("--quick", action="store_true", help="a short look: the figures mean little")
    p.add_argument("--rows", type=int, help=f"messages in the log ({FULL.rows:,})")
    p.add_argument("--repeats", type=int, help=f"the median counts ({FULL.repeats})")
    p.add_argument("--data-dir", type=Path, help="where nsqd's data and the tables go")
    about = "print JSON instead of lines; with FILE write it there too"
    p.add_argument("--json", type=Path, metavar="FILE", nargs="?", const=STDOUT, help=about)
    return p


def sizes_of(options: argparse.Namespace) -> Sizes:
    sizes = QUICK if options.quick else FULL
    return sizes._replace(rows=options.rows or sizes.rows, repeats=options.repeats or sizes.repeats)


@contextmanager
def session() -> Iterator[SparkSession]:
    spark = open_session("penstock benchmark", MASTER, SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def bench_on(spark: SparkSession, sizes: Sizes, parent: Path | None) -> Iterator[Bench]:
    with ExitStack() as stack:
        path = stack.enter_context(tempfile.TemporaryDirectory("-bench-spark", dir=parent))
        running = stack.enter_context(Daemon(penstock("os"), Path(path) / "nsqd"))
        stack.enter_context(running.placed(pinned_apart=False))
        bench = Bench(spark, running, Path(path), sizes)
        bench.prepare()
        yield bench


def pipeline_figures(options: argparse.Namespace) -> Iterator[Figure]:
    with session() as spark, bench_on(spark, sizes_of(options), options.data_dir) as bench:
        for name in options.name or FIGURES:
            yield from FIGURES[name](bench)


def run(options: argparse.Namespace) -> int:
    found: list[Figure] = []
    about = machine.describe(options.data_dir or Path(tempfile.gettempdir()))
    talks = options.json != STDOUT
    if talks:
        print(" ".join(f"{key}={value}" for key, value in about.items()), flush=True)
    for figure in pipeline_figures(options):
        found.append(figure)
        if talks:
            print(line(figure), flush=True)
    document = {"machine": about, "figures": [figure._asdict() for figure in found]}
    text = json.dumps(document, indent=2) + "\n"
    if not talks:
        sys.stdout.write(text)
    elif options.json:
        options.json.write_text(text)
    return 0


def bench_spark_main(argv: Sequence[str]) -> int:
    options = parser().parse_args(argv)
    unknown = [name for name in options.name if name not in FIGURES]
    if unknown:
        print(f"{unknown[0]!r} is none of {', '.join(FIGURES)}", file=sys.stderr)
        return 2
    try:
        return run(options)
    except (DaemonFailed, PenstockError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(bench_spark_main(sys.argv[1:]))
