"""Stored messages for people: a few at a time from any place of a topic's log, found and filtered.

Reads raw batches as every reader of the log does; nothing is delivered and no channel moves. What
is masked is masked here, before anything is searched or leaves this module.
"""

from __future__ import annotations

import array
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from penstock import limits
from penstock.errors import BrokerRefused, PenstockError
from penstock.kernel import Section, decode_columns, decode_header, decode_sections
from penstock.nsqadmin.upstream import Upstream

MASK = "•••"
_HEX_ID = re.compile(r"[0-9a-fA-F]{16}")


class PlaceInvalid(PenstockError):
    """What somebody has typed is no place in a log."""

    def __init__(self, text: str) -> None:
        rule = "an offset, an id of 16 hex digits, a time such as 2026-11-21T06:00:00Z, or newest"
        super().__init__(f"{text!r} is not {rule}")
        self.text = text


class Extent(NamedTuple):
    """Offsets [earliest, end) of one partition on one node."""

    identity: str
    earliest: int
    end: int


@dataclass(frozen=True)
class Message:
    offset: int
    timestamp_ns: int
    id: str
    body: bytes
    attempts: int = 0
    trace_id: int = 0
    due_ns: int = 0
    key: bytes | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)


class Log:
    """One partition of a topic on one node."""

    def __init__(
        self, upstream: Upstream, node: str, topic: str, hidden: Iterable[str] = (),
        partition: int = 0,
    ) -> None:  # fmt: skip
        """`hidden`: the names of headers and of JSON fields whose values are masked."""
        self._upstream = upstream
        self._hidden = tuple(hidden)
        self.node = node
        self.topic = topic
        self.partition = partition

    async def extent(self) -> Extent:
        found = await self._upstream.get(self.node, "/log/positions", {"topic": self.topic})
        entry = found["topics"].get(self.topic)
        if entry is None:
            raise BrokerRefused(self.node, 404, "TOPIC_NOT_FOUND", {})
        span = entry["partitions"][str(self.partition)]
        return Extent(entry["identity"], span["earliest"], span["end"])

    async def find(self, text: str) -> int:
        """The offset that a place means, as people type it."""
        text = text.strip()
        extent = await self.extent()
        if text in ("", "newest", "latest"):
            return max(extent.earliest, extent.end - limits.ADMIN_MESSAGES_SHOWN)
        if text in ("oldest", "earliest"):
            return extent.earliest
        if _HEX_ID.fullmatch(text):
            return await self._offset_of({"id": text.lower()})
        if text.startswith("trace:") and text[6:].isdigit():
            return await self._offset_of({"trace_id": text[6:]})
        if text.isascii() and text.isdigit():
            return int(text)
        return await self._offset_at(text)

    async def _offset_of(self, query: dict[str, str]) -> int:
        target = {"topic": self.topic, "partition": str(self.partition)} | query
        return int((await self._upstream.get(self.node, "/message/get", target))["offset"])

    async def _offset_at(self, text: str) -> int:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise PlaceInvalid(text) from error
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        target = {"topic": self.topic, "partition": str(self.partition),
                  "timestamp_ms": str(max(0, int(moment.timestamp() * 1000)))}  # fmt: skip
        return int((await self._upstream.get(self.node, "/log/offset", target))["offset"])

    async def read(
        self, from_offset: int, count: int, contains: str = ""
    ) -> tuple[list[Message], int]:
        """Up to `count` messages from there on that contain a text (in the body, the key, a header
        or the id), and the offset to go on from. A search gives up after a bounded stretch."""
        extent = await self.extent()
        position = max(from_offset, extent.earliest)
        stop = min(extent.end, position + (limits.ADMIN_SEARCHED_MAX if contains else count))
        found: list[Message] = []
        while position < stop and len(found) < count:
            data, following = await self._fetch(extent, position, stop)
            for message in decoded(data):
                if position <= message.offset < stop and len(found) < count:
                    position = message.offset + 1
                    shown = masked(message, self._hidden)
                    if matches(shown, contains):
                        found.append(shown)
            if len(found) < count:
                position = max(position, following)
        return found, position

    async def _fetch(self, extent: Extent, position: int, stop: int) -> tuple[bytes, int]:
        query = {
            "topic": self.topic,
            "partition": str(self.partition),
            "identity": extent.identity,
            "from": str(position),
            "to": str(stop),
            "bytes_max": str(limits.ADMIN_FETCH_BYTES),
        }
        answer = await self._upstream.fetch(self.node, "/log/fetch", query)
        following = int(answer.headers.get("x-penstock-next-offset", "0"))
        return answer.body, max(following, position + 1)

    async def message(self, offset: int) -> Message | None:
        found, _ = await self.read(offset, 1)
        return found[0] if found and found[0].offset == offset else None


