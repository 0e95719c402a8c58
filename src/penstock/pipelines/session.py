"""The Spark session of a pipeline: in this process by default, on a cluster by `--master`.

Spark writes a lot. A person is to see our progress and, of Spark, errors in one line each:
the stack traces are cut, and those of the query itself are left out, since the runner says it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipelines.settings import Settings
from penstock.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipelines.runner import Pipeline

LOCAL = "local[*,4]"  # a task is tried four times; plain local[*] tries none again
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_LOOPBACK = "127.0.0.1"
_ALWAYS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.streaming.noDataProgressEventInterval": "1000",  # an idle query says so, too
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",  # fewer, larger calls into Python
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.sql.shuffle.partitions": "4",
}
_JVM = "spark.driver.extraJavaOptions"


def under_spark_submit() -> bool:
    """The JVM runs already, and its master and memory were given on its own command line."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def master_of(settings: Settings) -> str:
    """ "" leaves it to spark-submit."""
    return settings.text("master") or ("" if under_spark_submit() else LOCAL)


def session_settings(pipeline: Pipeline, settings: Settings) -> dict[str, str]:
    """Ours, the pipeline's, and the user's: the later wins."""
    local = master_of(settings).startswith("local")
    found = {**_ALWAYS, **(_LOCAL if local else {}), **pipeline.spark_settings, **settings.conf}
    if not under_spark_submit():
        level = settings.text("spark-log")
        logs = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()} -Dpenstock.spark.log={level}"
        found[_JVM] = f"{logs} {found.get(_JVM, '')}".strip()
    return found


@contextmanager
def open_for(pipeline: Pipeline, settings: Settings) -> Iterator[SparkSession]:
    master = master_of(settings)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    name = f"penstock {pipeline.name}"
    session = open_session(name, master, session_settings(pipeline, settings), java_apart=True)
    try:
        if under_spark_submit():
            session.sparkContext.setLogLevel(settings.text("spark-log").upper())
        yield session
    finally:
        session.stop()


def java_pid(session: SparkSession) -> int:
    """Of the JVM that this process has started, or that has started this process."""
    process = getattr(session.sparkContext._gateway, "proc", None)
    return int(process.pid) if process is not None else os.getppid()


def end_late_workers(java: int) -> list[int]:
    """Spark leaves a Python process alone that did not connect in time: it goes on to start, to
    find that nobody waits. Ends those of a JVM that has no query; daemons, which it keeps, stay.
    Where there is no /proc nothing is done."""
    ended = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            words = path.with_name("cmdline").read_bytes().split(b"\0")
            modules = [word for word in words if word.startswith(b"pyspark.")]
            if parent == java and modules and modules[0] != b"pyspark.daemon":
                os.kill(int(path.parent.name), signal.SIGKILL)
                ended.append(int(path.parent.name))
        except OSError:
            continue  # it has just ended by itself
    return ended
