"""Publishing over HTTP: `/pub`, `/mpub`, with trace ids `/pubtrace`, `/mpubtrace`, and with headers
`/pub_ext`.

A batch of messages (`/mpub`) is taken whole or not at all. It goes from the request's body into the
topic's open batch inside the kernel: no message becomes a Python object on the way. The body of
`/mpubtrace` is that of MPUB_TRACE.

The rules of `/pub_ext` are those of PUB_EXT: a flat object of strings, whose member `key` chooses
the partition unless one is named, and whose `##trace_id` has the answer say where the message lies.
A topic that is not extended takes these two members, and no others. A producer that numbers its
messages has a partition of its own, so its headers name no key.
"""

import logging
import struct
from collections.abc import Callable, Sequence
from functools import partial

from penstock.broker.partition.appends import Content, Sections, Stored, content
from penstock.broker.topics.publishing import ANY
from penstock.broker.topics.topic import Topic
from penstock.errors import PenstockError, ProducerFenced, Refused, SequenceGap
from penstock.kernel import BAD_COUNT, Headers, Pack
from penstock.net.api import (
    OK,
    Answer,
    Guard,
    HttpError,
    Parameters,
    because,
    error_response,
    json_response,
)
from penstock.net.exchange import Request, Response
from penstock.nsqd.http import targets
from penstock.nsqd.http.arguments import FALSE, TRUE
from penstock.nsqd.http.deps import Call, Deps, parameters_of, unavailable
from penstock.wire.errors import Fault, WireFault
from penstock.wire.trace_ids import split_many

log = logging.getLogger("penstock.nsqd")

REPEATED = "X-Penstock-Repeated"  # header of an answer: the message was stored before
_read_size = struct.Struct(">I").unpack_from

Publish = Callable[[Topic, Request, Parameters, Answer], None]
Reply = Callable[[Stored | None], Response]  # None: it was stored before


class HttpPublishing:
    def __init__(self, deps: Deps, guard: Guard) -> None:
        self._deps = deps
        self._guard = guard
        self._topics = deps.broker.topics
        self._soon = deps.soon

    def pub(self, request: Request, answer: Answer) -> None:
        if not request.body:
            raise HttpError(400, "MSG_EMPTY")
        self._find_topic(self._publish_one, request, answer)

    def mpub(self, request: Request, answer: Answer) -> None:
        self._find_topic(self._publish_pack, request, answer)

    def _find_topic(self, publish: Publish, request: Request, answer: Answer) -> None:
        parameters = parameters_of(request.query)
        topic = self._topics.get(parameters.get("topic", ""))
        if topic is not None:  # most of the time, and then there is nothing to wait for
            publish(topic, request, parameters, answer)
            return
        call = Call(self._deps, self._guard, request, answer)
        call.with_topic(lambda topic: publish(topic, request, parameters, answer))

    def _publish_one(
        self, topic: Topic, request: Request, parameters: Parameters, answer: Answer
    ) -> None:
        due_ns = targets.due_ns_of(self._deps, parameters) if "defer" in parameters else 0
        partition, sections = targets.ANYWHERE
        if len(parameters) > 1 or topic.needs_partition or topic.extended:
            partition, sections = targets.target_of(topic, parameters)
            if topic.extended:
                sections = targets.with_context(request, sections)
            if targets.is_stamped(parameters):
                given = () if sections is None else (sections,)
                self._publish_stamped(topic, [request.body], parameters, answer, sections=given)
                return
        done = self._answering(answer)
        self._take(topic.publish, [request.body], due_ns, done, partition, sections)

    def _publish_pack(
        self, topic: Topic, request: Request, parameters: Parameters, answer: Answer
    ) -> None:
        body, options = request.body, self._deps.options
        pack = _pack(parameters.get("binary", "false"))
        due_ns = targets.due_ns_of(self._deps, parameters)
        partition, sections = targets.target_of(topic, parameters)
        count_max = (options.max_body_size - 4) // 5  # as of a V2 MPUB
        count = topic.route().tail.count_pack(pack, body, count_max, options.max_msg_size)
        if count > 0 and targets.is_stamped(parameters):
            self._publish_stamped(topic, pack_bodies(pack, body), parameters, answer)
        elif count > 0:
            done = self._answering(answer)
            if sections is None:
                self._take(topic.publish_pack, pack, body, count, due_ns, done, partition)
            else:
                bodies = pack_bodies(pack, body)
                self._take(topic.publish, bodies, due_ns, done, partition, sections)
        elif count == 0:
            answer(OK)
        elif pack is not Pack.LINES and count == BAD_COUNT:
            raise HttpError(413, "BAD_BODY")
        else:
            code = "MSG_TOO_BIG" if pack is Pack.LINES else "BAD_MESSAGE"
            raise because(413, code, f"a message has 1 to {options.max_msg_size} bytes")

    # --- with trace ids and headers ---

    def pubtrace(self, call: Call) -> None:
        if not call.request.body:
            raise HttpError(400, "MSG_EMPTY")
        message = content(call.request.body, targets.trace_id_of(call.parameters))
        self._publish_traced(call, [message])

    def mpubtrace(self, call: Call) -> None:
        _ = call.parameters  # first: a query that is none is refused before the body
        try:
            messages = split_many(call.request.body, self._deps.options.max_msg_size)
        except WireFault as error:
            too_big = error.fault is Fault.MESSAGE_TOO_BIG
            code = (413, "MSG_TOO_BIG") if too_big else (400, "BAD_BODY")
            raise HttpError(*code) from error
        self._publish_traced(call, [content(body, trace_id) for trace_id, body in messages])

    def _publish_traced(self, call: Call, messages: list[Content]) -> None:
        reply = partial(_stored_response, messages[0])
        call.with_topic(lambda topic: self._publish_located(topic, messages, call, reply))

    def pub_ext(self, call: Call) -> None:
        if not call.request.body:
            raise HttpError(400, "MSG_EMPTY")
        headers, found = targets.headers_of(call.request, call.parameters)

        def publish(topic: Topic) -> None:
            message = _headed(topic, call.request, headers, found)
            reply = partial(_stored_response, message) if found.trace_id else just_ok
            self._publish_located(topic, [message], call, reply, found.key)

        call.with_topic(publish)

    def _publish_located(
        self, topic: Topic, messages: Sequence[Content], call: Call, reply: Reply,
        key: bytes | None = None,
    ) -> None:  # fmt: skip
        parameters = call.parameters
        partition = targets.partition_of(topic, parameters)
        if targets.is_stamped(parameters):
            if key is not None:
                raise targets.own_partition(key.decode("utf-8"))
            bodies, sections = [one.body for one in messages], [one.sections for one in messages]
            self._publish_stamped(topic, bodies, parameters, call.answer, reply, sections)
            return
        if partition == ANY and key is not None:
            partition = topic.partition_of_key(key)
        targets.check_partition(topic, partition)
        due_ns = targets.due_ns_of(self._deps, parameters)
        done = self._answering(call.answer, reply)
        self._take(topic.publish_located, messages, due_ns, done, partition)

    # --- common parts ---

    def _take(self, publish: Callable[..., None], *arguments: object) -> None:
        try:
            publish(*arguments)
        except Refused:
            self._deps.protocol.refused_count += 1
            raise
        self._soon()

    def _answering(
        self, answer: Answer, reply: Reply | None = None
    ) -> Callable[[PenstockError | Stored | None], None]:
        """The end of a publish: an error, or the position of the message."""

        def done(outcome: PenstockError | Stored | None) -> None:
            if isinstance(outcome, PenstockError):
                self._deps.protocol.refused_count += 1
                answer(error_response(unavailable(outcome)))
            else:
                answer(OK if reply is None else reply(outcome))

        return done

    def _publish_stamped(
        self,
        topic: Topic,
        bodies: list[bytes],
        parameters: Parameters,
        answer: Answer,
        reply: Reply | None = None,
        sections: Sequence[Sections] = (),
    ) -> None:
        stamp, due_ns = targets.stamp_of(parameters), targets.due_ns_of(self._deps, parameters)
        finish = self._answering(answer, reply or just_ok)

        def done(error: PenstockError | None, where: Stored | None) -> None:
            finish(where if error is None else error)

        try:
            self._take(topic.publish_stamped, stamp, bodies, due_ns, done, sections)
        except Refused as error:
            raise _not_taken(error) from error


