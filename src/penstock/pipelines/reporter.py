"""Reports about a running pipeline: its state, as messages of `_pipelines` (`runs.py`), and figures
for Prometheus.

A run is never slowed and never fails for it. Whoever works only sets attributes of `Progress`; a
thread of its own looks at them every two seconds and publishes what has changed. When nsqd can't
be reached, or refuses, that is said once, and tried again after a while. The end of a run waits
for its last message as long as nsqd takes messages, and else for some seconds.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import msgspec
from deltalake.exceptions import DeltaError
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock import __version__, limits
from penstock.broker.topics.settings import PIPELINES
from penstock.command.flags import Kind
from penstock.durations import format_duration
from penstock.errors import BrokerRefused, ConfigError, FetchFailed, PenstockError
from penstock.net.listener import parse_address
from penstock.nsqdapi import calls
from penstock.pipelines import runs
from penstock.pipelines.progress import Progress
from penstock.pipelines.runner import Pipeline, under_spark_submit
from penstock.pipelines.runs import ENDED, Log, LogOffsets, Option, RunFacts, RunState, RunStatus
from penstock.pipelines.settings import COMMON, Setting, Settings, nsqd_of
from penstock.spark.brokerapi import BrokerApi
from penstock.spark.options import comma_separated

_TOO_BIG = 413


@contextmanager
def reported(
    pipeline: Pipeline, name: str, settings: Settings, progress: Progress
) -> Iterator[None]:
    """Report the run within, unless its settings forbid it. A run that leaves it without an outcome
    was stopped."""
    with ExitStack() as stack:
        if not settings.flag("no-report"):
            teller = Teller(pipeline, name, settings, progress, Outlet(settings))
            teller.start()
            stack.callback(teller.end)
        try:
            yield
        finally:
            if progress.state.phase not in ENDED:
                progress.end("stopped", 0)


class Outlet:
    """To nsqd's topic, in the thread that publishes. A silent nsqd is replaced by the next of
    several."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._api: BrokerApi | None = None
        self._turn = 0

    def publish(self, body: bytes) -> None:
        if self._api is None:
            urls = self._urls()
            self._api = self._nsqd(urls[self._turn % len(urls)])
        try:
            self._api.ask(calls.publish(PIPELINES, body))
        except FetchFailed as error:
            if not isinstance(error, BrokerRefused):
                self.close()
                self._turn += 1
            raise

    def _nsqd(self, url: str) -> BrokerApi:
        return nsqd_of(self._settings, url, round(limits.RUN_ASK_S * 1000), retries=0)

    def _urls(self) -> Sequence[str]:
        lookupds = self._settings.values.get("lookupd")
        if not lookupds:
            return comma_separated(self._settings.text("url"))
        lookupd = lookupds[self._turn % len(lookupds)]
        with self._nsqd(lookupd) as asked:
            found = [one.http_address for one in asked.ask(calls.nodes())]
        if not found:
            raise FetchFailed(lookupd, "it knows no nsqd")
        return found

    def close(self) -> None:
        api, self._api = self._api, None
        if api is not None:
            api.close()


