"""A PUB_EXT whose headers have a trace id: it is answered as PUB_TRACE is (`wire/traced.py`).

The kernel has found it right and chosen its partition; what is left is to publish it and to say
where it lies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.traced import LENGTH_BYTES, TRACE_BYTES, Stored
from penstock.errors import PenstockError
from penstock.kernel import Section
from penstock.wire import traced
from penstock.wire.errors import Fault, failed
from penstock.wire.frames import FrameType

if TYPE_CHECKING:
    from penstock.broker.leader import Leader
    from penstock.nsqd.session import Session
    from penstock.nsqd.waits import Waits

_ENTRY_BYTES = 8  # of a key or of headers, in the trailer, beside the value


class Headed(NamedTuple):
    headers: bytes  # empty: none are kept
    key: bytes | None
    trace_id: int  # as its publisher gave it; 0: none
    body: bytes
    context_id: int = 0  # of its trace context, where there is no such id

    @property
    def sections(self) -> dict[int, int | bytes]:
        found: dict[int, int | bytes] = {}
        if self.trace_id or self.context_id:
            found[Section.TRACE] = self.trace_id or self.context_id
        if self.key is not None:
            found[Section.KEY] = self.key
        if self.headers:
            found[Section.HEADERS] = self.headers
        return found

    @property
    def stored_bytes(self) -> int:
        """In the log, without its share of the batch's header."""
        total = LENGTH_BYTES + len(self.body)
        for value in self.sections.values():
            total += _ENTRY_BYTES + len(value) if isinstance(value, bytes) else TRACE_BYTES
        return total


def publish(session: Session, leader: Leader, message: Headed, waits: Waits) -> None:
    """Publish, and answer when it is stored."""

    def reply(stored: PenstockError | Stored) -> None:
        if isinstance(stored, PenstockError):
            raise failed(Fault.PUB_FAILED, stored)
        published, name = session.conn.published, leader.topic.name.encode()
        published[name] = published.get(name, 0) + 1
        data = traced.encode_reply(stored.id, message.trace_id, stored.offset, message.stored_bytes)
        session.conn.reply(FrameType.RESPONSE, data)

    go_on = waits.pause(session)
    try:
        leader.topic.publish_headed(
            leader, message.body, message.sections, lambda stored: go_on(lambda: reply(stored))
        )
    except PenstockError as error:
        session.waits = False
        raise failed(Fault.PUB_FAILED, error) from error
