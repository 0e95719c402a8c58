"""The publishing side of V2: DPUB, PUB_TRACE and MPUB_TRACE, and the part of PUB, MPUB, PUB_EXT and
MPUB_EXT that the kernel leaves to Python: a missing topic, a PUB_EXT with a trace id, and errors.

A publish with trace ids is answered when it is stored, and says where the message lies
(`wire/trace_ids.py`). Its connection waits for that, and other connections share the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock import limits
from penstock.broker.partition.appends import Content, Stored, TracedDone, content
from penstock.errors import PenstockError, TooMuchWaiting
from penstock.kernel import BadPub, Cut, Event, Tail, Verb
from penstock.nsqd.session import Session
from penstock.nsqd.waits import Waits, WithTopic
from penstock.wire import trace_ids
from penstock.wire.errors import Fault, WireFault, failed, failed_because
from penstock.wire.frames import FrameType
from penstock.wire.names import (
    ANY,
    bad_partition,
    is_valid_name,
    parse_number,
    quote,
    read_partition,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.topics.topic import Topic
    from penstock.clock import Clock
    from penstock.nsqd.options import Options

VERB_NAMES = {verb: verb.name.encode("ascii") for verb in Verb}
PUB_FAULTS = {
    Verb.PUB: Fault.PUB_FAILED,
    Verb.MPUB: Fault.MPUB_FAILED,
    Verb.DPUB: Fault.DPUB_FAILED,
    Verb.PUB_EXT: Fault.PUB_FAILED,
    Verb.MPUB_EXT: Fault.MPUB_FAILED,
}
SINGLE = (b"PUB", b"DPUB", b"PUB_TRACE", b"PUB_EXT")  # their body is one message
PUB_TRACE, MPUB_TRACE = b"PUB_TRACE", b"MPUB_TRACE"
_TRACE_FAULTS = {PUB_TRACE: Fault.PUB_FAILED, MPUB_TRACE: Fault.MPUB_FAILED}
Start = Callable[[TracedDone], None]


class Publishing:
    def __init__(self, broker: Broker, options: Options, clock: Clock, waits: Waits) -> None:
        self._broker = broker
        self._options = options
        self._wall_ns = clock.wall_ns
        self._waits = waits
        self.handlers: Mapping[int, Callable[..., None]] = {
            Event.BAD_PUB: self._on_bad_pub,
            Event.TOPIC: self._on_topic,
            Event.REFUSED: self._on_refused,
            Event.SPREAD_REFUSED: self._on_spread_refused,
            Event.CROWDED: self._on_crowded,
            Event.TRACED: self._on_traced,
            Event.PUB_FAILED: self._on_failed,
        }
        self.commands: Mapping[bytes, Callable[[Session, list[bytes]], None]] = {
            b"DPUB": self._dpub,
            PUB_TRACE: self._pub_trace,
            MPUB_TRACE: self._pub_trace,
            b"PUB": self._pub,
            b"MPUB": self._pub,
            b"PUB_EXT": self._pub,
            b"MPUB_EXT": self._pub,
        }

    # --- events ---

    def _on_bad_pub(
        self, session: Session, verb: int, kind: int, topic: bytes, a: int, b: int
    ) -> None:
        raise bad_pub(Verb(verb), BadPub(kind), topic, a, b)

    def _on_topic(self, session: Session, verb: int, topic: bytes) -> None:
        """A publish waits for its topic, or for permission; then the kernel reads the command
        anew."""

        def check_taken(topic: Topic) -> None:
            topic.check_taken()  # else the kernel knows nothing of it, and would ask again

        def make() -> None:
            if session.conn.allowed is not None:
                session.conn.allowed.add(topic)
            self._waits.with_topic(session, topic, PUB_FAULTS[Verb(verb)], check_taken)

        self._waits.with_leave(session, VERB_NAMES[Verb(verb)], topic, b"", make)
        self._waits.resume(session)

    def _on_failed(self, session: Session, verb: int, tail: Tail, unknown: bool) -> None:
        if tail.topic.decode("ascii") in self._broker.topics:
            reason = tail.owner.failure or "the write was not done"
        else:
            reason = "exiting" if self._broker.context.exiting else "the topic was deleted"
        if unknown:
            reason = f"{reason}: it is not known whether it was stored"
        raise WireFault(PUB_FAULTS[Verb(verb)], reason.encode("utf-8", "replace"))

    def _on_refused(self, session: Session, verb: int, tail: Tail, count: int) -> None:
        self._on_spread_refused(session, verb, [(tail, count)])

    def _on_spread_refused(
        self, session: Session, verb: int, asked: Sequence[tuple[Tail, int]]
    ) -> None:
        topic = asked[0][0].owner.topic
        reason = topic.refusal_by({tail.partition: count for tail, count in asked})
        if not reason:
            session.conn.resume()  # by now there is room
            return
        error = failed_because(PUB_FAULTS[Verb(verb)], reason)
        if not error.fault.fatal:
            session.conn.pass_over()
        raise error

    def _on_crowded(self, session: Session, verb: int, tail: Tail, length: int) -> None:
        waiting = TooMuchWaiting(tail.waiting_bytes + length, tail.waiting_bytes_max)
        raise failed(PUB_FAULTS[Verb(verb)], waiting)

    def _on_traced(
        self,
        session: Session,
        verb: int,
        tail: Tail,
        headers: bytes,
        key: bytes | None,
        trace_id: int,
        body: bytes,
    ) -> None:
        """A PUB_EXT with a trace id: its answer has the position of the message."""
        leader, message = tail.owner, content(body, trace_id, key, headers)
        topic, partition = leader.topic, leader.number

        def publish(done: TracedDone) -> None:
            topic.publish_located([message], 0, done, partition)

        self._publish(session, topic, [message], Fault.PUB_FAILED, publish)

    # --- commands ---

    def _pub(self, session: Session, params: list[bytes]) -> None:
        """The kernel reads the whole of these; only one without a topic can end up here."""
        raise WireFault(Fault.PARAMETERS_MISSING, params[0])

    def _dpub(self, session: Session, params: list[bytes]) -> None:
        if len(params) < 3:
            raise WireFault(Fault.PARAMETERS_MISSING, b"DPUB")
        if not is_valid_name(params[1]):
            raise bad_topic(b"DPUB", params[1])
        timeout_ms = parse_number(params[2])
        if timeout_ms is None:
            raise WireFault(Fault.TIMEOUT_UNREADABLE, b"DPUB", params[2])
        timeout_ms_max = self._options.max_req_timeout_ns // limits.MS
        if timeout_ms > timeout_ms_max:
            raise WireFault(Fault.DPUB_RANGE, timeout_ms, timeout_ms_max)
        topic_name = params[1]

        def take(session: Session, body: bytes) -> None:
            due_ns = self._wall_ns() + timeout_ms * limits.MS if timeout_ms else 0

            def append(topic: Topic) -> None:
                if topic.needs_partition:
                    raise WireFault(Fault.PARTITION_MISSING, b"DPUB")
                topic.append(session.conn, Verb.DPUB, body, due_ns)

            self._with_topic(session, b"DPUB", topic_name, Fault.DPUB_FAILED, append)

        self._waits.read_body(session, b"DPUB", self._options.max_msg_size, take)

    def _pub_trace(self, session: Session, params: list[bytes]) -> None:
        command = params[0]
        if len(params) < 2:
            raise WireFault(Fault.PARAMETERS_MISSING, command)
        topic_name = params[1]
        if not is_valid_name(topic_name):
            raise bad_topic(command, topic_name)
        fault = _TRACE_FAULTS[command]
        word = params[2] if len(params) > 2 else b""
        partition = read_partition(command, word)
        options = self._options

        def take(session: Session, body: bytes) -> None:
            if command == PUB_TRACE:
                split = [trace_ids.split_one(body)]
            else:
                split = trace_ids.split_many(body, options.max_msg_size)
            messages = [content(body, trace_id) for trace_id, body in split]

            def publish(topic: Topic) -> None:
                check(topic)

                def start(done: TracedDone) -> None:
                    topic.publish_located(messages, 0, done, partition)

                self._publish(session, topic, messages, fault, start)

            self._with_topic(session, command, topic_name, fault, publish)

        def check(topic: Topic) -> None:
            if partition != ANY and not topic.takes(partition):
                raise bad_partition(command, word)
            if partition == ANY and topic.needs_partition:
                raise WireFault(Fault.PARTITION_MISSING, command)

        def read(topic: Topic | None = None) -> None:
            if topic is not None:
                check(topic)
            size_max = options.max_body_size
            if command == PUB_TRACE:
                size_max = options.max_msg_size + trace_ids.TRACE_BYTES
            self._waits.read_body(session, command, size_max, take)

        if partition > 0:  # before the body: a client may wait for the answer
            self._with_topic(session, command, topic_name, fault, read)
        else:
            read()

    def _with_topic(
        self, session: Session, command: bytes, topic: bytes, fault: Fault, act: WithTopic
    ) -> None:
        """Call `act` with the topic, if the client has leave to publish to it."""
        find = partial(self._waits.with_topic, session, topic, fault, act)
        self._waits.with_leave(session, command, topic, b"", find)

    def _publish(
        self, session: Session, topic: Topic, messages: Sequence[Content], fault: Fault,
        publish: Start,
    ) -> None:  # fmt: skip
        """Publish, and answer once it is stored. Raises WireFault when publishes are refused."""
        first, name = messages[0], topic.name.encode()

        def reply(stored: PenstockError | Stored) -> None:
            if isinstance(stored, PenstockError):
                raise failed(fault, stored)
            published = session.conn.published
            published[name] = published.get(name, 0) + len(messages)
            data = trace_ids.encode_reply(
                stored.id, first.trace_id, stored.offset, first.stored_bytes
            )
            session.conn.reply(FrameType.RESPONSE, data)

        go_on = self._waits.pause(session)
        try:
            publish(lambda stored: go_on(lambda: reply(stored)))
        except PenstockError as error:
            session.waits = False
            raise failed(fault, error) from error


# --- errors of malformed publishes and cut-off bodies, in NSQ's words ---


def bad_pub(verb: Verb, kind: BadPub, topic: bytes, a: int, b: int) -> WireFault:
    name = VERB_NAMES[verb]
    match kind:
        case BadPub.PARAMS:
            return WireFault(Fault.PARAMETERS_MISSING, name)
        case BadPub.TOPIC_NAME:
            return bad_topic(name, topic)
        case BadPub.PARTITION if not topic:
            return WireFault(Fault.PARTITION_MISSING, name)
        case BadPub.PARTITION:
            return WireFault(Fault.BAD_PARTITION, name, quote(topic))
        case BadPub.SIZE_INVALID:
            return WireFault(Fault.MESSAGE_SIZE_INVALID, name, a)
        case BadPub.SIZE_TOO_BIG | BadPub.MESSAGE_TOO_BIG:
            return WireFault(Fault.MESSAGE_TOO_BIG, name, a, b)
        case BadPub.BODY_INVALID:
            return WireFault(Fault.BODY_SIZE_INVALID, name, a)
        case BadPub.BODY_TOO_BIG:
            return WireFault(Fault.BODY_TOO_BIG, name, a, b)
        case BadPub.COUNT_INVALID:
            return WireFault(Fault.MPUB_COUNT, name, a)
        case BadPub.MESSAGE_INVALID:
            return WireFault(Fault.MPUB_MESSAGE_SIZE, name, a, b)
        case BadPub.HEADER_REFUSED:
            return WireFault(Fault.EXT_NOT_SUPPORT, name, quote(topic))
        case BadPub.HEADER_SIZE if verb == Verb.PUB_EXT:
            return WireFault(Fault.JSON_HEADER_SIZE, name, b)
        case BadPub.HEADER_SIZE:
            return WireFault(Fault.MPUB_JSON_HEADER_SIZE, name, a, b)
        case BadPub.HEADER_INVALID if verb == Verb.PUB_EXT:
            return WireFault(Fault.JSON_HEADER, name, b)
        case BadPub.HEADER_INVALID:
            return WireFault(Fault.MPUB_JSON_HEADER, name, a, b)


def cut_off(command: bytes, part: Cut, index: int) -> WireFault:
    """The error for a client that ended its stream within a command."""
    is_message = command in SINGLE
    match part:
        case Cut.SIZE if is_message:
            return WireFault(Fault.MESSAGE_SIZE_UNREAD, command)
        case Cut.SIZE:
            return WireFault(Fault.BODY_SIZE_UNREAD, command)
        case Cut.BODY if not is_message:
            return WireFault(Fault.BODY_UNREAD, command)
        case Cut.COUNT:
            return WireFault(Fault.MPUB_COUNT_UNREAD, command)
        case Cut.MESSAGE_SIZE:
            return WireFault(Fault.MPUB_MESSAGE_SIZE_UNREAD, command, index)
    return WireFault(Fault.MESSAGE_UNREAD, command)


def bad_topic(command: bytes, topic: bytes) -> WireFault:
    if command == b"MPUB":
        return WireFault(Fault.BAD_TOPIC_MPUB, quote(topic))
    return WireFault(Fault.BAD_TOPIC, command, quote(topic))