class Teller:
    def __init__(
        self, pipeline: Pipeline, name: str, settings: Settings, progress: Progress, outlet: Outlet
    ) -> None:
        self._screen = screen = Screen((*COMMON, *pipeline.settings), settings)
        now_s = time.time()
        begun = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now_s))  # ids sort by it
        self._sent = RunStatus(
            run=f"{begun}-{pipeline.name}-{secrets.token_hex(4)}",
            seq=0,
            pipeline=pipeline.name,
            state="started",
            time_s=now_s,
            started_s=now_s,
            name=screen.text(name, limits.RUN_NAME_CHARS),
            host=runs.cut(socket.gethostname(), limits.RUN_NAME_CHARS),
            pid=os.getpid(),
            version=__version__,
            submitted=under_spark_submit(),
            options=screen.options(),
        )
        self._progress = progress
        self._outlet = outlet
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="run reports", daemon=True)
        self._version: tuple[int | None, int | None] = (None, None)  # of the table, and the batch
        self._pages_sent = 0
        self._remark = ""  # on its pages
        self._sent_s = -limits.RUN_ALIVE_S  # monotonic
        self._failures = 0
        self._has_complained = False

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(limits.RUN_END_S)

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self.look()
                failing_s = limits.RUN_ALIVE_S if self._failures > 1 else 0.0
                self._ended.wait(max(limits.RUN_REPORT_S, failing_s))
            self.look()
        finally:
            self._outlet.close()

    def look(self) -> None:
        now = self._progress.state
        try:
            self._tell_pages(now)
            state = self._state(now)
            if now.phase in ENDED or self._is_due(state):
                self._outlet.publish(runs.encode(state))
                self._sent, self._sent_s = state, time.monotonic()
            self._failures = 0
        except PenstockError as error:
            self._failed(error)

    def _is_due(self, state: RunStatus) -> bool:
        if time.monotonic() - self._sent_s >= limits.RUN_ALIVE_S:
            return True
        before = msgspec.structs.replace(self._sent, seq=state.seq, time_s=state.time_s)
        return before != msgspec.structs.replace(state, lag_seconds=before.lag_seconds)

    def _failed(self, error: PenstockError) -> None:
        self._failures += 1
        lasting = not isinstance(error, FetchFailed) or error.status or self._failures > 1
        if lasting and not self._has_complained and not self._ended.is_set():
            self._has_complained = True
            line = f"nsqadmin does not hear of this run, which goes on: {error}"
            self._progress.console.line(line)

    def _tell_pages(self, now: RunState) -> None:
        for form, text in now.pages[self._pages_sent :]:
            try:
                for part in runs.parts_of(self._sent.run, form, text):
                    self._outlet.publish(runs.encode(part))
            except BrokerRefused as error:
                if error.status != _TOO_BIG:
                    raise
                self._remark = f"its {form} report is larger than nsqd's max-msg-size"
            self._pages_sent += 1

    def _state(self, now: RunState) -> RunStatus:
        facts = {name: getattr(now, name) for name in RunFacts.__struct_fields__}
        facts["lag_seconds"] = now.lag_at(time.time())
        facts["left_seconds"] = None if now.phase in ENDED else now.left_seconds
        facts["outcome"] = "; ".join(filter(None, (now.outcome, self._remark)))
        texts = {n: self._screen.text(text) for n, text in facts.items() if isinstance(text, str)}
        return msgspec.structs.replace(
            self._sent,
            seq=self._sent.seq + 1,
            time_s=time.time(),
            state=now.phase,
            table_version=self._table_version(now),
            logs=furthest_behind(now.logs),
            **facts | texts,
        )

    def _table_version(self, now: RunState) -> int | None:
        """Read anew after a new batch: it needs the table's log."""
        version, batch = self._version
        if now.version_of is None or (version is not None and batch == now.batch):
            return version
        try:
            self._version = (now.version_of(), now.batch)
        except (PenstockError, DeltaError, OSError, ValueError):
            return version  # the run itself says what is wrong with its table
        return self._version[0]


def furthest_behind(logs: Mapping[Log, tuple[int, int]]) -> list[LogOffsets]:
    log_offsets = [LogOffsets(*log, at, end) for log, (at, end) in logs.items()]
    if len(log_offsets) > limits.RUN_LOGS_MAX:
        log_offsets.sort(key=lambda one: one.at - one.end)
    return sorted(log_offsets[: limits.RUN_LOGS_MAX], key=lambda one: (one.topic, one.partition))


# --- for Prometheus ---


