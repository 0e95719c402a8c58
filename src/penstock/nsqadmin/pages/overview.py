"""The whole installation at a glance: how it goes, what needs attention, which topics move and
which wait, how the nodes do, and the last hours."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence

from fastapi import Request
from nicegui import ui

from penstock import limits
from penstock.nsqadmin.attention import Finding, Level, of_runs
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.history import FIELDS
from penstock.nsqadmin.pages import chart, layout, pipelines, states, words
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.pages.nodestrip import Strip
from penstock.nsqadmin.snapshot import ChannelState, Snapshot, TopicState

_FINDINGS_MAX = 50  # nobody reads more
_RANKS = 5
_CURVES = {"In": "in_rate", "Out": "out_rate", "Depth": "depth", "In flight": "in_flight"}
_POINTS = 60  # of a curve: more are not seen


def add(ground: Ground) -> None:
    @ui.page("/")
    def overview(request: Request) -> None:
        here = layout.opened(ground, request)
        with layout.page(here, "Overview"):
            draw(here)


def draw(here: Opened) -> None:
    latest = here.ground.watch.latest
    layout.heading("Overview")
    with ui.element("div").classes("tiles") as flow:
        tiles = {name: layout.Tile(name, name in _CURVES) for name in flow_of(latest)}
    with ui.element("div").classes("tiles facts-row"):
        tiles |= {name: layout.Tile(name) for name in facts_of(latest)}
    _first_steps(here)

    def show(snapshot: Snapshot) -> None:
        layout.show_age(flow, snapshot.stale_s)
        for name, shown in (flow_of(snapshot) | facts_of(snapshot)).items():
            tiles[name].show(*shown)
        for name, field in _CURVES.items():
            tiles[name].draw(_lately(here, "", field))

    layout.follow(here, show)
    pipelines.line(here)
    _attention(here)
    with ui.element("div").classes("two"):
        _Ranks(here, "Busiest topics", "in_rate", lambda one: one.in_rate, words.rate).draw()
        _Ranks(here, "Deepest topics", "depth", lambda one: one.backlog, words.number).draw()
    Strip(here).draw()
    chart.pair(here, "")


def _lately(here: Opened, series: str, field: str) -> list[float]:
    """How a series went in the last minutes."""
    index = FIELDS.index(field)
    samples = here.ground.history.recent(series)
    step = max(1, len(samples) // _POINTS)
    return [one.values[index] for one in samples[::step] if one.values is not None]


def _first_steps(here: Opened) -> None:
    """What an installation without a topic is told."""
    with ui.element("div").classes("panel empty") as empty:
        ui.label("Nothing has been published yet.")
        with ui.element("div"):
            layout.written("span", "Publish a message to any topic, or ")
            ui.link("make a topic under Lookup", here.link("lookup"))
            layout.written("span", ".")

    def show(snapshot: Snapshot) -> None:
        answers = all(one.can_be_asked for one in snapshot.nodes.values())
        empty.set_visibility(bool(snapshot.nodes) and answers and not snapshot.topics)

    layout.follow(here, show)


# --- what needs attention ---


def _attention(here: Opened) -> None:
    with layout.section("Needs attention"):
        place = ui.element("div")
    shown: list[Finding] = []

    def show(snapshot: Snapshot) -> None:
        found = [*states.found(here, snapshot), *of_runs(here.ground.runs.runs, time.time())]
        found = sorted(found, key=lambda one: -one.level)[:_FINDINGS_MAX]
        if found == shown and place.default_slot.children:
            return
        shown[:] = found
        place.clear()
        with place:
            if not found:
                with ui.element("div").classes("finding"):
                    _level("good", "check_circle", "All well")
                    ui.label(_all_well(snapshot)).classes("soft")
            for one in found:
                finding(here, one)

    layout.follow(here, show)


def _all_well(snapshot: Snapshot) -> str:
    if not snapshot.nodes:
        return "No nsqd is known yet: start one with the address of this nsqlookupd."
    late = [one.address for one in snapshot.nodes.values() if not one.can_be_asked]
    if late:
        return f"As far as is known: {', '.join(late[:4])} has not answered for a while."
    return "All nodes answer, and every channel moves."


_LEVELS = {
    Level.BAD: ("bad", "error", "Fault"),
    Level.WARN: ("warn", "warning", "Warning"),
    Level.NOTE: ("soft", "info", "Note"),
}


def finding(here: Opened, one: Finding) -> None:
    what = one.what[:1].upper() + one.what[1:]
    with ui.element("div").classes("finding"):
        _level(*_LEVELS[one.level])
        with ui.element("div"):
            if one.path:
                ui.link(what, here.link(*one.path))
            else:
                ui.label(what)
            ui.label(f"{one.why} {one.next_step}").classes("soft")


def _level(colour: str, icon: str, said: str) -> None:
    with ui.element("div").classes("level").classes(colour):
        ui.icon(icon)
        layout.written("span", said)


# --- topics that stand out ---


class _Ranks:
    """The topics with the most of something, each with its curve."""

    def __init__(
        self, here: Opened, title: str, field: str, amount: Callable[[TopicState], float],
        said: Callable[[float], str],
    ) -> None:  # fmt: skip
        self._here = here
        self._title = title
        self._field = field
        self._amount = amount
        self._said = said

    def draw(self) -> None:
        with layout.section(self._title):
            self._none = ui.label("None at the moment.").classes("soft")
            with ui.element("div").classes("ranks"):
                self._slots = [_Slot() for _ in range(_RANKS)]
        layout.follow(self._here, self._show)

    def _show(self, snapshot: Snapshot) -> None:
        moving = (one for one in snapshot.topics.values()
                  if not one.is_internal and self._amount(one))  # fmt: skip
        first = heapq.nlargest(_RANKS, moving, key=self._amount)
        self._none.set_visibility(not first)
        for slot, topic in zip(self._slots, [*first, *[None] * _RANKS], strict=False):
            if topic is None:
                slot.hide()
            else:
                way = self._here.link("topics", topic.name)
                curve = _lately(self._here, topic.name, self._field)
                slot.show(topic.name, way, self._said(self._amount(topic)), curve)


class _Slot:
    def __init__(self) -> None:
        self._link = ui.link()
        self._curve = layout.Curve()
        self._amount = ui.label().classes("amount")

    def hide(self) -> None:
        for one in (self._link, self._curve.element, self._amount):
            one.set_visibility(False)

    def show(self, name: str, way: str, amount: str, curve: Sequence[float]) -> None:
        for one in (self._link, self._curve.element, self._amount):
            one.set_visibility(True)
        if self._link.text != name:
            self._link.set_text(name)
            self._link.props["href"] = way
            self._link.props["title"] = name
        self._amount.set_text(amount)
        self._curve.show(curve)


# --- numbers ---

Shown = tuple[str, str, str]  # the number, a word about it, and its level


def flow_of(snapshot: Snapshot) -> dict[str, Shown]:
    """What goes through, and what waits."""
    channels = list(snapshot.channels())
    oldest = max(channels, key=lambda one: (one.oldest_s, one.tells_age), default=None)
    return {
        "In": (words.rate(snapshot.in_rate), "published", ""),
        "Out": (words.rate(snapshot.finish_rate), "finished", ""),
        "Depth": (words.number(snapshot.backlog), "messages wait", ""),
        "In flight": (words.number(sum(one.in_flight for one in channels)), "at consumers", ""),
        "Deferred": (words.number(sum(one.deferred for one in channels)), "not due yet", ""),
        "Oldest": _oldest(oldest),
    }


def _oldest(channel: ChannelState | None) -> Shown:
    if channel is not None and not channel.tells_age:
        return (*words.UNKNOWN, "")
    if channel is None or not channel.oldest_s:
        return "none", "unfinished message", ""
    is_old = channel.oldest_s > limits.ADMIN_OLD_S
    where = f"{channel.topic}/{channel.name}"
    note = f"old: in {where}" if is_old else "unfinished message"
    return words.span(channel.oldest_s), note, "warn" if is_old else ""


def facts_of(snapshot: Snapshot) -> dict[str, Shown]:
    """The rest, which is looked at when something is wrong."""
    nodes = snapshot.nodes.values()
    up = sum(one.can_be_asked for one in nodes)
    channels = list(snapshot.channels())
    unsynced = sum(one.unsynced_bytes for one in snapshot.topics.values())
    disks = [one.document["disk"] for one in nodes if one.document.get("disk")]
    free = min((one["free_bytes"] for one in disks), default=None)
    slowest_s = max((one.get("sync_slowest_seconds") or 0.0 for one in disks), default=0.0)
    last_s = [one["last_sync_seconds_ago"] for one in disks
              if one.get("last_sync_seconds_ago") is not None]  # fmt: skip
    topics = sum(not one.is_internal for one in snapshot.topics.values())
    plain = {
        "Timeouts": (words.rate(sum(one.timeout_rate for one in channels)), "came back"),
        "Not synced": (words.size(unsynced), "not on disk yet") if disks else words.UNKNOWN,
        "Last sync": (
            words.span(min(last_s)) if last_s else "none",
            f"ago, slowest {words.span(slowest_s)}" if slowest_s else "in the last minute",
        ) if disks else words.UNKNOWN,
        "Disk left": (words.size(free) if free is not None else "unknown", "on the fullest node"),
        "Topics": (words.number(topics), words.count(len(channels), "channel")),
        "Consumers": (words.number(sum(one.clients for one in channels)), "connected"),
    }  # fmt: skip
    down = len(nodes) - up
    said = (f"{up} of {len(nodes)}", f"{down} down" if down else "answer", "bad" if down else "")
    return {"Nodes": said} | {name: (*pair, "") for name, pair in plain.items()}
