"""Runs of pipelines: their list, progress and outcome; and the page of one run, with its start
options and its report.

The report is a page that the run has made. It comes out of a topic, so anybody who may publish may
have written it. It is shown in a frame that may run no script and has no origin, and is served with
a policy that allows styles of its own and nothing else, so that it can do nothing outside of the
frame either.
"""

import shlex
import time
from typing import Any

from fastapi.responses import Response
from nicegui import ui

from penstock.nsqadmin import words
from penstock.nsqadmin.api import ApiError, saved
from penstock.nsqadmin.pages import chart, layout, parts
from penstock.nsqadmin.pages.grid import Grid, Row, column, row_of, to_topic
from penstock.nsqadmin.pages.layout import PageView
from penstock.nsqadmin.routes import Call, file_route
from penstock.nsqadmin.runs import VANISHED, Run, command, done_share, duration_s
from penstock.pipelines.runs import HTML, JSON, Option

_ALL = "all pipelines"
_HEIGHT = "calc(100vh - 210px)"
_PHASES = {"started": "starts", "running": "running", "finished": "finished", "stopped": "stopped",
           "failed": "failed", VANISHED: "fell silent"}  # fmt: skip
_COLOURS = {"running": "good", "failed": "bad", VANISHED: "bad"}
_RUNS = [
    column("name", "Run", "link", lambda state: state.name or state.pipeline,
           to=lambda link, state: link("pipelines", state.run), flex=1, minWidth=110),
    column("state", "State", "state", width=115),
    column("what", "Table or topic", flex=2, minWidth=140),
    column("share", "Done", "share", lambda state: _percent(done_share(state)), width=140),
    column("rows", "Messages", "count", width=115),
    column("rate", "Rate", "rate", width=90),
    column("lag_rows", "Behind", "count", width=95),
    column("lag_seconds", "Lag", "span", width=110),
    column("left_seconds", "Left", "span", width=110),
    column("committed_s", "Last commit", "past", width=140),
    column("batch", "Batch", "value", width=85),
    column("started", "Started", of=lambda state: words.clock(state.started_s), width=200,
           sort="desc"),
    column("took_s", "Took", "span", width=125),
    column("pipeline", "Pipeline", width=100),
    column("host", "Host", width=130),
]  # fmt: skip
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; sandbox"
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "SAMEORIGIN",  # the page of the run
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


async def _text_of(call: Call, run: str, form: str) -> str:
    text = await call.deps.runs.page(run, form)
    if text is None:
        raise ApiError(404, "REPORT_NOT_FOUND")
    return text


async def report(call: Call, run: str) -> Response:
    return Response(await _text_of(call, run, HTML), headers=_HEADERS, media_type="text/html")


async def document(call: Call, run: str) -> Response:
    headers = _HEADERS | saved("report.json")
    text = await _text_of(call, run, JSON)
    return Response(text, headers=headers, media_type="application/json")


FILES = (
    file_route("/pipelines/{run}/report", report),
    file_route("/pipelines/{run}/report.json", document),
)


async def check(view: PageView, run: str = "") -> None:
    await view.deps.runs.ready()


def draw(view: PageView) -> None:
    runs, pipeline = view.deps.runs.runs, view.query.get("pipeline", "")
    with parts.heading("Pipelines"):
        count = parts.note()
        parts.grow()
        choice = ui.select([_ALL], value=_ALL, label="Show")
        choice.style("min-width: 10rem")
        search = ui.input("Search").props('clearable aria-label="Search runs"')
    with ui.element("div") as listed:
        grid = Grid(_RUNS, "id", "No run of this pipeline.", "Runs of pipelines", _HEIGHT,
                    search=search)  # fmt: skip
    nothing = _nothing(view)

    def show() -> None:
        all_ = runs.all()
        names = [_ALL, *sorted({run.state.pipeline for run in all_} | {pipeline} - {""})]
        if choice.options != names:
            choice.set_options(names)
        count.set_text(summary(view))
        listed.set_visibility(bool(all_))
        nothing.set_visibility(not all_)
        grid.show([_row(view, run) for run in all_ if choice.value in (_ALL, run.state.pipeline)])

    layout.follow_runs(view, show)
    if pipeline in choice.options:
        choice.set_value(pipeline)
        show()
    choice.on_value_change(show)


