"""One run of a pipeline: how far it is, how it went, what it was started with, and its report.

The report is a page that the run has made. It comes out of a topic, so anybody who may publish may
have written it. It is shown in a frame that may run no script and has no origin, and is served with
a policy that allows styles of its own and nothing else, so that it can do nothing outside of the
frame either.
"""

from __future__ import annotations

import time
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from nicegui import ui

from penstock.nsqadmin.api import ApiError, viewed
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.pages import chart, layout, words
from penstock.nsqadmin.pages.grid import Grid, Row, column, linked, numbers
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.pages.pipelines import COLOURS, PHASES, commit_age_s, what_of
from penstock.nsqadmin.runs import VANISHED, Run, command, done_share, duration_s
from penstock.pipelines.runs import HTML, JSON, Option

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; sandbox"
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "SAMEORIGIN",  # the page of the run
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def add(ground: Ground) -> None:
    @ui.page("/pipelines/{run}")
    async def one(request: Request, run: str) -> None:
        here = layout.opened(ground, request)
        await here.ground.runs.ready()
        found = here.ground.runs.runs.find(run)
        with layout.page(here, found.state.name if found else "Run"):
            if found is None:
                _unknown(here)
            else:
                _Page(here, found).draw()


def add_report(app: FastAPI, ground: Ground) -> None:
    async def text_of(request: Request, run: str, form: str) -> str:
        text = await viewed(ground, request).runs.page(run, form)
        if text is None:
            raise ApiError(404, "REPORT_NOT_FOUND")
        return text

    @app.get(f"{ground.base}/pipelines/{{run}}/report", include_in_schema=False)
    async def report(request: Request, run: str) -> Response:
        return Response(await text_of(request, run, HTML), headers=_HEADERS, media_type="text/html")

    @app.get(f"{ground.base}/pipelines/{{run}}/report.json", include_in_schema=False)
    async def document(request: Request, run: str) -> Response:
        text = await text_of(request, run, JSON)
        saved = {"Content-Disposition": 'attachment; filename="report.json"'}
        return Response(text, headers=_HEADERS | saved, media_type="application/json")


def _unknown(here: Opened) -> None:
    layout.heading("No such run")
    ui.label("It is older than the topic _pipelines goes back, or its node does not answer.")
    ui.link("All runs", here.link("pipelines"))


class _Page:
    def __init__(self, here: Opened, run: Run) -> None:
        self._here = here
        self._run = run
        self._report_shown = False
        self._drawn: tuple[int, str] = (-1, "")

    def draw(self) -> None:
        run = self._run
        with layout.heading(run.state.name or run.state.pipeline):
            self._phase = ui.label().classes("badge").props('role="status"')
            self._about = ui.label().classes("soft")
        self._bar = ui.element("progress").props('max=100 aria-label="Done"')
        with ui.element("div").classes("tiles"):
            self._tiles = {name: layout.Tile(name) for name in _TILES}
        self._trouble = layout.section("Why it ended")
        with self._trouble, ui.element("pre"):
            self._reason = ui.label()
        self._outcome = ui.label()
        self._history = layout.section("History")
        with self._history, ui.element("div").classes("two"):
            self._rates = chart.lines("Messages a second", ["done"])
            self._lags = chart.lines("Messages behind", ["behind"])
        self._report = ui.element("div")
        self._logs = layout.section("How far each log is read")
        with self._logs:
            self._grid = Grid(_LOGS, [], "key", "No log.", "Logs")
        with layout.section("About this run"):
            self._facts = ui.element("dl").classes("facts")
        with layout.section("Start it again"):
            if "***" in (line := command(run.state)):
                ui.label("Secrets are not kept: put them where *** stands.").classes("soft")
            with ui.element("pre").classes("mono command"):
                ui.label(line)
        layout.follow_runs(self._here, self._show)

    def _show(self) -> None:
        runs, now_s = self._here.ground.runs.runs, time.time()
        run = self._run = runs.find(self._run.id) or self._run
        state, phase = run.state, runs.phase(run)
        self._phase.set_text(PHASES[phase])
        self._phase.classes(replace=f"badge {COLOURS.get(phase, 'soft')}")
        known = _known(run, phase, now_s)
        for name, tile in self._tiles.items():
            tile.set_visibility(name in known)
            tile.show(*known.get(name, ("", "")))
        if (state.seq, phase) == self._drawn:
            return
        self._drawn = (state.seq, phase)
        self._about.set_text(f"{state.pipeline}, {what_of(run)}")
        self._show_share(done_share(state))
        self._show_trouble(phase)
        self._outcome.set_text(state.outcome)
        self._outcome.set_visibility(bool(state.outcome))
        self._show_charts()
        rows = [_log_row(self._here, one.topic, one.partition, one.at, one.end)
                for one in state.logs]  # fmt: skip
        self._logs.set_visibility(bool(rows))
        self._grid.show(rows)
        self._show_facts()
        self._show_report()

    def _show_share(self, share: float | None) -> None:
        self._bar.set_visibility(share is not None)
        self._bar.props["value"] = round(100 * (share or 0.0), 1)

    def _show_trouble(self, phase: str) -> None:
        state = self._run.state
        said = state.reason
        if phase == VANISHED:
            said = (
                f"Nothing is heard of it any more. See whether process {state.pid} on {state.host}"
                f" runs, and whether it reaches nsqd at {self._run.node}."
            )
        self._trouble.set_visibility(bool(said))
        self._reason.set_text(said)

    def _show_charts(self) -> None:
        points = self._run.track.points()
        self._history.set_visibility(any(point.rate or point.lag_rows for point in points))
        times = [int(point.time_s * 1000) for point in points]
        for shown, values in (
            (self._rates, [point.rate for point in points]),
            (self._lags, [point.lag_rows for point in points]),
        ):
            shown.options["series"][0]["data"] = list(map(list, zip(times, values, strict=True)))
            shown.update()

    def _show_facts(self) -> None:
        self._facts.clear()
        with self._facts:
            for name, value in _facts(self._run).items():
                if value:
                    with ui.element("dt"):
                        ui.label(name)
                    with ui.element("dd"):
                        ui.label(value).classes("mono")

    def _show_report(self) -> None:
        runs = self._here.ground.runs.runs
        if self._report_shown or not runs.page(self._run.id, HTML):
            return
        self._report_shown = True
        address = self._here.link("pipelines", self._run.id, "report")
        with self._report, layout.section("Report"):
            with ui.element("div").classes("heading"):
                ui.link("Open it alone", address, new_tab=True).props('rel="noopener"')
                if runs.page(self._run.id, JSON):
                    ui.link("Download it as JSON", f"{address}.json")
            frame = ui.element("iframe").classes("report")
            frame.props('sandbox="" title="Report"')
            frame.props["src"] = address


