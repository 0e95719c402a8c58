"""Topics, channels and their settings as one document, out of an installation and into another: a
download, and a panel of the page Lookup."""

from __future__ import annotations

from functools import partial

from fastapi import FastAPI, Request
from fastapi.responses import Response
from nicegui import ui

from penstock.errors import PenstockError
from penstock.nsqadmin import definitions
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.api import viewed
from penstock.nsqadmin.ground import Grounds
from penstock.nsqadmin.pages import layout, words
from penstock.nsqadmin.pages.layout import Opened

_PATH = "definitions.json"


def add_download(app: FastAPI, grounds: Grounds) -> None:
    @app.get(f"{grounds.base}/{_PATH}", include_in_schema=False)
    async def download(request: Request) -> Response:
        ground = viewed(grounds, request)
        await ground.watch.ready()
        found = await definitions.taken(ground.upstream, ground.watch.latest)
        headers = {"Content-Disposition": f'attachment; filename="{_PATH}"'}
        return Response(definitions.to_text(found), media_type="application/json", headers=headers)


def panel(here: Opened) -> None:
    with layout.section("Definitions"):
        ui.label(
            "All topics and channels with their settings as one document, for another installation"
            " or to go back to. Messages are not in it."
        ).classes("soft")
        ui.link("Download definitions", here.link(_PATH)).props("download")
        if here.may(Role.DESTROY):
            _form(here)


def _form(here: Opened) -> None:
    async def put() -> None:
        latest = here.ground.watch.latest
        try:
            found = definitions.read(str(text.value or ""))
        except PenstockError as error:
            note.set_text(str(error))
            return
        note.set_text("")
        nodes = [one.address for one in latest.nodes.values() if one.is_up]
        told = definitions.summary(found, latest)
        question = (
            f"{words.count(told.topics, 'topic')} ({told.new_topics:,} new) and"
            f" {words.count(told.channels, 'channel')} ({told.new_channels:,} new) on"
            f" {words.count(len(nodes), 'node')}: make what is missing, and change settings?"
            " Nothing is deleted."
        )
        if await layout.confirm(question, "definitions"):
            run = partial(definitions.put, here.ground.upstream, nodes, found)
            detail = ", ".join(one.name for one in found.topics)
            if await layout.change(here, Role.DESTROY, "put_definitions", {}, run, detail):
                text.set_value("")

    text = ui.textarea("Definitions to put in").props("outlined").classes("mono")
    with ui.element("div").classes("heading"):
        ui.button("Put in", on_click=put).props("unelevated")
        note = ui.label().classes("bad").props('role="status"')
