"""Publishing over HTTP: `/pub`, `/mpub`, and with trace ids `/pubtrace`, `/mpubtrace`.

A batch of messages (`/mpub`) is taken whole or not at all. It goes from the request's body into the
topic's open batch inside the kernel: no message becomes a Python object on the way.
"""

from __future__ import annotations

import logging
from functools import lru_cache

from penstock.broker.topic import Topic
from penstock.broker.traced import Stored, Traced
from penstock.errors import Refused
from penstock.kernel import BAD_COUNT, Pack
from penstock.net.api import OK, POST, Answer, Guard, HttpError, Parameters, Route
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query
from penstock.nsqd import traced
from penstock.nsqd.ground import FALSE, TRUE, Ground, with_topic
from penstock.nsqd.publishes import answering, due_ns_of, publish_stamped
from penstock.nsqd.stamps import is_stamped, pack_bodies
from penstock.nsqd.targets import ANYWHERE, check_place, partition_of, target_of
from penstock.nsqd.tracecontext import with_context

log = logging.getLogger("penstock.nsqd")


def table(ground: Ground, guard: Guard) -> dict[str, Route]:
    publishing = _Publishing(ground, guard)
    options = ground.options
    return {
        "/pub": Route(POST, publishing.pub, options.max_msg_size, "MSG_TOO_BIG", together=True),
        "/mpub": Route(POST, publishing.mpub, options.max_body_size, together=True),
        "/pubtrace": Route(POST, publishing.pubtrace, options.max_msg_size, "MSG_TOO_BIG"),
        "/mpubtrace": Route(POST, publishing.mpubtrace, options.max_body_size),
    }


class _Publishing:
    def __init__(self, ground: Ground, guard: Guard) -> None:
        self._ground = ground
        self._guard = guard
        self._topics = ground.broker.topics
        self._soon = ground.soon

    def pub(self, request: Request, answer: Answer) -> None:
        if not request.body:
            raise HttpError(400, "MSG_EMPTY")
        parameters = _parameters(request.query)
        topic = self._topics.get(parameters.get("topic", ""))
        if topic is not None:  # most of the time, and then there is nothing to wait for
            self._publish_one(topic, request, parameters, answer)
            return
        with_topic(
            self._ground,
            self._guard,
            request,
            parameters,
            answer,
            lambda topic: self._publish_one(topic, request, parameters, answer),
        )

    def _publish_one(
        self, topic: Topic, request: Request, parameters: Parameters, answer: Answer
    ) -> None:
        due_ns = due_ns_of(self._ground, parameters) if "defer" in parameters else 0
        partition, sections = ANYWHERE
        if len(parameters) > 1 or topic.placed or topic.extended:
            partition, sections = target_of(topic, parameters)
            if topic.extended:
                sections = with_context(request, sections)
            if is_stamped(parameters):
                said = () if sections is None else (sections,)
                bodies = [request.body]
                publish_stamped(self._ground, topic, bodies, parameters, answer, sections=said)
                return
        done = answering(self._ground, answer)
        try:
            topic.publish([request.body], due_ns, done, partition, sections)
        except Refused:
            self._ground.refusals.count += 1
            raise
        self._soon()

    def pubtrace(self, request: Request, answer: Answer) -> None:
        body = request.body
        if not body:
            raise HttpError(400, "MSG_EMPTY")
        parameters = _parameters(request.query)
        messages = [Traced(traced.trace_id_of(parameters), body)]
        self._publish_traced(request, parameters, messages, answer)

    def mpubtrace(self, request: Request, answer: Answer) -> None:
        parameters = _parameters(request.query)
        messages = traced.messages_of_http(request.body, self._ground.options.max_msg_size)
        self._publish_traced(request, parameters, messages, answer)

    def _publish_traced(
        self, request: Request, parameters: Parameters, messages: list[Traced], answer: Answer
    ) -> None:
        def said(where: Stored | None) -> Response:
            trace_id, length = messages[0].trace_id, messages[0].stored_bytes
            if where is not None:
                return traced.stored_response(trace_id, length, where)
            return traced.repeated_response(trace_id)

        def publish(topic: Topic) -> None:
            partition = partition_of(topic, parameters)
            if not is_stamped(parameters):
                check_place(topic, partition)
                due_ns = due_ns_of(self._ground, parameters)
                traced.publish_http(self._ground, topic, partition, messages, due_ns, answer)
                return
            bodies = [message.body for message in messages]
            sections = [message.sections for message in messages]
            publish_stamped(self._ground, topic, bodies, parameters, answer, said, sections)

        with_topic(self._ground, self._guard, request, parameters, answer, publish)

    def mpub(self, request: Request, answer: Answer) -> None:
        parameters = _parameters(request.query)

        def publish(topic: Topic) -> None:
            self._publish_pack(topic, request.body, parameters, answer)

        with_topic(self._ground, self._guard, request, parameters, answer, publish)

    def _publish_pack(
        self, topic: Topic, body: bytes, parameters: Parameters, answer: Answer
    ) -> None:
        options = self._ground.options
        pack = _pack(parameters.get("binary", "false"))
        due_ns = due_ns_of(self._ground, parameters)
        partition, sections = target_of(topic, parameters)
        count_max = (options.max_body_size - 4) // 5  # as of a V2 MPUB
        count = topic.route().tail.count_pack(pack, body, count_max, options.max_msg_size)
        if count > 0 and is_stamped(parameters):
            publish_stamped(self._ground, topic, pack_bodies(pack, body), parameters, answer)
        elif count > 0:
            try:
                done = answering(self._ground, answer)
                if sections is None:
                    topic.publish_pack(pack, body, count, due_ns, done, partition)
                else:
                    topic.publish(pack_bodies(pack, body), due_ns, done, partition, sections)
            except Refused:
                self._ground.refusals.count += 1
                raise
            self._soon()
        elif count == 0:
            answer(OK)
        elif pack is Pack.LINES:
            raise HttpError(413, "MSG_TOO_BIG")
        else:
            raise HttpError(413, "BAD_BODY" if count == BAD_COUNT else "BAD_MESSAGE")


_remembered = lru_cache(maxsize=512)(parse_query)
_REMEMBERED_BYTES_MAX = 256


def _parameters(query: bytes) -> Parameters:
    """Publishers send the same query again and again. Nobody changes what comes back."""
    return _remembered(query) if len(query) <= _REMEMBERED_BYTES_MAX else parse_query(query)


def _pack(binary: str) -> Pack:
    if binary in FALSE:
        return Pack.LINES
    if binary not in TRUE:
        log.warning("deprecated value %r for binary: use true or false", binary)
    return Pack.FRAMED
