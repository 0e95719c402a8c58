"""Runs of pipelines: which there are, how far they are, and what became of them."""

from __future__ import annotations

import shlex
import time

from fastapi import Request
from nicegui import ui

from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.pages import layout, static, words
from penstock.nsqadmin.pages.grid import RATE, SPAN, Grid, Row, column, linked, numbers
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.runs import VANISHED, Run, done_share, duration_s

_ALL = "all pipelines"
_HEIGHT = "calc(100vh - 210px)"
PHASES = {"started": "starts", "running": "running", "finished": "finished", "stopped": "stopped",
          "failed": "failed", VANISHED: "fell silent"}  # fmt: skip
COLOURS = {"running": "good", "failed": "bad", VANISHED: "bad"}
_SHARE = static.text("pipelines_share.js")
_PHASE = "(p) => ({'running': 'good', 'failed': 'bad', 'fell silent': 'bad'}[p.value] || '')"


def add(ground: Ground) -> None:
    @ui.page("/pipelines")
    async def pipelines(request: Request, pipeline: str = "") -> None:
        here = layout.opened(ground, request)
        await here.ground.runs.ready()
        with layout.page(here, "Pipelines"):
            draw(here, pipeline)


def draw(here: Opened, pipeline: str) -> None:
    with layout.heading("Pipelines"):
        count = ui.label().classes("soft").props('role="status"')
        ui.element("div").classes("grow")
        choice = ui.select([_ALL], value=_ALL, label="Show").props("dense outlined")
        choice.style("min-width: 10rem")
        search = ui.input("Search").props('clearable dense outlined aria-label="Search runs"')
    place = ui.element("div")
    grids: list[Grid] = []

    def chosen() -> list[Run]:
        wanted = "" if choice.value == _ALL else choice.value
        return [
            run for run in here.ground.runs.runs.all() if wanted in ("", run.state.pipeline)
        ]  # fmt: skip

    def show() -> None:
        runs = here.ground.runs.runs
        _offer(choice, sorted({run.state.pipeline for run in runs.all()} | {pipeline} - {""}))
        count.set_text(summary(here))
        rows = [_row(here, run) for run in chosen()]
        if not place.default_slot.children or bool(grids) != bool(runs.all()):
            place.clear()
            grids.clear()
            with place:
                grids.extend([_grid(rows)] if runs.all() else [])
                if not grids:
                    _nothing(here)
        elif grids:
            grids[0].show(rows)

    layout.follow_runs(here, show)
    if pipeline in choice.options:
        choice.set_value(pipeline)
        show()
    choice.on_value_change(show)

    def find() -> None:
        for grid in grids:
            grid.search(str(search.value or ""))

    search.on_value_change(find)


def _offer(choice: ui.select, names: list[str]) -> None:
    if choice.options != [_ALL, *names]:
        choice.set_options([_ALL, *names])


def _grid(rows: list[Row]) -> Grid:
    return Grid(
        [
            linked("name", "Run", "link", flex=1, minWidth=110),
            column("state", "State", width=105, **{":cellClass": _PHASE}),
            column("what", "Table or topic", flex=2, minWidth=140),
            {"field": "share", "headerName": "Done", "width": 140, ":cellRenderer": _SHARE},
            numbers("rows", "Messages", width=115),
            numbers("rate", "Rate", RATE, width=90),
            numbers("lag", "Behind", width=95),
            numbers("lag_s", "Lag", SPAN, width=110),
            numbers("left_s", "Left", SPAN, width=110),
            numbers("committed_s", "Last commit", f"({SPAN}) + ' ago'", width=140),
            numbers("batch", "Batch", "value", width=85),
            column("started", "Started", width=200, sort="desc"),
            numbers("took_s", "Took", SPAN, width=125),
            column("pipeline", "Pipeline", width=100),
            column("host", "Host", width=130),
        ],
        rows,
        "id",
        "No run of this pipeline.",
        "Runs of pipelines",
        _HEIGHT,
    )


def _row(here: Opened, run: Run) -> Row:
    state, now_s = run.state, time.time()
    phase = here.ground.runs.runs.phase(run)
    share, goes_on = done_share(state), phase in ("started", "running")
    told = f" ({state.code})" if phase == "finished" and state.code else ""  # as an audit's 1
    return {
        "id": run.id,
        "link": here.link("pipelines", run.id),
        "name": state.name or state.pipeline,
        "pipeline": state.pipeline,
        "state": f"{PHASES[phase]}{told}",
        "share": None if share is None else round(100 * share, 1),
        "rows": state.rows,
        "rate": round(state.rows_per_second, 1) if goes_on else None,
        "lag": state.lag_rows,
        "lag_s": None if state.lag_seconds is None else round(state.lag_seconds),
        "left_s": round(state.left_seconds) if goes_on and state.left_seconds else None,
        "batch": state.batch,
        "committed_s": commit_age_s(run, now_s),
        "started": words.clock(state.started_s),
        "took_s": round(duration_s(state, phase, now_s)),
        "what": what_of(run),
        "host": state.host,
    }


def commit_age_s(run: Run, now_s: float) -> int | None:
    at_s = run.state.committed_s
    return None if at_s is None else max(0, round(now_s - at_s))


def what_of(run: Run) -> str:
    """What it works for: a topic, a table, or topics."""
    options = run.state.options
    found = [options.get("topic"), options.get("to"), run.state.table, options.get("topics")]
    first = next((one for one in found if one), "")
    return ", ".join(first) if isinstance(first, list) else str(first)


def _nothing(here: Opened) -> None:
    nodes = here.ground.watch.latest.nodes
    node = shlex.quote(next(iter(nodes), "127.0.0.1:4151"))
    topic = next((name for name in sorted(here.ground.watch.latest.topics)
                  if name.isidentifier() and not name.startswith("_")), "orders")  # fmt: skip
    with layout.section("No run of a pipeline yet"):
        ui.label(
            "A pipeline is a ready-made Spark program: an archive of topics in a Delta table, the"
            " trace as a table, an audit, a replay. While it runs it reports to its nsqd, and is"
            " seen here. This one copies a topic into a table, each message exactly once:"
        )
        line = f"penstock pipeline run archive --url=http://{node} --topics={topic}"
        with ui.element("pre").classes("mono command"):
            ui.label(f"{line} --table=./lake/{topic}")
        ui.label("A run with --no-report is not seen; neither is one of more than a week ago.")


# --- on other pages ---


def summary(here: Opened) -> str:
    """ "2 running, 1 failed"; "" when there is no run at all."""
    runs = here.ground.runs.runs
    if not runs.all():
        return ""
    live = len(runs.live())
    phases = [runs.phase(run) for run in runs.unmended(time.time())]
    failed, silent = phases.count("failed"), phases.count(VANISHED)
    parts = [f"{live} running"] if live or not (failed or silent) else []
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{silent} fell silent"] if silent else []
    return ", ".join(parts)


def line(here: Opened) -> None:
    """For the overview."""
    link = ui.link("", here.link("pipelines"))

    def show() -> None:
        said = summary(here)
        link.set_text(f"Pipelines: {said}")
        link.set_visibility(bool(said))

    layout.follow_runs(here, show)
