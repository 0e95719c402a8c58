"""The messages of a topic, as they are stored: browse, find, read, publish one, download.

Deep link: /messages/TOPIC?node=HOST:PORT&at=PLACE&contains=TEXT.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.responses import Response
from nicegui import ui

from penstock import limits
from penstock.errors import FetchFailed, PenstockError
from penstock.nsqadmin import messages
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.api import ApiError, viewed
from penstock.nsqadmin.ground import Grounds
from penstock.nsqadmin.messages import Log, Message
from penstock.nsqadmin.pages import layout, words
from penstock.nsqadmin.pages.grid import Grid, Row, column, numbers
from penstock.nsqadmin.pages.layout import Opened

_COUNT = limits.ADMIN_MESSAGES_SHOWN


def add(grounds: Grounds) -> None:
    @ui.page("/messages/{topic}")
    async def browse(
        request: Request, topic: str, node: str = "", at: str = "newest", contains: str = ""
    ) -> None:
        here = layout.opened(grounds, request)
        await here.ground.watch.ready()
        with layout.page(here, f"Messages of {topic}"):
            await _Browser(here, topic, node, at, contains).draw()


def add_download(app: FastAPI, grounds: Grounds) -> None:
    @app.get(f"{grounds.base}/download/{{topic}}", include_in_schema=False)
    async def download(request: Request, topic: str, node: str, offset: int) -> Response:
        """A message's body, as a file: never something that a browser would run."""
        ground = viewed(grounds, request)
        if node not in ground.watch.latest.nodes:
            raise ApiError(404, "NODE_NOT_FOUND")
        hidden = ground.options.mask_field
        try:
            message = await Log(ground.upstream, node, topic, hidden).message(offset)
        except FetchFailed as error:
            if error.status == 404:
                raise ApiError(404, "MESSAGE_NOT_FOUND") from error
            raise ApiError(502, f"UPSTREAM_ERROR: {error.reason}") from error
        if message is None:
            raise ApiError(404, "MESSAGE_NOT_FOUND")
        headers = {
            "Content-Disposition": f'attachment; filename="{topic}-{offset}.bin"',
            "X-Content-Type-Options": "nosniff",
        }
        return Response(message.body, media_type="application/octet-stream", headers=headers)


_COLUMNS = [
    numbers("offset", "Offset", "value", width=120),
    column("time", "Stored", width=220),
    column("id", "Id", width=170, cellClass="mono"),
    numbers("attempts", "Attempts", width=90),
    numbers("size", "Bytes", width=90),
    column("key", "Key", width=110),
    column("preview", "Body", flex=1, minWidth=260, cellClass="mono"),
]


@dataclass
class _Shown:
    """What the page shows now."""

    first: int = 0
    following: int = 0
    messages: tuple[Message, ...] = ()


