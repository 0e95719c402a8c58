"""All topics: rates, backlog and its age, consumers.

/topics?q=…&state=…: what the page is narrowed to stands in its address. Topics of Penstock's own
are hidden until somebody asks for them, which this browser remembers.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from weakref import WeakKeyDictionary

from nicegui import ui

from penstock import limits
from penstock.nsqadmin.attention import Finding
from penstock.nsqadmin.pages import bar, chart, layout, parts, states
from penstock.nsqadmin.pages.grid import FLASH, Grid, Row, column, row_of
from penstock.nsqadmin.pages.layout import PageView
from penstock.nsqadmin.snapshot import Snapshot, TopicState
from penstock.nsqadmin.watch import Watch

_HEIGHT_OF_MANY = "calc(100vh - 150px)"
_COOKIE = "penstock_internal"  # "1": topics of Penstock's own are shown
_CURVE_EVERY_S = 5.0
_CURVE_POINTS = 24

Attention = Mapping[str, Sequence[Finding]]
_STATES: dict[str, tuple[str, Callable[[TopicState, Attention], bool]]] = {
    "": ("All states", lambda topic, attention: True),
    "attention": ("Need attention", lambda topic, attention: topic.name in attention),
    "paused": (
        "Paused",
        lambda topic, attention: topic.paused or any(one.paused for one in topic.channels.values()),
    ),
    "stuck": (
        "Stuck",
        lambda topic, attention: any(one.state == "stuck" for one in attention.get(topic.name, ())),
    ),
    "unread": (
        "No consumers",
        lambda topic, attention: (
            not all(one.clients or one.is_internal for one in topic.channels.values())
            or not topic.channels
        ),
    ),
    "waiting": ("Messages wait", lambda topic, attention: topic.backlog > 0),
}


class Topics:
    def __init__(self, view: PageView) -> None:
        self._view = view
        sought, state = view.asked("q", "state").values()
        with parts.heading("Topics"):
            self._count = parts.note()
            parts.grow()
            with_internal = view.cookies.get(_COOKIE) == "1"
            self._internal = ui.switch("Internal topics", value=with_internal).props("dense")
            self._state = ui.select({name: words for name, (words, _) in _STATES.items()},
                                    value=state if state in _STATES else "")  # fmt: skip
            self._state.props('options-dense aria-label="State"')
            self._search = ui.input("Search", value=sought)
            self._search.props('clearable debounce=150 aria-label="Search topics"')
        empty = "No topic, or none that you look for. Publish a message, or make one under Lookup."
        self._grid = Grid(_COLUMNS, "name", empty, "Topics", _HEIGHT_OF_MANY, search=self._search)
        self._internal.on_value_change(self._show_internal)
        self._state.on_value_change(self._remember)
        self._search.on_value_change(self._remember)
        layout.follow(self._view, self._show)

    def _show(self, snapshot: Snapshot) -> None:
        rows = self._wanted(snapshot)
        all_ = len(snapshot.topics)
        self._count.set_text(f"{all_:,}" if len(rows) == all_ else f"{len(rows):,} of {all_:,}")
        self._grid.show(rows)

    def _wanted(self, snapshot: Snapshot) -> list[Row]:
        view, rows = self._view, rows_of(self._view, snapshot)
        state = str(self._state.value or "")
        attention = states.by_topic(states.found(view, snapshot)) if state else {}
        fits = _STATES[state][1]
        return [
            row for row, topic in rows
            if (self._internal.value or not topic.is_internal) and fits(topic, attention)
        ]  # fmt: skip

    def _show_internal(self) -> None:
        bar.remember(self._view, _COOKIE, str(int(self._internal.value)))
        self._show(self._view.deps.watch.latest)

    def _remember(self) -> None:
        self._view.show_address("topics", q=self._search.value, state=self._state.value)
        self._show(self._view.deps.watch.latest)


_COLUMNS = [
    column("name", "Topic", "link", to=lambda link, one: link("topics", one.name), flex=3,
           minWidth=130),
    column("in_rate", "In", "rate", at=420),
    column("finish_rate", "Out", "rate", at=500),
    column("backlog", "Depth", "count"),
    column("curve", "Lately", "curve", at=800, width=100,
           headerTooltip="Depth in the last minutes"),
    column("oldest", "Oldest", "age", at=500, of=lambda one: _rounded(one.oldest_s),
           headerTooltip="Age of the oldest unfinished message"),
    column("in_flight", "In flight", "count", at=700),
    column("deferred", "Deferred", "count", at=1000, minWidth=88),
    column("channels", "Channels", "count", at=900, of=lambda one: len(one.channels), minWidth=90),
    column("clients", "Clients", "count", at=700, **FLASH),
    column("messages", "Messages", "count", at=1200, minWidth=100),
    column("stored", "On disk", "bytes", at=1000, minWidth=88,
           of=lambda one: one.stored_bytes if one.tells_disk or not one.nodes else None),
    column("nodes", "Nodes", "count", at=1400,
           of=lambda one: len(one.nodes) or len(one.registered)),
    column("state", "State", "state", width=125, **FLASH),
]  # fmt: skip


@dataclass
class _Drawn:
    """The rows of one snapshot, for every browser that looks."""

    snapshot: Snapshot | None = None
    rows: dict[str, Row] = field(default_factory=dict)
    curves: dict[str, str] = field(default_factory=dict)
    curves_s: float = 0.0  # when they were made


_drawn: WeakKeyDictionary[Watch, _Drawn] = WeakKeyDictionary()


def rows_of(view: PageView, snapshot: Snapshot) -> list[tuple[Row, TopicState]]:
    """Made once for all browsers; a row that did not change is the one of the snapshot before."""
    drawn = _drawn.setdefault(view.deps.watch, _Drawn())
    if drawn.snapshot is not snapshot:
        if snapshot.time_s - drawn.curves_s >= _CURVE_EVERY_S:
            drawn.curves, drawn.curves_s = _curves(view, snapshot), snapshot.time_s
        attention = states.by_topic(states.found(view, snapshot))
        rows = {
            name: _row_of(view, snapshot.topics[name], attention, drawn)
            for name in sorted(snapshot.topics)
        }
        for name, row in rows.items():
            if drawn.rows.get(name) == row:
                rows[name] = drawn.rows[name]
        drawn.snapshot, drawn.rows = snapshot, rows
    return [(row, snapshot.topics[name]) for name, row in drawn.rows.items()]


def _row_of(view: PageView, topic: TopicState, attention: Attention, drawn: _Drawn) -> Row:
    state, level = states.topic_badge(topic, attention)
    return row_of(
        view.link, _COLUMNS, topic, curve=drawn.curves.get(topic.name, ""),
        stale=bool(topic.stale_s), state=state, state_level=level,
    )  # fmt: skip


def _rounded(age_s: float) -> int:
    """Rounded as shown: a row that looks the same is not sent again."""
    step_s = 1 if age_s < 60 else 60 if age_s < 3600 else 360
    return int(age_s // step_s) * step_s


def _curves(view: PageView, snapshot: Snapshot) -> dict[str, str]:
    """The courses of the largest backlogs: curves of thousands of topics would cost more than they
    show."""
    waiting = (one for one in snapshot.topics.values() if one.backlog)
    return {
        one.name: parts.curve(chart.course(view, one.name, "depth", _CURVE_POINTS))
        for one in heapq.nlargest(limits.ADMIN_CURVES, waiting, key=attrgetter("backlog"))
    }
