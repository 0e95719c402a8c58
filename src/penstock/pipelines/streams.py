"""A streaming query from its start to its end: reports, an orderly stop, errors.

Spark says what a batch did when it is done. How far behind the query is follows from two offsets in
that: where the batch ended, and where the logs ended when it was planned.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipelines.maintenance import Beside
from penstock.pipelines.progress import Progress
from penstock.pipelines.runs import Report
from penstock.spark.lag import Log, lag_rows, logs_of

_POLL_S = 0.2
_STOP_S_MAX = 60.0  # a batch that takes longer is stopped in its middle, which is safe
_RATE_OVER_S = 10.0


def follow(query: StreamingQuery, progress: Progress, *beside: Beside) -> None:
    """Until the query ends by itself, or by an orderly stop. Its error is raised."""
    watch = Watch()
    with ExitStack() as stack:
        for work in beside:
            stack.enter_context(work)
        try:
            while query.isActive:
                if progress.wait(_POLL_S):
                    _finish_batch(query, watch, progress)
                    break
                _take(query, watch, progress)
                for work in beside:
                    work.after_batches(watch.batches)
        finally:
            query.stop()  # nothing is left running, whatever went wrong beside it
        _take(query, watch, progress)
        error = query.exception()
        if error is not None and not progress.stopping:
            raise error
        progress.report(watch.report(time.time()), final=True)


def _take(query: StreamingQuery, watch: Watch, progress: Progress) -> None:
    last = query.lastProgress
    if last is not None and str(last["timestamp"]) != watch.seen:
        watch.take(query.recentProgress)
        progress.note(batch=watch.batch, committed_s=watch.committed_s, logs=watch.logs)
    if watch.batches or last is not None:
        progress.report(watch.report(time.time()))


def _finish_batch(query: StreamingQuery, watch: Watch, progress: Progress) -> None:
    """Wait until the batch at hand is done: the query rests, or another one has begun."""
    progress.say("stopping after this batch")
    deadline_s = time.monotonic() + _STOP_S_MAX
    before = watch.batches
    while query.isActive and query.status["isTriggerActive"] and watch.batches == before:
        if time.monotonic() > deadline_s:
            break
        time.sleep(_POLL_S / 4)
        _take(query, watch, progress)


class Watch:
    """Sums over the reports of batches. Times are seconds since 1970, as in Spark."""

    def __init__(self) -> None:
        self.batches = 0
        self.rows = 0
        self.batch: int | None = None  # the last one with rows, by Spark's number
        self.committed_s: float | None = None  # when that was done
        self.logs: dict[Log, tuple[int, int]] = {}  # read to, and where the log ended then
        self.seen = ""  # when the last batch that was counted began
        self._recent: deque[tuple[float, float, int]] = deque()  # (begin, seconds, rows)
        self._level_s: float | None = None  # the target has all that was there at this time
        self._lag: int | None = None

    def take(self, recent: Sequence[Any]) -> None:
        """Spark's last reports, of which some were counted before: those behind the last of them
        are new. Their times do not tell, as clocks are set back."""
        times = [str(batch["timestamp"]) for batch in recent]
        for batch in recent[times.index(self.seen) + 1 if self.seen in times else 0 :]:
            self._add(batch)

    def _add(self, batch: Any) -> None:
        """A `StreamingQueryProgress` of a batch or of an idle trigger."""
        self.seen = str(batch["timestamp"])
        began_s = datetime.fromisoformat(self.seen).timestamp()
        rows = int(batch["numInputRows"])
        self._lag = lag_rows(batch["sources"])
        self.logs = logs_of(batch["sources"])
        if self._lag == 0:
            self._level_s = began_s
        if rows:
            self.batches += 1
            self.rows += rows
            took_s = batch["durationMs"]["triggerExecution"] / 1000
            self.batch, self.committed_s = int(batch["batchId"]), began_s + took_s
            self._recent.append((began_s, took_s, rows))
        while len(self._recent) > 1 and not 0 <= began_s - self._recent[0][0] <= _RATE_OVER_S:
            self._recent.popleft()

    def report(self, now_s: float) -> Report:
        rate = self._rate()
        left = self._lag / rate if self._lag and rate else None
        return Report(
            rows=self.rows,
            rows_per_second=round(rate, 1),
            lag_rows=self._lag,
            lag_seconds=None if self._level_s is None else round(max(now_s - self._level_s, 0), 2),
            left_seconds=None if left is None else round(left, 1),
        )

    def _rate(self) -> float:
        """Rows a second over the last batches, pauses between them included."""
        if not self._recent:
            return 0.0
        last_s, took_s, _ = self._recent[-1]
        seconds = last_s + took_s - self._recent[0][0]
        return sum(rows for _, _, rows in self._recent) / max(seconds, 1e-3)
