"""PUB_TRACE and MPUB_TRACE of one V2 session (`wire/traced.py`), and over HTTP `/pubtrace` and
`/mpubtrace`, whose body is that of MPUB_TRACE.

The command's answer says where the message lies, which is known once it is stored; the connection
waits for it, and other connections share the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.broker.topic import Topic
from penstock.broker.traced import Stored, Traced
from penstock.errors import PenstockError, Refused
from penstock.net.api import Answer, HttpError, Parameters, error_response, json_response
from penstock.net.exchange import Response
from penstock.nsqd.ground import Ground, unavailable
from penstock.nsqd.session import Session
from penstock.nsqd.stamps import marked_repeated
from penstock.wire import traced
from penstock.wire.errors import Fault, WireFault, reason_of
from penstock.wire.frames import FrameType

PUB_TRACE, MPUB_TRACE = b"PUB_TRACE", b"MPUB_TRACE"
FAULTS = {PUB_TRACE: Fault.PUB_FAILED, MPUB_TRACE: Fault.MPUB_FAILED}

_TRACE_ID_MAX = (1 << 64) - 1
_DIGITS_MAX = 20


def body_bytes_max(command: bytes, message_bytes_max: int, pack_bytes_max: int) -> int:
    one = message_bytes_max + traced.TRACE_BYTES
    return one if command == PUB_TRACE else pack_bytes_max


def messages_of(command: bytes, body: bytes, message_bytes_max: int) -> list[Traced]:
    """Raises WireFault."""
    if command == PUB_TRACE:
        return [Traced(*traced.split_one(body))]
    return [Traced(*one) for one in traced.split_many(body, message_bytes_max)]


def publish(
    session: Session,
    topic: Topic,
    partition: int,
    command: bytes,
    messages: Sequence[Traced],
    pause: Callable[[Session], Callable[[Callable[[], None]], None]],
) -> None:
    """Publish, and answer when it is stored. Raises PenstockError when nothing is taken."""

    def done(stored: PenstockError | Stored) -> None:
        go_on(lambda: reply(stored))

    def reply(stored: PenstockError | Stored) -> None:
        if isinstance(stored, PenstockError):
            raise WireFault(FAULTS[command], reason_of(stored))
        published = session.conn.published
        name = topic.name.encode()
        published[name] = published.get(name, 0) + len(messages)
        first = messages[0]
        data = traced.encode_reply(stored.id, first.trace_id, stored.offset, first.stored_bytes)
        session.conn.reply(FrameType.RESPONSE, data)

    go_on = pause(session)
    try:
        topic.publish_traced(messages, 0, done, partition)
    except PenstockError:
        session.waits = False
        raise


def publish_http(
    ground: Ground,
    topic: Topic,
    partition: int,
    messages: Sequence[Traced],
    due_ns: int,
    answer: Answer,
) -> None:
    def done(stored: PenstockError | Stored) -> None:
        if isinstance(stored, PenstockError):
            ground.refusals.count += 1
            answer(error_response(unavailable(stored)))
            return
        first = messages[0]
        answer(stored_response(first.trace_id, first.stored_bytes, stored))

    try:
        topic.publish_traced(messages, due_ns, done, partition)
    except Refused:
        ground.refusals.count += 1
        raise
    ground.soon()


def stored_response(trace_id: int, stored_bytes: int, where: Stored) -> Response:
    return json_response(
        {
            "status": "OK",
            "id": where.id,
            "trace_id": str(trace_id),
            "queue_offset": where.offset,
            "rawsize": stored_bytes,
        }
    )


def repeated_response(trace_id: int) -> Response:
    """It was stored before, and where is not looked for."""
    return marked_repeated(json_response({"status": "OK", "trace_id": str(trace_id)}))


def messages_of_http(body: bytes, message_bytes_max: int) -> list[Traced]:
    try:
        return messages_of(MPUB_TRACE, body, message_bytes_max)
    except WireFault as error:
        too_big = error.fault is Fault.MESSAGE_TOO_BIG
        code = (413, "MSG_TOO_BIG") if too_big else (400, "BAD_BODY")
        raise HttpError(*code) from error


def trace_id_of(query: Parameters) -> int:
    text = query.get("trace_id", "")
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        trace_id = int(text)
        if trace_id <= _TRACE_ID_MAX:
            return trace_id
    raise HttpError(400, "INVALID_TRACE_ID")