def decoded(data: bytes) -> Iterable[Message]:
    """The messages of whole raw batches. ValueError when they are not sound."""
    columns = decode_columns(data)
    offsets, timestamps = array.array("q", columns.offsets), array.array("q", columns.timestamps)
    ids, attempts = array.array("Q", columns.ids), array.array("H", columns.attempts)
    ends = array.array("q", columns.body_offsets)
    extras = _sections(data)
    for row in range(columns.count):
        extra = extras.get(offsets[row], {})
        yield Message(
            offset=offsets[row],
            timestamp_ns=timestamps[row],
            id=f"{ids[row]:016x}",
            body=bytes(columns.bodies[ends[row] : ends[row + 1]]),
            attempts=attempts[row],
            trace_id=int(extra.get(Section.TRACE, 0)),
            due_ns=int(extra.get(Section.DUE, 0)),
            key=extra.get(Section.KEY),
            headers=_headers(extra.get(Section.HEADERS, b"")),
        )


def _sections(data: bytes) -> dict[int, dict[int, Any]]:
    """What is beside the body, by offset."""
    found: dict[int, dict[int, Any]] = {}
    position = 0
    while position < len(data):
        header = decode_header(data, position)
        for section, values in decode_sections(data, position).items():
            for index, value in values.items():
                found.setdefault(header.base_offset + index, {})[section] = value
        position += header.length
    return found


def _headers(text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {"(not JSON)": text.decode("utf-8", "replace")}
    return found if isinstance(found, dict) else {"(no object)": found}


def matches(message: Message, text: str) -> bool:
    if not text:
        return True
    raw = text.encode()
    return (
        raw in message.body
        or raw in (message.key or b"")
        or text.lower() == message.id
        or any(text in f"{name}{value}" for name, value in message.headers.items())
    )


# --- what is not shown ---


def masked(message: Message, fields: Iterable[str]) -> Message:
    """Without the values of these headers, and of these fields of a JSON body, however deep."""
    hidden = frozenset(fields)
    if not hidden:
        return message
    headers = {name: MASK if name in hidden else value for name, value in message.headers.items()}
    return replace(message, headers=headers, body=_masked_body(message.body, hidden))


def _masked_body(body: bytes, hidden: frozenset[str]) -> bytes:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        # Not JSON: where a name of a masked field stands in it, nothing of it is shown.
        named = any(name.encode() in body for name in hidden)
        return MASK.encode() if named else body
    changed = _masked_value(document, hidden)
    if changed == document:
        return body
    return json.dumps(changed, ensure_ascii=False).encode()


def _masked_value(value: Any, hidden: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {k: MASK if k in hidden else _masked_value(v, hidden) for k, v in value.items()}
    if isinstance(value, list):
        return [_masked_value(one, hidden) for one in value]
    return value


# --- how it is shown ---


def preview(body: bytes) -> str:
    """One line of it."""
    text = _text(body[: limits.ADMIN_PREVIEW_BYTES])
    if text is None:
        return f"0x{body[:24].hex()}{'…' if len(body) > 24 else ''}"
    return " ".join(text.split()) + ("…" if len(body) > limits.ADMIN_PREVIEW_BYTES else "")


def as_text(body: bytes) -> str | None:
    return _text(body)


def as_json(body: bytes) -> str | None:
    """Indented, or None when it is no JSON."""
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def as_hex(body: bytes) -> str:
    """Offset, bytes, characters, 16 a line."""
    lines = []
    for at in range(0, len(body), 16):
        part = body[at : at + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {shown}")
    return "\n".join(lines)


def _text(body: bytes) -> str | None:
    for cut in range(4 if len(body) == limits.ADMIN_PREVIEW_BYTES else 1):
        try:
            text = body[: len(body) - cut].decode()  # the cut may have gone through a character
        except UnicodeDecodeError:
            continue
        return text if all(one.isprintable() or one in "\n\r\t" for one in text) else None
    return None
