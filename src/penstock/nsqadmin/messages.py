"""Stored messages for people: a few at a time from any position of a topic's log, and filtered.

Reads raw batches as every reader of the log does; nothing is delivered and no channel moves. What
is masked is masked here, before anything is searched or leaves this module.
"""

import array
import json
import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from penstock import limits
from penstock.errors import BrokerRefused, PenstockError
from penstock.kernel import Section, decode_columns, decode_header, decode_sections
from penstock.log.scan import end_of_range
from penstock.nsqadmin.upstream import Upstream
from penstock.nsqdapi import calls
from penstock.times import read_time
from penstock.trace.search import read_trace_id

MASK = "•••"
NEWEST = ("", "newest", "latest")
FIRST = 0  # the partition that every topic has
_HEX_ID = re.compile(r"[0-9a-fA-F]{16}")
_POSITION = (
    "an offset, an id of 16 hex digits, a time such as 2026-11-21T06:00:00Z or 06:00, a while such"
    " as -10m, newest or oldest"
)


class InputInvalid(PenstockError):
    """Names what somebody has typed, and the rule that it breaks."""


def typed_time_ns(text: str, rule: str = "") -> int:
    """Raises InputInvalid; with this rule where it may be something else than a time."""
    try:
        return read_time(text, time.time_ns())
    except ValueError as error:
        raise InputInvalid(f"{text!r} is not {rule}" if rule else str(error)) from error


class Extent(NamedTuple):
    """Offsets [earliest, end) of one partition on one node."""

    identity: str
    earliest: int
    end: int
    committed: int = 0  # what is beyond the end is not durable yet


def is_id(text: str) -> bool:
    return _HEX_ID.fullmatch(text) is not None


def named_message(text: str) -> tuple[str, str] | None:
    """The argument of `/message/get`, where a position names one message: its id, or a trace id."""
    if is_id(text):
        return "id", text.lower()
    if text.startswith("trace:") and (trace_id := read_trace_id(text[6:])):
        return "trace_id", str(trace_id)
    return None


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


class LogAddress(NamedTuple):
    """The address of a log. As text it is the node, with `#3` behind it for partition 3: most
    topics have only the first one."""

    node: str
    partition: int = FIRST

    def __str__(self) -> str:
        return f"{self.node}#{self.partition}" if self.partition else self.node

    @classmethod
    def read(cls, text: str) -> Self:
        node, mark, number = text.rpartition("#")
        if not mark or not (number.isascii() and number.isdigit() and len(number) <= 3):
            return cls(text)
        return cls(node, int(number))


@dataclass
class Log:
    upstream: Upstream
    node: str
    topic: str
    hidden: Sequence[str] = ()  # names of headers and of JSON fields whose values are masked
    partition: int = FIRST

    @property
    def address(self) -> LogAddress:
        return LogAddress(self.node, self.partition)

    async def extent(self) -> Extent:
        return self.of(await self.extents())

    def of(self, extents: Mapping[int, Extent]) -> Extent:
        """Its own span. Raises BrokerRefused when it is gone."""
        if self.partition not in extents:
            raise BrokerRefused(self.node, 404, "PARTITION_NOT_FOUND", {})
        return extents[self.partition]

    async def extents(self) -> dict[int, Extent]:
        positions = await self.upstream.call(self.node, calls.positions([self.topic]))
        spans = positions.topics.get(self.topic)
        if spans is None:
            raise BrokerRefused(self.node, 404, "TOPIC_NOT_FOUND", {})
        return {
            number: Extent(spans.identity, span.earliest, span.end, span.committed)
            for number, span in spans.partitions.items()
        }

    async def find(self, text: str) -> int:
        """The offset that a position means which names no message."""
        if text in ("oldest", "earliest"):
            return (await self.extent()).earliest
        if text.isascii() and text.isdigit():
            return int(text)
        time_ms = typed_time_ns(text, _POSITION) // limits.MS
        call = calls.offset_at(self.topic, time_ms, self.partition)
        return await self.upstream.call(self.node, call)

    async def where_is(self, name: str, value: str, partition: int | None) -> tuple[int, int]:
        """Partition and offset of a message by "id" or "trace_id", in this partition or in all."""
        call = calls.message(self.topic, name, value, partition)
        found = await self.upstream.call(self.node, call)
        return int(found["partition"]), int(found["offset"])

    async def walk(
        self, extent: Extent, from_offset: int, to_offset: int
    ) -> AsyncIterator[list[Message]]:
        """All messages in [from_offset, to_offset), masked, in batches."""
        position, stop = max(from_offset, extent.earliest), min(extent.end, to_offset)
        while position < stop:
            data, following = await self._fetch(extent, position, stop)
            yield [
                masked(one, self.hidden) for one in decoded(data) if position <= one.offset < stop
            ]
            position = following

    async def _fetch(self, extent: Extent, position: int, stop: int) -> tuple[bytes, int]:
        call = calls.fetch(
            self.topic, position, stop, limits.ADMIN_FETCH_BYTES, self.partition, extent.identity
        )
        found = await self.upstream.call(self.node, call)
        following = end_of_range(found.data, position, str(found.next_offset))
        return found.data, max(following, position + 1)

    async def message(self, offset: int) -> Message | None:
        async for found in self.walk(await self.extent(), offset, offset + 1):
            return found[0] if found else None
        return None

    async def raw_body(self, offset: int) -> bytes | None:
        """The stored body, unmasked: not to be shown, but to be published again."""
        found = await replace(self, hidden=()).message(offset)
        return found.body if found is not None else None


