"""Dead letters as messages: what their trailers and headers say, and how they go to another node.

| where | what |
|---|---|
| trailer | the id and the timestamp of the message that a channel has given up |
| headers, under `dead_letter` | topic, channel, attempts, and how the last one ended |

To another node letters go as one MessagePack array (`replica/letterframes.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.broker.stored import Stored
from penstock.kernel import Cause, Section, StrayRecord

if TYPE_CHECKING:
    from penstock.broker.channel import Channel

_HEADER = "dead_letter"
CAUSES = {
    Cause.TIMED_OUT: "timed_out",
    Cause.REQUEUED: "requeued",
    Cause.DISCONNECTED: "disconnected",
}


class Letter(NamedTuple):
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


def dead_letter(stored: Stored, record: StrayRecord, channel: Channel) -> Letter:
    headers = _headers(stored.headers)
    cause = CAUSES.get(Cause(record.cause), "")
    headers[_HEADER] = Origin(channel.topic.name, channel.name, record.attempts, cause)
    return Letter(
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


def live_letter(stored: Stored) -> Letter:
    """A dead letter on its way back: itself, with its attempts counted from 1 again."""
    headers = _headers(stored.headers)
    headers.pop(_HEADER, None)
    sections: dict[int, int | bytes] = {
        Section.TIMESTAMP: stored.timestamp_ns,
        Section.ID: stored.id,
    }
    if headers:
        sections[Section.HEADERS] = msgspec.json.encode(headers)
    return Letter(stored.body, sections)


# --- to another node ---

_Sections = dict[int, int | bytes]
_encode = msgspec.msgpack.Encoder().encode
_DECODER = msgspec.msgpack.Decoder(list[tuple[bytes, _Sections]])
_KNOWN = frozenset(Section)
_BYTES_FROM = 64  # sections below have integers, the others bytes
_VALUES = 1 << 64  # of an integer


def encode_letters(letters: Sequence[Letter]) -> bytes:
    return _encode([(letter.body, _plain(letter.sections)) for letter in letters])


def _plain(sections: _Sections) -> _Sections:
    return {int(section): value for section, value in sections.items()}


def decode_letters(data: bytes | bytearray) -> list[Letter]:
    """Raises ValueError."""
    try:
        letters = [Letter(*one) for one in _DECODER.decode(data)]
    except msgspec.MsgspecError as error:
        raise ValueError(f"letters that cannot be read: {error}") from error
    for letter in letters:
        for section, value in letter.sections.items():
            if not _is_sound(section, value):
                raise ValueError(f"section {section} of a letter is {value!r:.100}")
    return letters


def _is_sound(section: int, value: int | bytes) -> bool:
    if isinstance(value, bytes):
        return section in _KNOWN and section >= _BYTES_FROM
    return section in _KNOWN and section < _BYTES_FROM and 0 <= value < _VALUES
