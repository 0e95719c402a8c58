"""Publishing over HTTP: `/pub`, `/mpub`, and with trace ids `/pubtrace`, `/mpubtrace`.

A batch of messages (`/mpub`) is taken whole or not at all. It goes from the request's body into the
topic's open batch inside the kernel: no message becomes a Python object on the way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache

from penstock import limits
from penstock.broker.rows import PublishDone
from penstock.broker.topic import Topic
from penstock.broker.traced import Stored, Traced
from penstock.errors import PenstockError, ProducerFenced, Refused, SequenceGap
from penstock.kernel import BAD_COUNT, Pack
from penstock.net.api import OK, POST, Answer, Guard, HttpError, Parameters, Route, error_response
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query
from penstock.nsqd import traced
from penstock.nsqd.ground import FALSE, TRUE, Ground, unavailable, with_topic
from penstock.nsqd.stamps import (
    REPEATED,
    conflict,
    is_stamped,
    marked_repeated,
    not_taken,
    pack_bodies,
    stamp_of,
)
from penstock.nsqd.targets import ANYWHERE, check_place, partition_of, target_of

log = logging.getLogger("penstock.nsqd")

_DIGITS_MAX = 19  # of a delay; more would not fit a 64-bit number


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
        body = request.body
        if not body:
            raise HttpError(400, "MSG_EMPTY")
        parameters = _parameters(request.query)
        topic = self._topics.get(parameters.get("topic", ""))
        if topic is not None:  # most of the time, and then there is nothing to wait for
            self._publish_one(topic, body, parameters, answer)
            return
        with_topic(
            self._ground,
            self._guard,
            request,
            parameters,
            answer,
            lambda topic: self._publish_one(topic, body, parameters, answer),
        )

    def _publish_one(
        self, topic: Topic, body: bytes, parameters: Parameters, answer: Answer
    ) -> None:
        due_ns = self._due_ns(parameters) if "defer" in parameters else 0
        target = ANYWHERE
        if len(parameters) > 1 or topic.placed:
            target = target_of(topic, parameters)
            if is_stamped(parameters):
                self._publish_stamped(topic, [body], due_ns, parameters, answer)
                return
        try:
            topic.publish([body], due_ns, self._answering(answer), *target)
        except Refused:
            self._ground.refusals.count += 1
            raise
        self._soon()

    def _publish_stamped(
        self,
        topic: Topic,
        bodies: list[bytes],
        due_ns: int,
        parameters: Parameters,
        answer: Answer,
        said: Callable[[Stored | None], Response] = lambda where: OK if where else REPEATED,
        trace_ids: Sequence[int] = (),
    ) -> None:
        stamp = stamp_of(parameters)

        def done(error: PenstockError | None, where: Stored | None) -> None:
            if error is None:
                answer(said(where))
            else:
                self._ground.refusals.count += 1
                answer(error_response(unavailable(error)))

        try:
            topic.publish_stamped(stamp, bodies, due_ns, done, trace_ids)
        except (SequenceGap, ProducerFenced) as error:
            self._ground.refusals.count += 1
            answer(conflict(error))
        except Refused as error:
            self._ground.refusals.count += 1
            answer(not_taken(unavailable(error)))
        self._soon()

    def _answering(self, answer: Answer) -> PublishDone:
        def done(error: PenstockError | None) -> None:
            if error is None:
                answer(OK)
            else:
                self._ground.refusals.count += 1
                answer(error_response(unavailable(error)))

        return done

    def _due_ns(self, parameters: Parameters) -> int:
        """When a message is due that asks for a delay of `defer` milliseconds; 0: at once."""
        text = parameters["defer"]
        digits = text[1:] if text[:1] in ("+", "-") else text
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
            raise HttpError(400, "INVALID_DEFER")
        delay_ns = int(text) * limits.MS
        if not 0 <= delay_ns <= self._ground.options.max_req_timeout_ns:
            raise HttpError(400, "INVALID_DEFER")
        return self._ground.clock.wall_ns() + delay_ns if delay_ns else 0

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
        due_ns = self._due_ns(parameters) if "defer" in parameters else 0

        def said(where: Stored | None) -> Response:
            if where is not None:
                return traced.stored_response(messages[0], where)
            return marked_repeated(traced.repeated_response(messages[0]))

        def publish(topic: Topic) -> None:
            partition = partition_of(topic, parameters)
            if not is_stamped(parameters):
                check_place(topic, partition)
                traced.publish_http(self._ground, topic, partition, messages, due_ns, answer)
                return
            bodies = [message.body for message in messages]
            trace_ids = [message.trace_id for message in messages]
            self._publish_stamped(topic, bodies, due_ns, parameters, answer, said, trace_ids)

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
        due_ns = self._due_ns(parameters) if "defer" in parameters else 0
        partition, sections = target_of(topic, parameters)
        count_max = (options.max_body_size - 4) // 5  # as of a V2 MPUB
        count = topic.route().tail.count_pack(pack, body, count_max, options.max_msg_size)
        if count > 0 and is_stamped(parameters):
            bodies = pack_bodies(pack, body)
            self._publish_stamped(topic, bodies, due_ns, parameters, answer)
        elif count > 0:
            try:
                done = self._answering(answer)
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