def _row(view: PageView, run: Run) -> Row:
    state, now_s = run.state, time.time()
    phase = view.deps.runs.runs.phase(run)
    goes_on = phase in ("started", "running")
    code = f" ({state.code})" if phase == "finished" and state.code else ""  # as an audit's 1
    return row_of(
        view.link, _RUNS, state, id=run.id, state=f"{_PHASES[phase]}{code}",
        state_level=_COLOURS.get(phase, "plain"),
        rate=round(state.rows_per_second, 1) if goes_on else None,
        left_seconds=round(state.left_seconds) if goes_on and state.left_seconds else None,
        committed_s=commit_age_s(run, now_s),
        took_s=round(duration_s(state, phase, now_s)), what=what_of(run),
    )  # fmt: skip


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def commit_age_s(run: Run, now_s: float) -> int | None:
    at_s = run.state.committed_s
    return None if at_s is None else max(0, round(now_s - at_s))


def what_of(run: Run) -> str:
    options = run.state.options
    found = [options.get("topic"), options.get("to"), run.state.table, options.get("topics")]
    first = next((one for one in found if one), "")
    return ", ".join(first) if isinstance(first, list) else str(first)


def _nothing(view: PageView) -> ui.element:
    node = next(iter(view.deps.watch.latest.nodes), "127.0.0.1:4151")
    with parts.section("No run of a pipeline yet") as section:
        ui.label(
            "A pipeline is a ready-made Spark program: an archive of topics in a Delta table, the"
            " trace as a table, an audit, a replay. While it runs it reports to its nsqd, and is"
            " seen here. This one copies a topic into a table, each message exactly once:"
        )
        line = "penstock pipeline run archive --topics=orders --table=./lake/orders"
        with ui.element("pre").classes("mono command"):
            ui.label(f"{line} --url={shlex.quote(f'http://{node}')}")
        ui.label("A run with --no-report is not seen; neither is one of more than a week ago.")
    return section


# --- on other pages ---


def summary(view: PageView) -> str:
    """ "2 running, 1 failed"; "" when there is no run at all."""
    runs = view.deps.runs.runs
    if not runs.all():
        return ""
    live = len(runs.live())
    phases = [runs.phase(run) for run in runs.unmended(time.time())]
    failed, silent = phases.count("failed"), phases.count(VANISHED)
    parts = [f"{live} running"] if live or not (failed or silent) else []
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{silent} fell silent"] if silent else []
    return ", ".join(parts)


def line(view: PageView) -> None:
    link = ui.link("", view.link("pipelines"))

    def show() -> None:
        text = summary(view)
        link.set_text(f"Pipelines: {text}")
        link.set_visibility(bool(text))

    layout.follow_runs(view, show)


# --- one run ---


def title(view: PageView, run: str) -> str:
    found = view.deps.runs.runs.find(run)
    return found.state.name if found else "Run"


def draw_run(view: PageView, run: str) -> None:
    found = view.deps.runs.runs.find(run)
    if found is not None:
        _Run(view, found)
        return
    parts.heading("No such run")
    ui.label("It is older than the topic _pipelines goes back, or its node does not answer.")
    ui.link("All runs", view.link("pipelines"))