def decoded(data: bytes) -> Iterable[Message]:
    """The messages of whole raw batches. ValueError when they are not intact."""
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
    """The sections beside the body, by offset."""
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


# --- masks ---


def masked(message: Message, fields: Iterable[str]) -> Message:
    """Without the values of these headers, and of these fields of a JSON body, at any depth."""
    hidden = frozenset(fields)
    if not hidden:
        return message
    headers = {name: MASK if name in hidden else value for name, value in message.headers.items()}
    return replace(message, headers=headers, body=_masked_body(message.body, hidden))


def _masked_body(body: bytes, hidden: frozenset[str]) -> bytes:
    try:
        changed = _Masked(hidden).of(body)
    except (ValueError, RecursionError):
        # Not JSON: where a name of a masked field stands in it, nothing of it is shown.
        named = any(name.encode() in body for name in hidden)
        return MASK.encode() if named else body
    return body if changed is None else changed.encode("utf-8", "replace")


class _Masked:
    """Reads a document, and replaces values of hidden fields by MASK: also of fields that occur
    twice, of which only the last would be left, and of JSON inside a string."""

    def __init__(self, hidden: frozenset[str]) -> None:
        self._hidden = hidden
        self._is_changed = False

    def of(self, text: str | bytes) -> str | None:
        """None: there is nothing to hide. ValueError, RecursionError: it is no JSON."""
        document = json.loads(text, object_pairs_hook=self._object)
        if not isinstance(document, dict):
            document = self._value(document)
        return json.dumps(document, ensure_ascii=False) if self._is_changed else None

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = {}
        for name, value in pairs:
            self._is_changed = self._is_changed or name in self._hidden or name in found
            found[name] = MASK if name in self._hidden else self._value(value)
        return found

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._value(one) for one in value]
        if not isinstance(value, str) or not value.lstrip().startswith(("{", "[", '"')):
            return value
        try:
            inside = _Masked(self._hidden).of(value)
        except (ValueError, RecursionError):
            return value  # words, which may name what they like
        if inside is None:
            return value
        self._is_changed = True
        return inside


# --- how it is shown ---


def preview(body: bytes) -> str:
    """One line of it."""
    text = as_text(body[: limits.ADMIN_PREVIEW_BYTES])
    if text is None:
        return f"0x{body[:24].hex()}{'…' if len(body) > 24 else ''}"
    return " ".join(text.split()) + ("…" if len(body) > limits.ADMIN_PREVIEW_BYTES else "")


def sendable(text: str) -> str:
    """JSON can name halves of characters, which no text can be sent with."""
    return text.encode("utf-8", "replace").decode()


def as_json(body: bytes) -> str | None:
    """Indented, or None when it is no JSON."""
    try:
        return sendable(json.dumps(json.loads(body), indent=2, ensure_ascii=False))
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


def as_text(body: bytes) -> str | None:
    for cut in range(4 if len(body) == limits.ADMIN_PREVIEW_BYTES else 1):
        try:
            text = body[: len(body) - cut].decode()  # the cut may have gone through a character
        except UnicodeDecodeError:
            continue
        return text if all(one.isprintable() or one in "\n\r\t" for one in text) else None
    return None
