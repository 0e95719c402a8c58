"""The whole installation at a glance."""

from __future__ import annotations

import time

from fastapi import Request
from nicegui import ui

from penstock.nsqadmin.attention import Finding, Level, findings, of_runs
from penstock.nsqadmin.ground import Grounds
from penstock.nsqadmin.pages import chart, layout, pipelines, words
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.snapshot import Snapshot

_FINDINGS_MAX = 50  # nobody reads more


def add(grounds: Grounds) -> None:
    @ui.page("/")
    def overview(request: Request) -> None:
        here = layout.opened(grounds, request)
        with layout.page(here, "Overview"):
            draw(here)


def draw(here: Opened) -> None:
    layout.heading("Overview")
    with ui.element("div").classes("tiles"):
        tiles = {name: layout.Tile(name) for name in tiles_of(here.ground.watch.latest)}

    def show(snapshot: Snapshot) -> None:
        for name, (number, note) in tiles_of(snapshot).items():
            tiles[name].show(number, note)

    layout.follow(here, show)
    pipelines.line(here)
    _attention(here)
    chart.pair(here, "")


def _attention(here: Opened) -> None:
    with layout.section("Needs attention"):
        place = ui.element("div")
    shown: list[Finding] = []

    def show(snapshot: Snapshot) -> None:
        found = findings(snapshot, here.ground.history.window)
        found += of_runs(here.ground.runs.runs, time.time())
        found = sorted(found, key=lambda one: -one.level)[:_FINDINGS_MAX]
        if found == shown and place.default_slot.children:
            return
        shown[:] = found
        place.clear()
        with place:
            if not found:
                ui.label("Nothing. All nodes answer, and every channel moves.").classes("soft")
            for one in found:
                _finding(here, one)

    layout.follow(here, show)


def _finding(here: Opened, one: Finding) -> None:
    name, kind = {Level.BAD: ("bad", "Fault"), Level.WARN: ("warn", "Warning")}.get(
        one.level, ("soft", "Note")
    )
    with ui.element("div").classes("finding"):
        ui.label(kind).classes(f"badge {name}")
        with ui.element("div"):
            ui.link(one.what, here.link(*one.path))
            ui.label(f"{one.why} {one.next_step}").classes("soft")


def tiles_of(snapshot: Snapshot) -> dict[str, tuple[str, str]]:
    """By name: the number, and a word about it."""
    up = sum(one.is_up for one in snapshot.nodes.values())
    channels = list(snapshot.channels())
    deferred = sum(one.deferred for one in channels)
    clients = sum(one.clients for one in channels)
    oldest_s = max((one.oldest_s for one in channels), default=0.0)
    unsynced = sum(one.unsynced_bytes for one in snapshot.topics.values())
    disks = [one.document["disk"] for one in snapshot.nodes.values() if one.document.get("disk")]
    free = min((one["free_bytes"] for one in disks), default=None)
    slowest_s = max((one.get("sync_slowest_seconds") or 0.0 for one in disks), default=0.0)
    last_s = [one["last_sync_seconds_ago"] for one in disks
              if one.get("last_sync_seconds_ago") is not None]  # fmt: skip
    return {
        "In": (words.rate(snapshot.in_rate), "published"),
        "Out": (words.rate(snapshot.finish_rate), "finished"),
        "Depth": (words.number(snapshot.backlog), "messages wait"),
        "In flight": (words.number(sum(one.in_flight for one in channels)), "at consumers"),
        "Deferred": (words.number(deferred), "not due yet"),
        "Timeouts": (words.rate(sum(one.timeout_rate for one in channels)), "came back"),
        "Oldest": (words.span(oldest_s) if oldest_s else "none", "unfinished message")
        if any(one.tells_age for one in channels) or not channels else words.UNKNOWN,
        "Not synced": (words.size(unsynced), "not on disk yet") if disks else words.UNKNOWN,
        "Last sync": (
            words.span(min(last_s)) if last_s else "none",
            f"ago, slowest {words.span(slowest_s)}" if slowest_s else "in the last minute",
        ) if disks else words.UNKNOWN,
        "Disk left": (words.size(free) if free is not None else "unknown", "on the fullest node"),
        "Nodes": (f"{up} of {len(snapshot.nodes)}", "answer"),
        "Topics": (
            words.number(sum(not one.is_internal for one in snapshot.topics.values())),
            words.count(len(channels), "channel"),
        ),
        "Consumers": (words.number(clients), "connected"),
    }  # fmt: skip