class _Browser:
    def __init__(self, here: Opened, topic: str, node: str, at: str, contains: str) -> None:
        self._here = here
        self._topic = topic
        self._shown = _Shown()
        state = here.ground.watch.latest.topics.get(topic)
        self._nodes = list(state.nodes) if state else []
        self._node_first = node if node in self._nodes else (self._nodes or [""])[0]
        self._at_first = at
        self._contains_first = contains

    async def draw(self) -> None:
        here, topic = self._here, self._topic
        if not self._nodes:
            self._nodes = await self._asked()  # it may be younger than the last look
            self._node_first = (self._nodes or [""])[0]
        with layout.heading(f"Messages of {topic}"):
            ui.link("the topic", here.link("topics", topic))
            ui.element("div").classes("grow")
            if here.may(Role.OPERATE) and self._nodes:
                ui.button("Publish one", on_click=self._publish).props("flat dense")
        if not self._nodes:
            ui.label("No nsqd has this topic, so there is nothing to show.").classes("empty")
            return
        self._controls()
        self._note = ui.label().classes("soft").props('role="status"')
        self._grid = Grid(_COLUMNS, [], "offset", "No message here.", "Messages", "46vh")
        self._grid.element.on("cellClicked", lambda event: self._open(event.args["data"]["offset"]))
        self._grid.element.on("cellKeyDown", self._on_key)
        self._detail = ui.element("div")
        await self._go(self._at_first)

    async def _asked(self) -> list[str]:
        try:
            found, _ = await self._here.ground.upstream.producers_of(self._topic)
        except PenstockError:
            return []  # the banner says who does not answer
        return [one.address for one in found]

    def _controls(self) -> None:
        with ui.element("div").classes("heading"):
            self._node = ui.select(self._nodes, value=self._node_first, label="Node").props(
                "dense outlined"
            )
            self._at = ui.input(
                "Offset, time, id, trace:N, newest, oldest", value=self._at_first
            ).props("dense outlined")
            self._at.style("min-width: 20rem").on("keydown.enter", lambda: self._go(self._at.value))
            self._contains = ui.input("Contains", value=self._contains_first).props(
                "dense outlined clearable"
            )
            self._contains.on("keydown.enter", lambda: self._go(self._at.value))
            ui.button("Show", on_click=lambda: self._go(self._at.value)).props("unelevated")
            ui.button("Earlier", on_click=self._earlier).props("flat dense")
            ui.button("Later", on_click=self._later).props("flat dense")
        self._node.on_value_change(lambda: self._go(self._at.value))

    def _log(self) -> Log:
        ground = self._here.ground
        return Log(ground.upstream, str(self._node.value), self._topic, ground.options.mask_field)

    # --- going places ---

    async def _go(self, place: str | None) -> None:
        try:
            await self._show(await self._log().find(place or ""))
        except PenstockError as error:
            self._say(error)
            return
        if (place or "newest") == "newest":
            self._grid.show_end()
        query = urlencode({"node": self._node.value, "at": place or "", "contains": self._text})
        address = f"{self._here.link('messages', self._topic)}?{query}"
        ui.navigate.history.replace(address)

    @property
    def _text(self) -> str:
        return str(self._contains.value or "")

    async def _show(self, offset: int) -> None:
        found, following = await self._log().read(offset, _COUNT, self._text)
        self._shown = _Shown(offset, following, tuple(found))
        self._grid.show([_row(one) for one in found])
        searched = f", searched up to offset {following:,}" if self._text else ""
        self._note.set_text(
            f"{words.count(len(found), 'message')} from offset {offset:,}{searched}"
        )
        self._detail.clear()

    async def _earlier(self) -> None:
        await self._move(max(0, self._shown.first - _COUNT))

    async def _later(self) -> None:
        await self._move(self._shown.following)

    async def _move(self, offset: int) -> None:
        try:
            extent = await self._log().extent()
            await self._show(min(max(offset, extent.earliest), extent.end))
        except PenstockError as error:
            self._say(error)

    def _say(self, error: PenstockError) -> None:
        self._note.set_text(str(error))
        self._grid.show([])

    # --- one message ---

    def _on_key(self, event: object) -> None:
        arguments = getattr(event, "args", {})
        if arguments.get("event", {}).get("key") == "Enter":
            self._open(arguments["data"]["offset"])

    def _open(self, offset: int) -> None:
        message = next((one for one in self._shown.messages if one.offset == offset), None)
        if message is None:
            return
        self._detail.clear()
        with self._detail, layout.section(f"Offset {message.offset:,}"):
            _facts(message)
            _body(message)
            query = urlencode({"node": self._node.value, "offset": offset})
            with ui.element("div").classes("heading"):
                link = self._here.link("download", self._topic)
                ui.link("Download the body", f"{link}?{query}")
                at = urlencode({"topic": self._topic, "id": message.id})
                ui.link("Its life", f"{self._here.link('trace')}?{at}")

    # --- publishing ---

    async def _publish(self) -> None:
        question = f"Publish one message to {self._topic} on {self._node.value}"
        window = layout.named(ui.dialog(), question)
        with window as dialog, ui.card().style("min-width: min(34rem, 92vw)"):
            ui.label(question)
            body = ui.textarea("Body").props("outlined autogrow")
            defer = ui.number("Deferred by, ms", value=0, min=0, precision=0).props("outlined")
            with ui.row():
                ui.button("Cancel", on_click=lambda: dialog.submit(None)).props("flat")
                ui.button("Publish", on_click=lambda: dialog.submit(True))
        if not await dialog:
            return
        data = str(body.value or "").encode()
        query = {"topic": self._topic}
        if defer.value:
            query["defer"] = str(int(defer.value))
        node = str(self._node.value)

        async def run() -> str:
            await self._here.ground.upstream.post(node, "/pub", query, data)
            return ""

        about = {"topic": self._topic, "node": node}
        detail = words.count(len(data), "byte")
        if await layout.change(self._here, Role.OPERATE, "publish", about, run, detail):
            await self._go("newest")


def _row(message: Message) -> Row:
    return {
        "offset": message.offset,
        "time": words.moment(message.timestamp_ns),
        "id": message.id,
        "attempts": message.attempts,
        "size": len(message.body),
        "key": messages.preview(message.key) if message.key is not None else "",
        "preview": messages.preview(message.body),
    }


def _facts(message: Message) -> None:
    facts = {
        "Id": message.id,
        "Stored": words.moment(message.timestamp_ns),
        "Due": words.moment(message.due_ns) if message.due_ns else "",
        "Trace id": str(message.trace_id) if message.trace_id else "",
        "Attempts before": str(message.attempts) if message.attempts else "",
        "Key": messages.preview(message.key) if message.key is not None else "",
    }
    facts |= {f"Header {name}": str(value) for name, value in message.headers.items()}
    with ui.element("dl").classes("facts"):
        for name, value in facts.items():
            if value:
                with ui.element("dt"):
                    ui.label(name)
                with ui.element("dd"):
                    ui.label(value).classes("mono")


def _body(message: Message) -> None:
    body = message.body[: limits.ADMIN_BODY_SHOWN_BYTES]
    forms = {
        "JSON": messages.as_json(message.body) if len(body) == len(message.body) else None,
        "Text": messages.as_text(body),
        "Hex": messages.as_hex(body[: limits.ADMIN_HEX_SHOWN_BYTES]),
    }
    there = {name: text for name, text in forms.items() if text is not None}
    choice = ui.toggle(list(there), value=next(iter(there))).props(
        'dense unelevated aria-label="How the body is shown"'
    )
    place = ui.element("pre").classes("mono body")
    with place:
        label = ui.label()
    choice.on_value_change(partial(_show_form, label, there, choice))
    _show_form(label, there, choice)
    if len(body) < len(message.body):
        ui.label(f"The first {words.size(len(body))} of {words.size(len(message.body))}.").classes(
            "soft"
        )


def _show_form(label: ui.label, forms: dict[str, str], choice: ui.toggle) -> None:
    label.set_text(forms[str(choice.value)])
