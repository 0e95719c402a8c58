"""Dead letters as messages: what their trailers and headers say.

| where | what |
|---|---|
| trailer | the id and the timestamp of the message that a channel has given up |
| headers, under `dead_letter` | topic, channel, attempts, and how the last one ended |

Messages read back from a log, one at a time: for what is rare, not for delivery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock import limits
from penstock.kernel import (
    Cause,
    Section,
    StrayRecord,
    decode_bodies,
    decode_header,
    decode_sections,
    id_at,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.broker.channels.channel import Channel
    from penstock.kernel import BatchHeader
    from penstock.log.partition import PartitionLog


_HEADER = "dead_letter"
CAUSES = {
    Cause.TIMED_OUT: "timed_out",
    Cause.REQUEUED: "requeued",
    Cause.DISCONNECTED: "disconnected",
}


class DeadLetterContent(NamedTuple):
    """A message to publish, and what its batch's trailer is to say of it."""

    body: bytes
    sections: dict[int, int | bytes]


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a dead letter comes from."""

    topic: str
    channel: str
    attempts: int
    cause: str = ""  # one of CAUSES: how its last attempt ended; "": nsqd was restarted since

    def is_of(self, channel: Channel) -> bool:
        return (self.topic, self.channel) == (channel.topic.name, channel.name)


def _headers(text: bytes) -> dict[str, Any]:
    """Headers that are no JSON object are given up."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except msgspec.DecodeError:
        return {}


def dead_letter(stored: Stored, record: StrayRecord, channel: Channel) -> DeadLetterContent:
    headers = _headers(stored.headers)
    cause = CAUSES.get(Cause(record.cause), "")
    headers[_HEADER] = Origin(channel.topic.name, channel.name, record.attempts, cause)
    return DeadLetterContent(
        stored.body,
        {
            Section.TIMESTAMP: stored.timestamp_ns,
            Section.ID: record.id,
            Section.HEADERS: msgspec.json.encode(headers),
        },
    )


def origin(stored: Stored) -> Origin | None:
    try:
        return msgspec.convert(_headers(stored.headers).get(_HEADER), type=Origin)
    except msgspec.ValidationError:
        return None  # a client published it there


def redriven_content(stored: Stored) -> DeadLetterContent:
    """A dead letter on its way back: itself, with its attempts counted from 1 again."""
    headers = _headers(stored.headers)
    headers.pop(_HEADER, None)
    sections: dict[int, int | bytes] = {
        Section.TIMESTAMP: stored.timestamp_ns,
        Section.ID: stored.id,
    }
    if headers:
        sections[Section.HEADERS] = msgspec.json.encode(headers)
    return DeadLetterContent(stored.body, sections)


class Stored(NamedTuple):
    """One message, with what the trailer of its batch says of it."""

    offset: int
    id: int
    timestamp_ns: int
    body: bytes
    headers: bytes  # a JSON object, or empty


class Reader:
    """Reads best in rising order: it remembers the block and the batch it was in."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._block: Buffer = b""
        self._batches: list[tuple[int, BatchHeader]] = []  # position in the block, header
        self._header: BatchHeader | None = None
        self._bodies: list[bytes] = []
        self._sections: dict[int, dict[int, int | bytes]] = {}

    def read(self, offset: int) -> Stored:
        """Raises LogDamaged and StorageError."""
        header = self._header
        if header is None or not _holds(header, offset):
            header = self._open(offset)
        index = offset - header.base_offset
        id = self._value(Section.ID, index)
        timestamp_ns = self._value(Section.TIMESTAMP, index)
        headers = self._value(Section.HEADERS, index)
        return Stored(
            offset,
            id if isinstance(id, int) else id_at(header.base_id, index),
            timestamp_ns if isinstance(timestamp_ns, int) else header.timestamp_ns,
            self._bodies[index],
            headers if isinstance(headers, bytes) else b"",
        )

    def _value(self, section: Section, index: int) -> int | bytes | None:
        return self._sections.get(section, {}).get(index)

    def _open(self, offset: int) -> BatchHeader:
        found = self._find(offset)
        if found is None:
            self._load(self._log.read(offset, limits.READ_BLOCK_BYTES))
            found = self._find(offset)
        if found is None:
            raise RuntimeError(f"the log has no batch with offset {offset}")
        position, header = found
        self._bodies = decode_bodies(self._block, position)
        self._sections = decode_sections(self._block, position)
        self._header = header
        return header

    def _find(self, offset: int) -> tuple[int, BatchHeader] | None:
        for position, header in self._batches:
            if _holds(header, offset):
                return position, header
        return None

    def _load(self, block: Buffer) -> None:
        self._block, self._batches = block, []
        position, end = 0, len(memoryview(block))
        while position < end:
            header = decode_header(block, position)
            self._batches.append((position, header))
            position += header.length


def _holds(header: BatchHeader, offset: int) -> bool:
    return header.base_offset <= offset < header.base_offset + header.count