class _Run:
    def __init__(self, view: PageView, run: Run) -> None:
        self._view = view
        self._run = run
        self._report_shown = False
        self._drawn: tuple[int, str] = (-1, "")
        with parts.heading(run.state.name or run.state.pipeline):
            self._phase = ui.label().classes("badge").props('role="status"')
            self._about = parts.soft()
        self._bar = ui.element("progress").props('max=100 aria-label="Done"')
        with ui.element("div").classes("tiles"):
            self._tiles = {name: parts.Tile(name) for name in _TILES}
        self._trouble = parts.section("Why it ended")
        with self._trouble, ui.element("pre"):
            self._reason = ui.label()
        self._outcome = ui.label()
        self._history = parts.section("History")
        with self._history, ui.element("div").classes("two"):
            self._rates = chart.lines("Messages a second", ["done"])
            self._lags = chart.lines("Messages behind", ["behind"])
        self._report = ui.element("div")
        self._logs = parts.section("How far each log is read")
        with self._logs:
            self._grid = Grid(_LOGS, "key", "No log.", "Logs")
        with parts.section("About this run"):
            self._facts = ui.element("div")
        with parts.section("Start it again"):
            if "***" in (line := command(run.state)):
                parts.soft("Secrets are not kept: put them where *** stands.")
            with ui.element("pre").classes("mono command"):
                ui.label(line)
        layout.follow_runs(self._view, self._show)

    def _show(self) -> None:
        runs, now_s = self._view.deps.runs.runs, time.time()
        run = self._run = runs.find(self._run.id) or self._run
        state, phase = run.state, runs.phase(run)
        self._phase.set_text(_PHASES[phase])
        self._phase.classes(replace=f"badge {_COLOURS.get(phase, 'soft')}")
        known = _known(run, phase, now_s)
        for name, tile in self._tiles.items():
            tile.set_visibility(name in known)
            tile.show(*known.get(name, ("", "")))
        if (state.seq, phase) == self._drawn:
            return
        self._drawn = (state.seq, phase)
        self._about.set_text(f"{state.pipeline}, {what_of(run)}")
        share = done_share(state)
        self._bar.set_visibility(share is not None)
        self._bar.props["value"] = round(100 * (share or 0.0), 1)
        self._show_trouble(phase)
        self._outcome.set_text(state.outcome)
        self._outcome.set_visibility(bool(state.outcome))
        self._show_charts()
        link = self._view.link
        rows = [row_of(link, _LOGS, one, key=f"{one.topic}/{one.partition}") for one in state.logs]
        self._logs.set_visibility(bool(rows))
        self._grid.show(rows)
        self._facts.clear()
        with self._facts:
            parts.facts(_facts(run))
        self._show_report()

    def _show_trouble(self, phase: str) -> None:
        state = self._run.state
        text = state.reason
        if phase == VANISHED:
            text = (
                f"Nothing is heard of it any more. See whether process {state.pid} on {state.host}"
                f" runs, and whether it reaches nsqd at {self._run.node}."
            )
        self._trouble.set_visibility(bool(text))
        self._reason.set_text(text)

    def _show_charts(self) -> None:
        points = self._run.track.points()
        self._history.set_visibility(any(one.rows_per_second or one.lag_rows for one in points))
        times = [int(point.time_s * 1000) for point in points]
        for shown, values in (
            (self._rates, [point.rows_per_second for point in points]),
            (self._lags, [point.lag_rows for point in points]),
        ):
            shown.options["series"][0]["data"] = list(map(list, zip(times, values, strict=True)))
            shown.update()

    def _show_report(self) -> None:
        runs = self._view.deps.runs.runs
        if self._report_shown or not runs.page(self._run.id, HTML):
            return
        self._report_shown = True
        address = self._view.link("pipelines", self._run.id, "report")
        with self._report, parts.section("Report"):
            with parts.row():
                ui.link("Open it alone", address, new_tab=True).props('rel="noopener"')
                if runs.page(self._run.id, JSON):
                    ui.link("Download it as JSON", f"{address}.json")
            frame = ui.element("iframe").classes("report")
            frame.props('sandbox="" title="Report"')
            frame.props["src"] = address


_TILES = ("Messages", "Rate", "Behind", "Lag", "Left", "Last commit", "Took")


def _known(run: Run, phase: str, now_s: float) -> dict[str, tuple[str, str]]:
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
    to_topic(flex=1, minWidth=140),
    column("partition", "Partition", of=lambda one: str(one.partition), width=100),
    column("at", "Read to", "count", width=130),
    column("end", "Ends at", "count", width=130),
    column("behind", "Behind", "count", of=lambda one: max(0, one.end - one.at), width=120),
]


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
        "Last heard": words.clock(run.seen_s),
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
