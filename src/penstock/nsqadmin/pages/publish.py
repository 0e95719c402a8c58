"""Publishing by hand: a new message, or a stored one once more, into its own topic or another."""

from __future__ import annotations

from nicegui import ui

from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.messages import Log, Message, Place, as_text
from penstock.nsqadmin.pages import layout, words
from penstock.nsqadmin.pages.layout import Opened
from penstock.wire.names import is_valid_name


async def one(here: Opened, topic: str, nodes: list[str], node: str) -> bool:
    """Ask for a message and publish it. Whether it was done."""
    question = f"Publish one message to {topic}"
    with layout.named(ui.dialog(), question) as dialog, ui.card().classes("publishing"):
        ui.label(question)
        chosen = ui.select(nodes, value=node, label="On node").props("outlined dense")
        chosen.set_visibility(len(nodes) > 1)
        body = ui.textarea("Body").props("outlined autogrow autofocus").classes("mono")
        defer = ui.number("Deferred by, ms", value=0, min=0, precision=0).props("outlined dense")
        _buttons(dialog)
    while await dialog:
        data = str(body.value or "").encode()
        if await _publish(here, str(chosen.value), topic, data, defer.value, ""):
            return True
    return False  # it was given up; until then a refused message keeps its text


async def again(here: Opened, topic: str, place: Place, message: Message) -> None:
    """A stored message, byte for byte; its text may be changed before, unless it is masked."""
    hidden = here.ground.options.mask_field
    log = Log(here.ground.upstream, place.node, topic, hidden, place.partition)
    try:
        raw = await log.raw_body(message.offset)
    except PenstockError as error:
        ui.notify(str(error), type="negative")
        return
    if raw is None:
        ui.notify("This message is not stored any more.", type="warning")
        return
    text = None if log.is_masked(message, raw) else as_text(raw)
    if text is not None and len(raw) > limits.ADMIN_BODY_SHOWN_BYTES:
        text = None
    question = f"Publish the message at offset {message.offset:,} again"
    with layout.named(ui.dialog(), question) as dialog, ui.card().classes("publishing"):
        ui.label(question)
        into = ui.input(
            "To topic", value=topic,
            validation={"No topic has such a name": lambda name: is_valid_name(name.encode())},
        ).props("outlined dense")  # fmt: skip
        body = ui.textarea("Body", value=text or "").props("outlined autogrow").classes("mono")
        body.set_visibility(text is not None)
        if text is None:
            ui.label(f"Its {words.size(len(raw))} as they are stored.").classes("soft")
        if message.headers or message.key is not None or message.trace_id:
            ui.label("Only the body: no key, headers or trace id.").classes("soft")
        defer = ui.number("Deferred by, ms", value=0, min=0, precision=0).props("outlined dense")
        _buttons(dialog)
    while await dialog:
        if not into.validate():
            continue
        is_same = text is None or str(body.value or "") == text
        data = raw if is_same else str(body.value or "").encode()
        about = f"{topic} offset {message.offset} again{'' if is_same else ', changed'}, "
        if await _publish(here, place.node, str(into.value), data, defer.value, about):
            return


def _buttons(dialog: ui.dialog) -> None:
    with ui.row():
        ui.button("Cancel", on_click=lambda: dialog.submit(None)).props("flat")
        ui.button("Publish", on_click=lambda: dialog.submit(True))


async def _publish(
    here: Opened, node: str, topic: str, data: bytes, defer_ms: float | None, detail: str
) -> bool:
    query = {"topic": topic} | ({"defer": str(int(defer_ms))} if defer_ms else {})

    async def run() -> str:
        await here.ground.upstream.post(node, "/pub", query, data)
        return ""

    about = {"topic": topic, "node": node}
    said = f"{detail}{words.count(len(data), 'byte')}"
    return await layout.change(here, Role.OPERATE, "publish", about, run, said)
