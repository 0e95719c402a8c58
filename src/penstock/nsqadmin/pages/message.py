"""One stored message in full: its body in every form, its other fields, its state in each channel,
and actions on it. And publishing by hand: a new message, or a stored one again, into its own topic
or another.

JSON is shown as HTML that can be folded, each kind of value in its colour. Every text of the
document is escaped, so that nothing of it is ever markup. Its own text, as copied, is the document
indented; folding is the browser's own `details`, which keys and screen readers know.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from html import escape
from itertools import islice
from typing import Any

from nicegui import ui

from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqadmin import channel_messages, messages, words
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.messages import Log, LogAddress, Message
from penstock.nsqadmin.pages import layout, parts
from penstock.nsqadmin.pages.layout import PageView
from penstock.wire.names import is_valid_name

COPY = "() => penstock.copy(emit)"  # of what has the class shown-body


def panel(
    view: PageView, topic: str, address: LogAddress, message: Message, prefer: list[str],
    close: Callable[[], None],
) -> None:  # fmt: skip
    """`prefer` keeps the form that was chosen last for the next message."""
    with parts.section(f"Offset {message.offset:,}"):
        with parts.row():
            partition = f", partition {address.partition}" if address.partition else ""
            where = f"{words.moment(message.timestamp_ns)} on {address.node}{partition}"
            parts.soft(where)
            parts.grow()
            parts.small_button("Close", close)
        _body(message, prefer)
        _actions(view, topic, address, message)
        _facts(message)
        _standing(view, topic, address, message)


def _actions(view: PageView, topic: str, address: LogAddress, message: Message) -> None:
    with parts.row():
        copy = parts.small_button("Copy body")
        copy.on("click", lambda: ui.notify("Copied as it is shown."), js_handler=COPY)
        way = view.link("download", topic, node=address, offset=message.offset)
        ui.link("Download the body", way)
        ui.link("Its life", view.link("trace", topic=topic, id=message.id))
        if view.may(Role.OPERATE):
            again = partial(publish_again, view, topic, address, message)
            parts.small_button("Publish again", again)


def _body(message: Message, prefer: list[str]) -> None:
    body = message.body[: limits.ADMIN_BODY_SHOWN_BYTES]
    is_whole = len(body) == len(message.body)
    folded = as_html(message.body) if is_whole else None
    forms: dict[str, str | None] = {
        "JSON": folded or (messages.as_json(message.body) if is_whole else None),
        "Text": messages.as_text(body),
        "Hex": messages.as_hex(body[: limits.ADMIN_HEX_SHOWN_BYTES]),
    }
    there = {name: text for name, text in forms.items() if text is not None}
    first = next((one for one in prefer if one in there), next(iter(there)))
    with parts.row():
        choice = ui.toggle(list(there), value=first).props(
            'dense unelevated aria-label="How the body is shown"'
        )
        ui.label(words.size(len(message.body))).classes("soft")
    area = ui.element("pre").classes("mono body").props('tabindex="0" aria-label="Body"')

    def show() -> None:
        area.clear()
        with area:
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


def _facts(message: Message) -> None:
    parts.facts({
        "Id": message.id,
        "Due": words.moment(message.due_ns) if message.due_ns else "",
        "Trace id": str(message.trace_id) if message.trace_id else "",
        "Attempts before": str(message.attempts) if message.attempts else "",
        "Key": messages.preview(message.key) if message.key is not None else "",
    })  # fmt: skip
    if message.headers:
        ui.html("<h3>Headers</h3>", sanitize=False)
        parts.facts({name: str(value) or "(empty)" for name, value in message.headers.items()})


_COLOURS = {
    channel_messages.FINISHED: "good",
    channel_messages.DEAD: "bad",
    channel_messages.IN_FLIGHT: "warn",
    channel_messages.REQUEUED: "warn",
}


def _standing(view: PageView, topic: str, address: LogAddress, message: Message) -> None:
    with parts.row():
        ui.html("<h3>In the channels</h3>", sanitize=False)
        look_again = parts.small_button("Look again")
    area = ui.element("div").props('role="status"')

    async def show() -> None:
        found, text = list[channel_messages.Standing](), "The topic has no channel."
        try:
            found = await channel_messages.of_message(
                view.deps.upstream, address, topic, message.offset, message.id
            )
        except PenstockError as error:
            text = f"The node can't tell: {error}"
        area.clear()
        with area:
            if not found:
                parts.soft(text)
            for one in found:
                _channel(view, topic, one)

    look_again.on_click(show)
    ui.timer(0.05, show, once=True)


def _channel(view: PageView, topic: str, one: channel_messages.Standing) -> None:
    with parts.row():
        ui.link(one.channel, view.link("topics", topic, one.channel))
        ui.label(one.state).classes(f"badge {_COLOURS.get(one.state, 'soft')}")
        if one.detail:
            parts.soft(one.detail)


# --- publishing ---


async def publish(view: PageView, topic: str, nodes: list[str], node: str) -> bool:
    """Ask for a message and publish it. Whether it was done."""
    question = f"Publish one message to {topic}"
    with parts.dialog(question, "Publish", "publishing", is_kept=True) as dialog:
        chosen = ui.select(nodes, value=node, label="On node")
        chosen.set_visibility(len(nodes) > 1)
        body = ui.textarea("Body").props("outlined autogrow autofocus").classes("mono")
        defer = _defer()
    while await dialog:
        data = str(body.value or "").encode()
        if await _publish(view, str(chosen.value), topic, data, defer.value, ""):
            return True
    return False  # it was given up; until then a refused message keeps its text


async def publish_again(view: PageView, topic: str, address: LogAddress, message: Message) -> None:
    """A stored message, byte for byte; its text may be edited before, unless it is masked."""
    hidden = view.deps.options.mask_field
    log = Log(view.deps.upstream, address.node, topic, hidden, address.partition)
    try:
        raw = await log.raw_body(message.offset)
    except PenstockError as error:
        ui.notify(str(error), type="negative")
        return
    if raw is None:
        ui.notify("This message is not stored any more.", type="warning")
        return
    is_masked = bool(hidden) and message.body != raw
    is_shown = not is_masked and len(raw) <= limits.ADMIN_BODY_SHOWN_BYTES
    text = messages.as_text(raw) if is_shown else None
    question = f"Publish the message at offset {message.offset:,} again"
    with parts.dialog(question, "Publish", "publishing", is_kept=True) as dialog:
        into = ui.input(
            "To topic", value=topic,
            validation={"No topic has such a name": lambda name: is_valid_name(name)},
        )  # fmt: skip
        body = ui.textarea("Body", value=text or "").props("outlined autogrow").classes("mono")
        body.set_visibility(text is not None)
        if text is None:
            parts.soft(f"Its {words.size(len(raw))} as they are stored.")
        if message.headers or message.key is not None or message.trace_id:
            parts.soft("Only the body: no key, headers or trace id.")
        defer = _defer()
    while await dialog:
        if not into.validate():
            continue
        is_same = text is None or str(body.value or "") == text
        data = raw if is_same else str(body.value or "").encode()
        about = f"{topic} offset {message.offset} again{'' if is_same else ', changed'}, "
        if await _publish(view, address.node, str(into.value), data, defer.value, about):
            return


def _defer() -> ui.number:
    return ui.number("Deferred by, ms", value=0, min=0, precision=0)


async def _publish(
    view: PageView, node: str, topic: str, data: bytes, defer_ms: float | None, detail: str
) -> bool:
    query = {"topic": topic} | ({"defer": str(int(defer_ms))} if defer_ms else {})

    async def run() -> None:
        await view.deps.upstream.post(node, "/pub", query, data)

    about = {"topic": topic, "node": node}
    text = f"{detail}{words.count(len(data), 'byte')}"
    return await layout.change(view, Role.OPERATE, "publish", about, run, text)


# --- JSON ---

_INDENT = "  "


def as_html(body: bytes) -> str | None:
    """None: it is no JSON, or too much of it to fold."""
    most = limits.ADMIN_JSON_LINES
    try:
        parts = list(islice(_lines(json.loads(body), "", "", ""), most + 1))
    except (ValueError, RecursionError):
        return None
    return "".join(parts) if len(parts) <= most else None


def _lines(value: Any, before: str, indent: str, after: str) -> Iterator[str]:
    """Lines of one value: `before` is its name, `after` a comma or nothing."""
    if not (isinstance(value, dict | list) and value):
        yield f"{indent}{before}{_leaf(value)}{after}\n"
        return
    is_object, count = isinstance(value, dict), len(value)
    opening, closing = ("{", "}") if is_object else ("[", "]")
    text = f"{count} {'field' if is_object else 'item'}{'' if count == 1 else 's'}"
    yield (
        f'<details open><summary data-count="{text}">{indent}{before}{opening}'
        '<span class="line-end">\n</span></summary>'
    )
    for number, one in enumerate(value, 1):  # the names of an object, else the items
        name = f"{_coloured('name', _json_text(one))}: " if is_object else ""
        member = value[one] if is_object else one
        yield from _lines(member, name, indent + _INDENT, "," if number < count else "")
    yield f"{indent}{closing}{after}\n</details>"


def _leaf(value: Any) -> str:
    if isinstance(value, str):
        return _coloured("text", _json_text(value))
    if isinstance(value, dict | list):
        return "{}" if isinstance(value, dict) else "[]"
    return _coloured("number" if not isinstance(value, bool | None) else "word", _json_text(value))


def _json_text(value: Any) -> str:
    return escape(messages.sendable(json.dumps(value, ensure_ascii=False)))


def _coloured(kind: str, text: str) -> str:
    return f'<span class="json-{kind}">{text}</span>'