def _pack(binary: str) -> Pack:
    if binary in FALSE:
        return Pack.LINES
    if binary not in TRUE:
        log.warning("deprecated value %r for binary: use true or false", binary)
    return Pack.FRAMED


def pack_bodies(pack: Pack, body: bytes) -> list[bytes]:
    """The messages of a pack that was found intact (`Tail.count_pack`)."""
    if pack is Pack.LINES:
        return [line for line in body.split(b"\n") if line]
    bodies = []
    position = 4
    for _ in range(_read_size(body)[0]):
        start = position + 4
        position = start + _read_size(body, position)[0]
        bodies.append(body[start:position])
    return bodies


def _headed(topic: Topic, request: Request, headers: bytes, found: Headers) -> Content:
    if not topic.extended:
        if found.has_others:
            rule = "it takes no headers but key and ##trace_id"
            raise HttpError(400, f"E_EXT_NOT_SUPPORT topic {topic.name} is not extended: {rule}")
        return content(request.body, found.trace_id or 0, found.key)
    headers, context_id = targets.joined(request, headers) or (headers, found.context_id)
    trace_id = context_id if found.trace_id is None else found.trace_id
    return content(request.body, trace_id, found.key, headers)


# --- answers ---


def just_ok(where: Stored | None) -> Response:
    return OK if where else _repeated(OK)


def _repeated(response: Response) -> Response:
    return response._replace(headers=(*response.headers, (REPEATED, "true")))


def _stored_response(message: Content, where: Stored | None) -> Response:
    """The position of an earlier publish is not searched."""
    trace_id = str(message.trace_id)
    if where is None:
        return _repeated(json_response({"status": "OK", "trace_id": trace_id}))
    return json_response(
        {
            "status": "OK",
            "id": where.id,
            "trace_id": trace_id,
            "queue_offset": where.offset,
            "rawsize": message.stored_bytes,
        }
    )


def _not_taken(error: Refused) -> HttpError:
    """With the expected values. A refusal came before anything was written: the producer knows that
    it is not stored."""
    if isinstance(error, SequenceGap):
        return HttpError(409, "SEQUENCE_GAP", details={"expected": error.expected})
    if isinstance(error, ProducerFenced):
        return HttpError(409, "PRODUCER_FENCED", details={"epoch": error.epoch})
    refused = unavailable(error)
    return HttpError(refused.status, refused.code, details={"taken": False})