class RunMetrics(Collector):
    """The present figures."""

    def __init__(self, pipeline: str, name: str, progress: Progress) -> None:
        self._labels = {"pipeline": pipeline, "name": name}
        self._progress = progress

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        state = self._progress.state
        lag_s = state.lag_at(time.time())
        gauge, counter = GaugeMetricFamily, CounterMetricFamily
        for kind, name, text, value in (
            (gauge, "up", "1 when Spark has started.", int(state.phase != "started")),
            (gauge, "waiting", "1 while an outage is waited out.", int(state.waiting)),
            (counter, "outages", "Attempts that ended by an outage.", state.outages),
            (counter, "rows", "Rows done by this run.", state.rows),
            (gauge, "rows_per_second", "Rows a second, lately.", state.rows_per_second),
            (gauge, "lag_rows", "Rows that the logs have, the target not.", state.lag_rows),
            (gauge, "lag_seconds", "The target has all up to so long ago.", lag_s),
            (gauge, "batch", "Number of the last batch that was committed.", state.batch),
            (gauge, "last_commit_timestamp_seconds", "When that was.", state.committed_s),
        ):
            if value is not None:
                metric = kind(f"penstock_pipeline_{name}", text, labels=list(self._labels))
                metric.add_metric(list(self._labels.values()), value)
                yield metric
        names = [*self._labels, "topic", "partition"]
        text = "Rows of each partition of each topic that the target has not."
        of_logs = gauge("penstock_pipeline_topic_lag_rows", text, labels=names)
        for (topic, partition), (at, end) in state.logs.items():
            of_logs.add_metric([*self._labels.values(), topic, str(partition)], end - at)
        yield of_logs


@contextmanager
def served(address: str, metrics: Collector) -> Iterator[int]:
    """At host:port, in a thread; returns the port. ConfigError when it cannot listen."""
    at = parse_address(address, "metrics-address")
    if at.path or not at.host:
        raise ConfigError("metrics-address", address, "host:port, as 127.0.0.1:9209")
    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server, thread = start_http_server(at.port, at.host, registry)
    except OSError as error:
        rule = f"it can't be listened on: {error}"
        raise ConfigError("metrics-address", address, rule) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# --- settings without secrets ---
#
# The report of a run is read by everybody who may look at nsqadmin, or read the topic. So the
# values of `conf` and `storage-option` are hidden, whatever they are: who can tell which of them
# is a key? Of URLs the user, the password and the query are, wherever they stand in a text. What
# was hidden once is hidden in every other text too, as in an error that repeats it.

HIDDEN = "***"
_USER = re.compile(r"(?<=://)[^/?#\s@]*@")
_QUERY = re.compile(r"(\w://[^\s?]*)\?[^\s'\"]*")
_CHARS_MIN = 4  # of what is hidden wherever it stands: "2g" is in every second text
_PLAIN = ("true", "false")
_LISTED_MAX = 20  # of a list: topics of an archive have a pattern where they are many
_OPTION_CHARS_MAX = 500


class Screen:
    """Hides secrets in the settings that are shown."""

    def __init__(self, table: Sequence[Setting], settings: Settings) -> None:
        self._table = table
        self._settings = settings
        repeated = [one.name for one in table if one.kind is Kind.REPEATED]
        pairs = (pair for name in repeated for pair in settings.texts(name))
        values = {pair.partition("=")[2] or pair for pair in pairs}.difference(_PLAIN)
        hidden = (value for value in values if len(value) >= _CHARS_MIN)
        self._values = sorted(hidden, key=len, reverse=True)

    def text(self, text: str, chars_max: int = limits.RUN_TEXT_CHARS) -> str:
        for value in self._values:
            text = text.replace(value, HIDDEN)
        text = text.encode("utf-8", "replace").decode()  # a path may hold bytes that are no text
        return runs.cut(_QUERY.sub(rf"\1?{HIDDEN}", _USER.sub(f"{HIDDEN}@", text)), chars_max)

    def options(self) -> dict[str, Option]:
        """The explicit settings."""
        chosen = [one for one in self._table if one.name in self._settings.explicit]
        return {one.name: self._option(one) for one in chosen[: limits.RUN_OPTIONS_MAX]}

    def _option(self, setting: Setting) -> Option:
        given = self._settings.values[setting.name]
        if setting.kind is Kind.DURATION:
            return format_duration(given)
        if isinstance(given, bool | int):
            return given
        if isinstance(given, str):
            return self.text(given, _OPTION_CHARS_MAX)
        shown = list(given[:_LISTED_MAX])
        if setting.kind is Kind.REPEATED:
            parts = (value.partition("=") for value in shown)
            shown = [f"{name}={HIDDEN}" if equals else HIDDEN for name, equals, _ in parts]
        shown = [self.text(value, _OPTION_CHARS_MAX) for value in shown]
        more = len(given) - len(shown)
        return [*shown, f"… and {more:,} more"] if more else shown
