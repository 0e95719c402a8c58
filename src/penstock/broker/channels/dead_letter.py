"""Dead letters as messages: their trailers and headers.

| where | what |
|---|---|
| trailer | id, timestamp and key of the message that a channel has given up |
| headers, under `dead_letter` | topic, channel, attempts, and how the last one ended |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.broker.partition.appends import Content
from penstock.kernel import Cause, Section, StrayRecord

if TYPE_CHECKING:
    from penstock.broker.channels.channel import Channel
    from penstock.log.messages import Message


_HEADER = "dead_letter"
CAUSES = {
    Cause.TIMED_OUT: "timed_out",
    Cause.REQUEUED: "requeued",
    Cause.DISCONNECTED: "disconnected",
}


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    topic: str
    channel: str
    attempts: int
    cause: str = ""  # one of CAUSES: how its last attempt ended; "": nsqd was restarted since

    def is_of(self, channel: Channel) -> bool:
        return (self.topic, self.channel) == (channel.topic.name, channel.name)


def _headers(text: bytes) -> dict[str, Any]:
    """Headers that are no JSON object are dropped."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except msgspec.DecodeError:
        return {}


def dead_letter(stored: Message, record: StrayRecord, channel: Channel) -> Content:
    headers = _headers(stored.headers)
    cause = CAUSES.get(Cause(record.cause), "")
    headers[_HEADER] = Origin(channel.topic.name, channel.name, record.attempts, cause)
    return _moved(stored, record.id, headers)


def origin(stored: Message) -> Origin | None:
    try:
        return msgspec.convert(_headers(stored.headers).get(_HEADER), type=Origin)
    except msgspec.ValidationError:
        return None  # a client published it there


def redriven_content(stored: Message) -> Content:
    """A dead letter on its way back: the message, with attempts counted from 1 again."""
    headers = _headers(stored.headers)
    headers.pop(_HEADER, None)
    return _moved(stored, stored.id, headers)


def _moved(stored: Message, id: int, headers: dict[str, Any]) -> Content:
    sections = {kind: value for kind, value in stored.sections.items() if kind == Section.KEY}
    sections |= {Section.TIMESTAMP: stored.timestamp_ns, Section.ID: id}
    if headers:
        sections[Section.HEADERS] = msgspec.json.encode(headers)
    return Content(stored.body, sections)
