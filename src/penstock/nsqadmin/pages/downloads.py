"""Stored messages as files: one body as it is, or a range of a topic as JSON lines or raw bodies.

They are never something that a browser would run, hold what the pages may show (masked fields are
masked), and end at a bound.
"""

import base64
import json
from collections.abc import AsyncIterator, Iterable
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query
from fastapi.responses import Response, StreamingResponse
from nicegui import ui

from penstock import limits
from penstock.errors import FetchFailed, PenstockError
from penstock.nsqadmin import criteria
from penstock.nsqadmin.api import ApiError, saved
from penstock.nsqadmin.browse import OffsetSpan, TopicLogs
from penstock.nsqadmin.criteria import Criteria
from penstock.nsqadmin.deps import Deps
from penstock.nsqadmin.messages import NEWEST, Log, LogAddress, Message
from penstock.nsqadmin.pages import parts
from penstock.nsqadmin.pages.layout import PageView
from penstock.nsqadmin.routes import Call, file_route

_FORMS = {"lines": "JSON lines, with all there is of each", "bodies": "Bodies alone, one a line"}
_KINDS = {"lines": ("application/x-ndjson", "jsonl"), "bodies": ("application/octet-stream", "txt")}


async def body(call: Call, topic: str, node: str, offset: int) -> Response:
    try:
        message = await _log(call.deps, node, topic).message(offset)
    except FetchFailed as error:
        raise _failed(error) from error
    if message is None:
        raise ApiError(404, "MESSAGE_NOT_FOUND")
    kind = "application/octet-stream"
    return Response(message.body, headers=saved(f"{topic}-{offset}.bin"), media_type=kind)


async def many(
    call: Call, topic: str, span: Annotated[list[str], Query()], form: str = "lines",
    contains: str = "", where: str = "",
) -> Response:  # fmt: skip
    """Each span is NODE,FROM,TO, or NODE#PARTITION,FROM,TO."""
    if form not in _FORMS:
        raise ApiError(400, "INVALID_ARG_FORM")
    try:
        wanted = criteria.read(contains, where)
    except PenstockError as error:
        raise ApiError(400, "INVALID_ARG_WHERE") from error
    spans = [_span(call.deps, topic, text) for text in span]
    kind, ending = _KINDS[form]
    lines = _written(spans, wanted, form)
    try:
        first = await anext(lines, b"")  # what fails at once can still be said
    except FetchFailed as error:
        raise _failed(error) from error
    headers = saved(f"{topic}.{ending}")
    return StreamingResponse(_after(first, lines), headers=headers, media_type=kind)


FILES = (file_route("/download/{topic}", body), file_route("/download/{topic}/messages", many))


def _failed(error: FetchFailed) -> Exception:
    return ApiError(404, "MESSAGE_NOT_FOUND") if error.status == 404 else error


def _log(deps: Deps, text: str, topic: str) -> Log:
    node, partition = LogAddress.read(text)
    if node not in deps.watch.latest.nodes:
        raise ApiError(404, "NODE_NOT_FOUND")
    return Log(deps.upstream, node, topic, deps.options.mask_field, partition)


def _span(deps: Deps, topic: str, text: str) -> tuple[Log, OffsetSpan]:
    node, _, rest = text.partition(",")
    first, _, following = rest.partition(",")
    numbers = [one for one in (first, following) if one.isascii() and one.isdigit()]
    if len(numbers) != 2 or max(map(len, numbers)) > 18:
        raise ApiError(400, "INVALID_ARG_SPAN")
    return _log(deps, node, topic), OffsetSpan(int(first), int(following))


async def _after(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for data in rest:
        yield data


async def _written(
    spans: Iterable[tuple[Log, OffsetSpan]], wanted: Criteria, form: str
) -> AsyncIterator[bytes]:
    """Node by node; until there are enough of them."""
    left, bytes_left = limits.ADMIN_EXPORT_MESSAGES, limits.ADMIN_EXPORT_BYTES
    for log, span in spans:
        async for some in log.walk(await log.extent(), *span):
            held = [one for one in some if wanted.hold(one)][:left]
            left -= len(held)
            bytes_left -= sum(len(one.body) for one in held)
            is_lines = form == "lines"
            yield b"".join(_as_line(log.address, one) if is_lines else one.body + b"\n"
                           for one in held)  # fmt: skip
            if left <= 0 or bytes_left <= 0:
                return


def _as_line(address: LogAddress, message: Message) -> bytes:
    document = {
        "node": address.node,
        "partition": address.partition,
        "offset": message.offset,
        "id": message.id,
        "timestamp_ns": message.timestamp_ns,
        "attempts": message.attempts,
    }
    more = {
        "trace_id": message.trace_id,
        "due_ns": message.due_ns,
        "key": message.key and message.key.decode("utf-8", "backslashreplace"),
        "headers": dict(message.headers),
    }
    document |= {name: value for name, value in more.items() if value}
    try:
        document["body"] = message.body.decode()
    except UnicodeDecodeError:
        document["body_base64"] = base64.b64encode(message.body).decode()
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


# --- asking for it ---


async def ask(
    view: PageView, topic: str, logs: TopicLogs, shown: dict[str, OffsetSpan],
    asked: tuple[str, str],
) -> None:  # fmt: skip
    """Download the shown messages, or those between two positions."""
    with parts.dialog(f"Download messages of {topic}", "Download") as dialog:
        which = ui.radio({"shown": "Those shown", "range": "A range"}, value="shown")
        with ui.element("div") as ends:
            first = ui.input("From: oldest, a time, -10m, an offset", value="-10m")
            last = ui.input("To: newest, a time, -5m, an offset", value="newest")
            for field in (first, last):
                field.style("margin-top: .5rem")
        ends.bind_visibility_from(which, "value", value="range")
        form = ui.select(_FORMS, value="lines", label="As")
        held = " ".join(one for one in asked if one)
        if held:
            parts.soft(f"Only those that hold: {held}")
        parts.soft(f"At most {limits.ADMIN_EXPORT_MESSAGES:,} messages.")
    if not await dialog:
        return
    try:
        spans = shown if which.value == "shown" else await _range(
            logs, str(first.value or "oldest"), str(last.value or "newest")
        )  # fmt: skip
    except PenstockError as error:
        ui.notify(str(error), type="negative")
        return
    if not any(span.following > span.first for span in spans.values()):
        ui.notify("There is no message between these.", type="warning")
        return
    query = [
        ("span", f"{address},{span.first},{span.following}") for address, span in spans.items()
    ]
    query += [("form", str(form.value)), ("contains", asked[0]), ("where", asked[1])]
    parts.go(f"{view.link('download', topic, 'messages')}?{urlencode(query)}")


async def _range(logs: TopicLogs, first: str, last: str) -> dict[str, OffsetSpan]:
    firsts = await logs.ends() if first.strip() in NEWEST else await logs.find(first)
    lasts = await logs.ends() if last.strip() in NEWEST else await logs.find(last)
    return {
        address: OffsetSpan(start, max(start, lasts[address])) for address, start in firsts.items()
        if address in lasts
    }  # fmt: skip
