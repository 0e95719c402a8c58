"""The definition of a pipeline, and its run: settings, a session, an orderly end, one line of
error.

Exit codes: 0 done, or stopped by a signal; 1 it failed, or a setting is missing or not valid; 2 the
command line cannot be read. A pipeline may have others of its own.

The Spark session is in this process by default, on a cluster by `--master`. Spark writes a lot. A
person is to see our progress and, of Spark, errors in one line each: the stack traces are cut, and
those of the query itself are left out, since the runner says it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from penstock import limits
from penstock.command.extras import lacks_extra
from penstock.command.flags import HelpWanted, UsageError, read_document, usage
from penstock.errors import ConfigError, NotFound, PenstockError
from penstock.pipelines import settings
from penstock.pipelines.outages import Outages, cause_line, is_late
from penstock.pipelines.progress import Progress
from penstock.pipelines.settings import CATALOG_TABLE, COMMON, Setting, Settings
from penstock.spark.session import ARROW_ROWS, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOCAL = "local[*,4]"  # a task is tried four times; plain local[*] tries none again
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_LOOPBACK = "127.0.0.1"
_ALWAYS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.streaming.noDataProgressEventInterval": "1000",  # an idle query says so, too
    ARROW_ROWS: str(limits.SPARK_ROWS_MAX),  # fewer, larger calls into Python
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.sql.shuffle.partitions": "4",
}
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_JVM = "spark.driver.extraJavaOptions"


def under_spark_submit() -> bool:
    """The JVM runs already, and its master and memory were given on its own command line."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def master_of(settings: Settings) -> str:
    """ "" leaves it to spark-submit."""
    return settings.text("master") or ("" if under_spark_submit() else LOCAL)


def session_settings(settings: Settings) -> dict[str, str]:
    """Ours, and the user's, which win. Only the time zone is ours: dates and texts are in UTC, and
    tasks would get times of another type than a table has."""
    found = _ALWAYS | (_LOCAL if master_of(settings).startswith("local") else {})
    found |= _DELTA if settings.values.get(CATALOG_TABLE.name) else {}
    found |= {**settings.conf, "spark.sql.session.timeZone": "UTC"}
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
    session = open_session(name, master, session_settings(settings), java_apart=True)
    try:
        if under_spark_submit():
            session.sparkContext.setLogLevel(settings.text("spark-log").upper())
        yield session
    finally:
        session.stop()


DONE, FAILED, USAGE = 0, 1, 2


@dataclass(frozen=True)
class Pipeline:
    name: str
    summary: str  # a line
    settings: tuple[Setting, ...]
    run: Callable[[SparkSession, Settings, Progress], int]
    check: Callable[[Settings], None] = lambda settings: None  # before Spark starts
    failed: int = FAILED  # the exit code of an error, where 1 means something else
    ends: Callable[[Settings], bool] = lambda settings: True  # by itself: it waits not long

    def usage(self) -> str:
        head = f"penstock pipeline run {self.name}: {self.summary}\n"
        return head + usage(f"penstock pipeline run {self.name}", (*COMMON, *self.settings))


# By name: the module that has it as `PIPELINE`.
PIPELINES = {
    "archive": "penstock.pipelines.archive",
    "replay": "penstock.pipelines.replay",
    "audit": "penstock.pipelines.audit.program",
    "trace": "penstock.pipelines.trace",
}


def load(name: str) -> Pipeline:
    if name not in PIPELINES:
        raise NotFound("pipeline", name)
    try:
        found: Pipeline = import_module(PIPELINES[name]).PIPELINE
    except ModuleNotFoundError as error:
        raise ConfigError("pipeline", name, lacks_extra("it", "spark", error)) from error
    return found


def run_by_name(
    name: str,
    arguments: Sequence[str],
    address_flags: Callable[[frozenset[str]], list[str]] = lambda explicit: [],
) -> int:
    """`penstock pipeline run NAME ...`. Returns the exit code. `address_flags` returns address
    arguments, given the explicit settings."""
    pipeline: Pipeline | None = None
    try:
        path = settings.config_path(name, arguments, os.environ)
        document = read_document(path) if path else {}
        chosen = settings.choose(name, document, PIPELINES)
        pipeline = load(chosen)
        found = settings.resolve(name, pipeline.settings, arguments, os.environ, document)
        if more := address_flags(found.explicit):
            arguments = [*more, *arguments]
            found = settings.resolve(name, pipeline.settings, arguments, os.environ, document)
    except HelpWanted:
        sys.stdout.write(pipeline.usage() if pipeline else "")
        return DONE
    except UsageError as error:
        hint = f"penstock pipeline run {name} --help" if pipeline else "penstock pipeline list"
        sys.stderr.write(f"penstock pipeline: {error}\n{hint} says more\n")
        return USAGE
    except (PenstockError, OSError) as error:
        sys.stderr.write(f"penstock pipeline {name}: {error}\n")
        return pipeline.failed if pipeline else FAILED
    return Run(pipeline, name, found).exit_code()


class Run:
    def __init__(self, pipeline: Pipeline, name: str, found: Settings) -> None:
        self._pipeline = pipeline
        self._name = name
        self._found = found
        stream = sys.stdout if found.flag("json") else None
        self._progress = Progress(pipeline.name, found.seconds("report-every"), json_stream=stream)
        wait_s_max = found.seconds("outage-wait") if pipeline.ends(found) else None
        self._outages = Outages(self._progress, wait_s_max)

    def exit_code(self) -> int:
        from penstock.pipelines.reporter import RunMetrics, reported, served  # extra `spark`

        with stopped_by_signals(self._progress):
            try:
                with ExitStack() as stack:
                    if address := self._found.text("metrics-address"):
                        metrics = RunMetrics(self._pipeline.name, self._name, self._progress)
                        stack.enter_context(served(address, metrics))
                    self._outages.ride_out(partial(self._pipeline.check, self._found))
                    with reported(self._pipeline, self._name, self._found, self._progress):
                        self._work()
                ended = self._progress.state
                return self._failed(ended.reason) if ended.reason else ended.code or DONE
            except (PenstockError, OSError) as error:
                return self._failed(str(error))
            finally:
                self._progress.console.end()

    def _failed(self, reason: str) -> int:
        self._progress.console.fail(f"penstock pipeline {self._name}: {reason}")
        return self._pipeline.failed

    def _work(self) -> None:
        progress, code = self._progress, None
        try:
            if not progress.stopping:
                progress.say("Spark is starting")
                with open_for(self._pipeline, self._found) as session:
                    progress.note(phase="running", said="")
                    if not progress.stopping:
                        attempt = partial(self._pipeline.run, session, self._found, progress)
                        code = self._outages.ride_out(attempt)
        except Exception as error:
            more = "; --outage-wait=10m waits longer" if is_late(error) else ""
            progress.end("failed", self._pipeline.failed, cause_line(error) + more)
        else:
            progress.end("stopped" if progress.stopping else "finished", code or DONE)


_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopped_by_signals(progress: Progress) -> Iterator[None]:
    """SIGINT and SIGTERM end a pipeline after the running batch, a second one at once. That is safe
    too: an uncommitted batch is not visible, and is done again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if progress.stopping:
            os._exit(128 + number)
        progress.ask_to_stop()

    before = [signal.signal(number, on_signal) for number in _NUMBERS]
    try:
        yield
    finally:
        for number, handler in zip(_NUMBERS, before, strict=True):
            signal.signal(number, handler)
