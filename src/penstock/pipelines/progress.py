"""The progress of a pipeline, and its display where the run was started.

Whoever works changes the state of the run (`runs.RunState`) by its `Progress`. Three read it: the
`Console` here, and in `reporter` the messages for nsqadmin and the figures for Prometheus.

On a terminal one line on stderr is written anew; elsewhere a plain line now and then; with
`--json` each report is a JSON object on a line of stdout, and nothing else is there.
"""

import json
import sys
import threading
import time
from typing import Any, TextIO

from msgspec.structs import asdict, replace

from penstock.command.terminal import is_watched
from penstock.pipelines.runs import Phase, Report, RunState

_WATCHED_EVERY_S = 0.1


class Progress:
    """`json_stream` gets objects, `stream` gets words; at most one of them is used for reports."""

    def __init__(
        self,
        name: str,
        report_every_s: float = 10.0,
        stream: TextIO | None = None,
        json_stream: TextIO | None = None,
    ) -> None:
        self.console = Console(name, report_every_s, stream or sys.stderr, json_stream)
        self.state = RunState()
        self._lock = threading.Lock()  # those who work beside the query say something, too
        self._stop = threading.Event()
        self._rows_before = 0  # of attempts that an outage ended

    # --- the end ---

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def ask_to_stop(self) -> None:
        self._stop.set()

    def wait(self, seconds: float) -> bool:
        """Sleep, but not beyond the request to end. True when there is one."""
        return self._stop.wait(seconds)

    # --- changes ---

    def note(self, **changes: Any) -> None:
        with self._lock:
            self.state = replace(self.state, **changes)

    def report(self, report: Report, final: bool = False) -> None:
        """Shown when it is time to; the last one of a run always is."""
        if self._rows_before:
            total = None if report.total is None else report.total + self._rows_before
            report = replace(report, rows=report.rows + self._rows_before, total=total)
        self.note(**asdict(report), reported_s=time.time())
        self.console.report(report, final)

    def begin_again(self) -> None:
        """The next report counts from 0, after an attempt that an outage ended."""
        self.note(waiting=False)
        self._rows_before = self.state.rows

    def end(self, phase: Phase, code: int, reason: str = "") -> None:
        self.note(phase=phase, code=code, reason=reason)

    def say(self, text: str) -> None:
        """Something that happened: a line of its own."""
        self.note(said=text)
        self.console.line(text)


class Console:
    def __init__(
        self, name: str, every_s: float, stream: TextIO, json_stream: TextIO | None
    ) -> None:
        self._name = name
        self._stream = stream
        self._json = json_stream
        self._watched = is_watched(stream) and json_stream is None
        self._every_s = _WATCHED_EVERY_S if self._watched else every_s
        self._shown_s = -1e9
        self._drawn = False  # a line on the terminal is not ended yet
        self._pending: Report | None = None

    def report(self, report: Report, final: bool) -> None:
        now_s = time.monotonic()
        self._pending = report
        if final or now_s - self._shown_s >= self._every_s:
            self._shown_s = now_s
            self._show()

    def line(self, text: str) -> None:
        if self._json is not None:
            self._write_json({"event": text})
        else:
            self._write(f"{self._name}: {text}")

    def fail(self, line: str) -> None:
        self._show()  # the reason is the last line
        self._write_json({"error": line})
        self._write(line)

    def end(self) -> None:
        """The last report is shown, and the line on the terminal ended."""
        self._show()
        if self._drawn:
            self._stream.write("\n")
            self._stream.flush()
            self._drawn = False

    def _show(self) -> None:
        report, self._pending = self._pending, None
        if report is None:
            return
        if self._json is not None:
            self._write_json(asdict(report))
        elif self._watched:
            self._stream.write(f"\r\x1b[K{self._name}: {report.line()}")
            self._stream.flush()
            self._drawn = True
        else:
            self.line(report.line())

    def _write_json(self, document: dict[str, Any]) -> None:
        if self._json is not None:
            row = {"pipeline": self._name, "time": round(time.time(), 3), **document}
            self._json.write(json.dumps(row, ensure_ascii=False) + "\n")
            self._json.flush()

    def _write(self, line: str) -> None:
        self._stream.write(("\r\x1b[K" if self._drawn else "") + f"{line}\n")
        self._stream.flush()
        self._drawn = False