_TILES = ("Messages", "Rate", "Behind", "Lag", "Left", "Last commit", "Took")


def _known(run: Run, phase: str, now_s: float) -> dict[str, tuple[str, str]]:
    """What the tiles say, of what somebody knows."""
    state = run.state
    goes_on = phase in ("started", "running")
    found = {"Took": (words.span(duration_s(state, phase, now_s)), words.clock(state.started_s))}
    if state.rows or state.total is not None or state.lag_rows is not None:
        of = "of this run" if state.total is None else f"of {words.number(state.total)}"
        found["Messages"] = (words.number(state.rows), of)
        found["Rate"] = (words.rate(state.rows_per_second), "now" if goes_on else "at last")
    if state.lag_rows is not None:
        found["Behind"] = (words.number(state.lag_rows), "messages")
    if state.lag_seconds is not None:
        found["Lag"] = (words.span(state.lag_seconds), "it has all that is older")
    if goes_on and state.left_seconds:
        found["Left"] = (words.span(state.left_seconds), "until it has caught up")
    age_s = commit_age_s(run, now_s)
    if age_s is not None:
        batch = "" if state.batch is None else f"batch {state.batch:,}"
        found["Last commit"] = (f"{words.span(age_s)} ago" if age_s else "now", batch)
    return found


_LOGS = [
    linked("topic", "Topic", "link", flex=1, minWidth=140),
    column("partition", "Partition", width=100),
    numbers("at", "Read to", width=130),
    numbers("end", "Ends at", width=130),
    numbers("behind", "Behind", width=120),
]


def _log_row(here: Opened, topic: str, partition: int, at: int, end: int) -> Row:
    return {
        "key": f"{topic}/{partition}",
        "topic": topic,
        "link": here.link("topics", topic),
        "partition": str(partition),
        "at": at,
        "end": end,
        "behind": max(0, end - at),
    }


def _facts(run: Run) -> dict[str, str]:
    state = run.state
    version = "" if state.table_version is None else f" (version {state.table_version:,})"
    found: dict[str, Any] = {
        "Run": run.id,
        "At": state.what or state.said,
        "Table": state.table and f"{state.table}{version}",
        "Checkpoint": state.checkpoint,
        "Last commit": "" if state.committed_s is None else words.clock(state.committed_s),
        "Started": words.clock(state.started_s),
        "Last heard": words.clock(run.heard_s),
        "Process": f"{state.pid} on {state.host}",
        "Started by": "spark-submit" if state.submitted else "penstock pipeline run",
        "Reports to": run.node,
        "Penstock": state.version,
    }
    return found | {f"--{name}": _shown(value) for name, value in state.options.items()}


def _shown(value: Option) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, list) else str(value)
