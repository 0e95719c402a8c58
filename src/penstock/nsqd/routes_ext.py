"""`/pub_ext`: one message with headers, as Youzan's NSQ has it (`extheaders.py`).

The rules are those of PUB_EXT: a flat object of strings, whose member `key` chooses the partition
unless one is named, and whose `##trace_id` has the answer say where the message lies. A topic that
is not extended takes these two members, and no others.

A producer that numbers its messages has a partition of its own, so its headers name no key.
"""

from __future__ import annotations

from penstock.broker.intake import ANY
from penstock.broker.topic import Topic
from penstock.broker.traced import Stored
from penstock.errors import PenstockError, Refused
from penstock.kernel import Headers
from penstock.net.api import (
    OK,
    POST,
    Answer,
    Guard,
    HttpError,
    Parameters,
    Route,
    error_response,
)
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query
from penstock.nsqd import traced
from penstock.nsqd.extheaders import headers_of
from penstock.nsqd.ground import Ground, unavailable, with_topic
from penstock.nsqd.headed import Headed
from penstock.nsqd.publishes import due_ns_of, just_ok, publish_stamped
from penstock.nsqd.stamps import is_stamped
from penstock.nsqd.targets import check_place, partition_of, wrong_key
from penstock.nsqd.tracecontext import joined


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
        headers, found = headers_of(request, parameters)

        def publish(topic: Topic) -> None:
            message = headed(topic, request, headers, found)
            self._publish(topic, message, parameters, answer)

        with_topic(self._ground, self._guard, request, parameters, answer, publish)

    def _publish(
        self, topic: Topic, message: Headed, parameters: Parameters, answer: Answer
    ) -> None:
        partition = partition_of(topic, parameters)
        if is_stamped(parameters):
            self._publish_stamped(topic, message, parameters, answer)
            return
        if partition == ANY and message.key is not None:
            partition = topic.partition_of_key(message.key)
        check_place(topic, partition)
        due_ns = due_ns_of(self._ground, parameters)
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
            topic.publish_headed(leader, message.body, message.sections, done, due_ns)
        except Refused:
            self._ground.refusals.count += 1
            raise
        self._ground.soon()

    def _publish_stamped(
        self, topic: Topic, message: Headed, parameters: Parameters, answer: Answer
    ) -> None:
        if message.key is not None:
            shown = message.key.decode("utf-8")
            raise wrong_key(
                shown, "a producer that numbers its messages has a partition of its own"
            )

        def said(where: Stored | None) -> Response:
            if not message.trace_id:
                return just_ok(where)
            if where is not None:
                return _said(message, where)
            return traced.repeated_response(message.trace_id)

        sections = [message.sections]
        publish_stamped(self._ground, topic, [message.body], parameters, answer, said, sections)


def headed(topic: Topic, request: Request, headers: bytes, found: Headers) -> Headed:
    """The message with its headers. Raises HttpError."""
    trace_id = found.trace_id or 0
    if not topic.extended:
        if found.has_others:
            rule = "it takes no headers but key and ##trace_id"
            raise HttpError(400, f"E_EXT_NOT_SUPPORT topic {topic.name} is not extended: {rule}")
        return Headed(b"", found.key, trace_id, request.body)
    headers, context_id = joined(request, headers) or (headers, found.context_id)
    given = found.trace_id is not None
    return Headed(headers, found.key, trace_id, request.body, 0 if given else context_id)


def _said(message: Headed, stored: Stored) -> Response:
    if not message.trace_id:
        return OK
    return traced.stored_response(message.trace_id, message.stored_bytes, stored)
