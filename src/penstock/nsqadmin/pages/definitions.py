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
from penstock.nsqadmin.definitions import Definitions
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.pages import layout, static, words
from penstock.nsqadmin.pages.layout import Opened

_PATH = "definitions.json"


def add_download(app: FastAPI, ground: Ground) -> None:
    @app.get(f"{ground.base}/{_PATH}", include_in_schema=False)
    async def download(request: Request) -> Response:
        viewed(ground, request)
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


# A chosen file is read by the browser, into the field: nothing else is sent anywhere.
_READ = static.text("read_file.js")
_SHOWN_MAX = 200  # changes of a preview


def _form(here: Opened) -> None:
    _Form(here).draw()


class _Form:
    def __init__(self, here: Opened) -> None:
        self._here = here

    def draw(self) -> None:
        self._text = ui.textarea("Definitions to put in").props("outlined")
        self._text.classes("mono definitions")
        with ui.element("div").classes("heading"):
            chosen = ui.element("input").props('type=file accept=".json,application/json"')
            layout.named(chosen, "Take them from a file").on("change", js_handler=_READ)
            nodes = list(self._here.ground.watch.latest.nodes)
            self._nodes = ui.select(nodes, value=nodes, label="On nodes", multiple=True)
            self._nodes.props("dense outlined use-chips").set_visibility(len(nodes) > 1)
            ui.element("div").classes("grow")
            ui.button("Show what would change", on_click=self._preview).props("outline")
            ui.button("Put in", on_click=self._put).props("unelevated")
        self._note = ui.label().classes("bad").props('role="status"')
        self._changes = ui.element("div")

    def _chosen(self) -> list[str]:
        """Those that answer: all, when there was one when the page was drawn."""
        nodes = self._here.ground.watch.latest.nodes
        chosen = self._nodes.value if self._nodes.visible else list(nodes)
        return [at for at in chosen or () if at in nodes and nodes[at].is_up]

    def _read(self) -> Definitions | None:
        self._changes.clear()
        self._note.set_text("")
        try:
            return definitions.read(str(self._text.value or ""))
        except PenstockError as error:
            self._note.set_text(str(error))
            return None

    async def _preview(self) -> None:
        """Nothing is changed."""
        found = self._read()
        if found is None:
            return
        ground = self._here.ground
        try:
            latest, nodes = ground.watch.latest, self._chosen()
            changes = await definitions.changes(ground.upstream, latest, found, nodes)
        except PenstockError as error:
            self._note.set_text(str(error))
            return
        self._changes.clear()
        with self._changes:
            said = words.count(len(changes), "change") if changes else "Nothing would change"
            ui.label(f"{said}.").props('role="status"')
            with ui.element("ul").classes("mono small"):
                for one in changes[:_SHOWN_MAX]:
                    layout.written("li", one.text)
            if len(changes) > _SHOWN_MAX:
                ui.label(f"and {len(changes) - _SHOWN_MAX:,} more").classes("soft")

    async def _put(self) -> None:
        found = self._read()
        if found is None:
            return
        latest = self._here.ground.watch.latest
        nodes = self._chosen()
        if not nodes:
            self._note.set_text("Choose a node that answers.")
            return
        told = definitions.summary(found, latest)
        question = (
            f"{words.count(told.topics, 'topic')} ({told.new_topics:,} new) and"
            f" {words.count(told.channels, 'channel')} ({told.new_channels:,} new) on"
            f" {words.count(len(nodes), 'node')}: make what is missing, and change settings?"
            " Nothing is deleted."
        )
        if await layout.confirm(question, "definitions"):
            run = partial(definitions.put, self._here.ground.upstream, nodes, found)
            names = ", ".join(one.name for one in found.topics)
            detail = f"{names} on {', '.join(nodes)}"
            if await layout.change(self._here, Role.DESTROY, "put_definitions", {}, run, detail):
                self._text.set_value("")
