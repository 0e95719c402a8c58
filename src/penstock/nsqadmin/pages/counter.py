"""All messages that ever came to a channel, counting."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.pages import chart, layout, words
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.snapshot import Snapshot


def add(ground: Ground) -> None:
    @ui.page("/counter")
    def counter(request: Request) -> None:
        here = layout.opened(ground, request)
        with layout.page(here, "Counter"):
            draw(here)


def draw(here: Opened) -> None:
    layout.heading("Counter")
    with ui.element("div").classes("panel"):
        ui.label("Messages that came to channels since their nodes started").classes("soft")
        total = ui.label().classes("counter").props('aria-live="off"')
        rate = ui.label().classes("soft")

    def show(snapshot: Snapshot) -> None:
        channels = list(snapshot.channels())
        total.set_text(f"{sum(one.messages for one in channels):,}")
        rate.set_text(f"{words.rate(sum(one.in_rate for one in channels))} now")

    layout.follow(here, show)
    chart.pair(here, "")
