"""Charts of a series: the last minutes as they come, or the last hours."""

import time
from collections.abc import Sequence
from typing import Any

from nicegui import ui

from penstock import limits
from penstock.nsqadmin.history import Sample
from penstock.nsqadmin.pages import layout, parts
from penstock.nsqadmin.pages.layout import PageView
from penstock.nsqadmin.pages.style import CURVES, FONT
from penstock.nsqadmin.snapshot import Snapshot

SPANS = {"5 min": 0.0, "1 h": 3600.0, "6 h": 6 * 3600.0, "24 h": 86400.0, "48 h": 172_800.0}
_POINTS_MAX = 720  # more than pixels of a chart would only cost time
_RATES = (("in_rate", "in"), ("out_rate", "out"), ("timeout_rate", "timeouts"))
_LEVELS = (("depth", "depth"), ("in_flight", "in flight"), ("deferred", "deferred"))


def pair(view: PageView, series: str) -> None:
    with parts.section("History") as panel:
        with parts.row("heading split") as row:
            choice = ui.toggle(list(SPANS), value="5 min").props(
                'dense unelevated aria-label="How far back"'
            )
        panel.default_slot.children[0].move(row, 0)
        with parts.row("two"):
            charts = [(lines("Messages a second", [name for _, name in _RATES]), _RATES),
                      (lines("Messages held", [name for _, name in _LEVELS]), _LEVELS)]  # fmt: skip
        drawn = {"minute": 0}

        def draw() -> None:
            span_s = SPANS[str(choice.value)]
            samples = _samples(view, series, span_s)
            until_s = max(view.deps.watch.latest.time_s, time.time() - 60)
            for chart, fields in charts:
                _fill(chart, samples, fields)
                # As wide as it says, also where nothing is known of the beginning.
                begin_s = until_s - (span_s or limits.ADMIN_RECENT_S)
                chart.options["xAxis"] |= {"min": int(1000 * begin_s), "max": int(1000 * until_s)}
                chart.update()

        def show(snapshot: Snapshot) -> None:
            minute = int(snapshot.time_s // 60)
            if SPANS[str(choice.value)] and minute == drawn["minute"]:
                return  # hours change once a minute
            drawn["minute"] = minute
            draw()

        choice.on_value_change(draw)
        layout.follow(view, show)


def _samples(view: PageView, series: str, span_s: float) -> Sequence[Sample]:
    history = view.deps.history
    if not span_s:
        return history.recent(series)
    now_s = time.time()
    return history.minutes(series, now_s - span_s, now_s)


def course(view: PageView, series: str, field: str, points: int) -> list[float]:
    """Of the last minutes; about so many points."""
    samples = view.deps.history.recent(series)
    step = max(1, len(samples) // points)
    return [getattr(one.values, field) for one in samples[::step] if one.values is not None]


def lines(title: str, names: Sequence[str]) -> ui.echart:
    """A chart of levels over time, without data so far."""
    more = {
        "legend": {"top": 0, "right": 0, "icon": "roundRect", "itemHeight": 4, "itemWidth": 16,
                   "textStyle": {"color": "#7a8a96"}},
        "xAxis": {"type": "time", "axisLabel": {"hideOverlap": True}},
        "series": [
            {"name": name, "type": "line", "showSymbol": False, "connectNulls": False,
             "lineStyle": {"width": 1.6}, "data": []}
            for name in names
        ],
    }  # fmt: skip
    return drawn(title, 220, more)


def drawn(title: str, height_px: int, more: dict[str, Any]) -> ui.echart:
    """`more`: the series, and the meaning of the axis below them."""
    options: dict[str, Any] = {
        "title": {"text": title, "left": 0,
                  "textStyle": {"fontSize": 13, "fontWeight": 500, "color": "#7a8a96"}},
        "grid": {"left": 8, "right": 12, "top": 44, "bottom": 8, "containLabel": True},
        "tooltip": {"trigger": "axis", "className": "tip"},
        "animation": False,
        "textStyle": {"fontFamily": FONT},
        "aria": {"enabled": True, "label": {"description": title}},
        "yAxis": {"type": "value", "min": 0, "minInterval": 1,
                  "splitLine": {"lineStyle": {"color": "#7a8a96", "opacity": 0.25}}},
        "color": list(CURVES),
        **more,
    }  # fmt: skip
    options["xAxis"] |= {"axisLine": {"lineStyle": {"color": "#7a8a96"}}}
    chart = ui.echart(options, renderer="svg").classes("chart")
    return chart.style(f"height: {height_px}px; width: 100%")


def _fill(chart: ui.echart, samples: Sequence[Sample], fields: Sequence[tuple[str, str]]) -> None:
    step = max(1, len(samples) // _POINTS_MAX)
    picked = samples[::step]
    for number, (field, _) in enumerate(fields):
        chart.options["series"][number]["data"] = [
            [int(one.time_s * 1000), one.values and round(getattr(one.values, field), 2)]
            for one in picked
        ]
