"""`/pub_ext`: one message with headers, as Youzan's NSQ has it. The query's `ext` is their JSON.

The rules are those of PUB_EXT: a flat object of strings, whose member `key` chooses the partition
unless one is named, and whose `##trace_id` has the answer say where the message lies. A topic that
is not extended takes these two members, and no others.
"""

from __future__ import annotations

from penstock import limits
from penstock.broker.intake import ANY
from penstock.broker.topic import Topic
from penstock.broker.traced import Stored
from penstock.errors import PenstockError, Refused
from penstock.kernel import parse_headers
from penstock.net.api import (
    OK,
    POST,
    Answer,
    Guard,
    HttpError,
    Parameters,
    Route,
    error_response,
    json_response,
)
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query
from penstock.nsqd.ground import Ground, unavailable, with_topic
from penstock.nsqd.headed import Headed
from penstock.nsqd.stamps import is_stamped
from penstock.nsqd.targets import check_place, partition_of


def table(ground: Ground, guard: Guard) -> dict[str, Route]:
    publishing = _Publishing(ground, guard)
    size_max = ground.options.max_msg_size
    return {"/pub_ext": Route(POST, publishing.pub_ext, size_max, "MSG_TOO_BIG")}


class _Publishing:
    def __init__(self, ground: Ground, guard: Guard) -> None:
        self._ground = ground
        self._guard = guard

    def pub_ext(self, request: Request, answer: Answer) -> None:
        if not request.body:
            raise HttpError(400, "MSG_EMPTY")
        parameters = parse_query(request.query)
        if "ext" not in parameters:
            raise HttpError(400, "MISSING_ARG_EXT")
        if "defer" in parameters or is_stamped(parameters):
            what = "defer" if "defer" in parameters else "the numbers of a producer"
            raise HttpError(400, f"INVALID_REQUEST /pub_ext does not take {what}")

        def publish(topic: Topic) -> None:
            self._publish(topic, parameters, request.body, answer)

        with_topic(self._ground, self._guard, request, parameters, answer, publish)

    def _publish(self, topic: Topic, parameters: Parameters, body: bytes, answer: Answer) -> None:
        partition = partition_of(topic, parameters)
        message = headed(topic, parameters["ext"], body)
        if partition == ANY and message.key is not None:
            partition = topic.partition_of_key(message.key)
        check_place(topic, partition)
        leader = topic.route() if partition == ANY else topic.partition(partition)

        def done(stored: PenstockError | Stored) -> None:
            if isinstance(stored, PenstockError):
                self._ground.refusals.count += 1
                answer(error_response(unavailable(stored)))
            else:
                answer(_said(message, stored))

        try:
            if leader.refusal:
                raise Refused(leader.refusal)
            topic.publish_headed(leader, body, message.sections, done)
        except Refused:
            self._ground.refusals.count += 1
            raise
        self._ground.soon()


def headed(topic: Topic, text: str, body: bytes) -> Headed:
    """The message with its headers. Raises HttpError."""
    headers = text.encode("utf-8", "surrogateescape")
    if len(headers) > limits.HEADERS_BYTES_MAX:
        rule = f"{len(headers)} bytes of JSON are more than {limits.HEADERS_BYTES_MAX}"
        raise HttpError(400, f"E_INVALID_JSON_HEADER {rule}")
    found = parse_headers(headers)
    if found.wrong_at >= 0:
        rule = f"ext is no flat object of strings from byte {found.wrong_at} on"
        raise HttpError(400, f"E_INVALID_JSON_HEADER {rule}")
    if found.has_others and not topic.extended:
        rule = "it takes no headers but key and ##trace_id"
        raise HttpError(400, f"E_EXT_NOT_SUPPORT topic {topic.name} is not extended: {rule}")
    kept = headers if topic.extended else b""
    return Headed(kept, found.key, found.trace_id or 0, body)


def _said(message: Headed, stored: Stored) -> Response:
    if not message.trace_id:
        return OK
    return json_response(
        {
            "status": "OK",
            "id": stored.id,
            "trace_id": str(message.trace_id),
            "queue_offset": stored.offset,
            "rawsize": message.stored_bytes,
        }
    )
