"""Every topic: what comes in, what waits, who reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from fastapi import Request
from nicegui import ui

from penstock.nsqadmin.ground import Grounds
from penstock.nsqadmin.pages import layout
from penstock.nsqadmin.pages.grid import BYTES, RATE, Grid, Row, column, linked, numbers
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.snapshot import Snapshot, TopicState
from penstock.nsqadmin.watch import Watch

_HEIGHT_OF_MANY = "calc(100vh - 190px)"


def add(grounds: Grounds) -> None:
    @ui.page("/topics")
    def topics(request: Request) -> None:
        here = layout.opened(grounds, request)
        with layout.page(here, "Topics"):
            draw(here)


def draw(here: Opened) -> None:
    with layout.heading("Topics"):
        count = ui.label().classes("soft")
        ui.element("div").classes("grow")
        search = ui.input("Search").props('clearable dense outlined aria-label="Search topics"')
    latest = here.ground.watch.latest
    grid = Grid(
        [
            linked("name", "Topic", "link", flex=2, minWidth=180),
            numbers("in_rate", "In", RATE),
            numbers("backlog", "Depth"),
            numbers("in_flight", "In flight"),
            numbers("deferred", "Deferred"),
            numbers("channels", "Channels"),
            numbers("clients", "Clients"),
            numbers("messages", "Messages"),
            numbers("stored", "On disk", BYTES),
            numbers("nodes", "Nodes"),
            column("state", "State"),
        ],
        rows_of(here, latest),
        "name",
        "No topic yet. Publish a message, or make one under Lookup.",
        "Topics",
        _HEIGHT_OF_MANY,
    )
    search.on_value_change(lambda event: grid.search(event.value or ""))

    def show(snapshot: Snapshot) -> None:
        count.set_text(f"{len(snapshot.topics):,}")
        grid.show(rows_of(here, snapshot))

    layout.follow(here, show)


@dataclass
class _Drawn:
    """The rows of one snapshot, for every browser that looks."""

    snapshot: Snapshot | None = None
    rows: dict[str, Row] = field(default_factory=dict)


_drawn: WeakKeyDictionary[Watch, _Drawn] = WeakKeyDictionary()


def rows_of(here: Opened, snapshot: Snapshot) -> list[Row]:
    """Made once for all browsers; a row that did not change is the one of the snapshot before."""
    drawn = _drawn.setdefault(here.ground.watch, _Drawn())
    if drawn.snapshot is not snapshot:
        rows = {name: row_of(here, snapshot.topics[name]) for name in sorted(snapshot.topics)}
        for name, row in rows.items():
            if drawn.rows.get(name) == row:
                rows[name] = drawn.rows[name]
        drawn.snapshot, drawn.rows = snapshot, rows
    return list(drawn.rows.values())


def row_of(here: Opened, topic: TopicState) -> Row:
    return {
        "name": topic.name,
        "link": here.link("topics", topic.name),
        "in_rate": round(topic.in_rate, 1),
        "backlog": topic.backlog,
        "in_flight": topic.in_flight,
        "deferred": topic.deferred,
        "channels": len(topic.channels),
        "clients": topic.clients,
        "messages": topic.messages,
        "stored": topic.stored_bytes,
        "nodes": len(topic.nodes),
        "state": state_of(topic),
    }


def state_of(topic: TopicState) -> str:
    """The worst that is true of it, in a word or two."""
    if topic.refusals:
        return "refuses publishes"
    if topic.damaged:
        return "damaged"
    if topic.paused:
        return "paused"
    return "" if topic.nodes else "on no node"
