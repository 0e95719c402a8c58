"""One stored message in full: its body in every form, what stands beside it, where it stands in
each channel, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

from nicegui import ui

from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqadmin import inside, jsonview, messages
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.messages import Message, Place
from penstock.nsqadmin.pages import layout, publish, static, words
from penstock.nsqadmin.pages.layout import Opened

SHEET = static.text("message.css")
# Copies what the browser already shows. Without the clipboard (no https) it is selected and copied.
_COPY = static.text("copy.js")
_COPY_LINK = static.text("copy_link.js")


def panel(
    here: Opened, topic: str, place: Place, message: Message, prefer: list[str],
    close: Callable[[], None],
) -> None:  # fmt: skip
    """`prefer` keeps the form that was chosen last for the next message."""
    with layout.section(f"Offset {message.offset:,}"):
        with ui.element("div").classes("heading"):
            partition = f", partition {place.partition}" if place.partition else ""
            where = f"{words.moment(message.timestamp_ns)} on {place.node}{partition}"
            ui.label(where).classes("soft")
            ui.element("div").classes("grow")
            ui.button("Close", on_click=close).props("flat dense")
        _body(message, prefer)
        _actions(here, topic, place, message)
        _facts(message)
        _headers(message.headers)
        _standing(here, topic, place, message)


def _actions(here: Opened, topic: str, place: Place, message: Message) -> None:
    with ui.element("div").classes("heading"):
        copy = ui.button("Copy body").props("flat dense")
        copy.on("click", lambda: ui.notify("Copied as it is shown."), js_handler=_COPY)
        address = ui.button("Copy link").props("flat dense")
        address.on("click", _copied_link, js_handler=_COPY_LINK)
        query = urlencode({"node": str(place), "offset": message.offset})
        ui.link("Download the body", f"{here.link('download', topic)}?{query}")
        at = urlencode({"topic": topic, "id": message.id})
        ui.link("Its life", f"{here.link('trace')}?{at}")
        if here.may(Role.OPERATE):
            again = partial(publish.again, here, topic, place, message)
            ui.button("Publish again", on_click=again).props("flat dense")


def _copied_link(event: Any) -> None:
    if event.args:
        ui.notify("The address of this message is copied.")
    else:
        ui.notify("The address of this page leads to this message: copy it from the browser's bar.")


# --- its body ---


def _body(message: Message, prefer: list[str]) -> None:
    body = message.body[: limits.ADMIN_BODY_SHOWN_BYTES]
    is_whole = len(body) == len(message.body)
    folded = jsonview.as_html(message.body) if is_whole else None
    forms: dict[str, str | None] = {
        "JSON": folded or (messages.as_json(message.body) if is_whole else None),
        "Text": messages.as_text(body),
        "Hex": messages.as_hex(body[: limits.ADMIN_HEX_SHOWN_BYTES]),
    }
    there = {name: text for name, text in forms.items() if text is not None}
    first = next((one for one in prefer if one in there), next(iter(there)))
    with ui.element("div").classes("heading"):
        choice = ui.toggle(list(there), value=first).props(
            'dense unelevated aria-label="How the body is shown"'
        )
        ui.label(words.size(len(message.body))).classes("soft")
    place = ui.element("pre").classes("mono body").props('tabindex="0" aria-label="Body"')

    def show() -> None:
        place.clear()
        with place:
            if choice.value == "JSON" and folded is not None:
                ui.html(folded, sanitize=False).classes("folding shown-body")
            else:
                shown = ui.label(there[str(choice.value)]).classes("shown-body")
                shown.classes("hex" if choice.value == "Hex" else "")

    def choose() -> None:
        prefer[:] = [str(choice.value)]
        show()

    choice.on_value_change(choose)
    show()
    if not is_whole:
        all_of = words.size(len(message.body))
        ui.label(f"The first {words.size(len(body))} of {all_of}.").classes("soft")


# --- beside it ---


def _facts(message: Message) -> None:
    facts = {
        "Id": message.id,
        "Due": words.moment(message.due_ns) if message.due_ns else "",
        "Trace id": str(message.trace_id) if message.trace_id else "",
        "Attempts before": str(message.attempts) if message.attempts else "",
        "Key": messages.preview(message.key) if message.key is not None else "",
    }
    with ui.element("dl").classes("facts"):
        for name, value in facts.items():
            if value:
                with ui.element("dt"):
                    ui.label(name)
                with ui.element("dd"):
                    ui.label(value).classes("mono")


def _headers(headers: Mapping[str, Any]) -> None:
    if headers:
        ui.html("<h3>Headers</h3>", sanitize=False)
        _table(("Name", "Value"), [(name, str(value)) for name, value in headers.items()])


def _table(names: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    with ui.element("table").classes("pairs"):
        with ui.element("thead"), ui.element("tr"):
            for name in names:
                with ui.element("th").props('scope="col"'):
                    ui.label(name)
        with ui.element("tbody"):
            for row in rows:
                with ui.element("tr"):
                    for value in row:
                        with ui.element("td"):
                            ui.label(value).classes("mono")


# --- in the channels ---

_COLOURS = {inside.FINISHED: "good", inside.DEAD: "bad", inside.IN_FLIGHT: "warn",
            inside.REQUEUED: "warn"}  # fmt: skip


def _standing(here: Opened, topic: str, place: Place, message: Message) -> None:
    with ui.element("div").classes("heading"):
        ui.html("<h3>In the channels</h3>", sanitize=False)
        look_again = ui.button("Look again").props("flat dense")
    shown = ui.element("div").props('role="status"')

    async def show() -> None:
        try:
            found = await inside.of_message(
                here.ground.upstream, place, topic, message.offset, message.id
            )
        except PenstockError as error:
            found = []
            said = f"The node can't tell: {error}"
        else:
            said = "" if found else "The topic has no channel."
        shown.clear()
        with shown:
            if said:
                ui.label(said).classes("soft")
            for one in found:
                _channel(here, topic, one)

    look_again.on_click(show)
    ui.timer(0.05, show, once=True)


def _channel(here: Opened, topic: str, one: inside.Standing) -> None:
    with ui.element("div").classes("heading"):
        ui.link(one.channel, here.link("topics", topic, one.channel))
        ui.label(one.state).classes(f"badge {_COLOURS.get(one.state, 'soft')}")
        if one.detail:
            ui.label(one.detail).classes("soft")
