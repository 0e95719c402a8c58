"""The publishing side of V2: DPUB, PUB_TRACE and MPUB_TRACE, and what the kernel leaves to Python
of PUB, MPUB, PUB_EXT and MPUB_EXT, which it takes by itself: a topic that is not there yet, a
PUB_EXT with a trace id, and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock import limits
from penstock.errors import TooMuchWaiting
from penstock.kernel import BadPub, Event, Tail, Verb
from penstock.nsqd import headed, traced
from penstock.nsqd.pubfaults import PUB_FAULTS, VERB_NAMES, bad_pub, bad_topic
from penstock.nsqd.session import Session
from penstock.nsqd.waits import Waits
from penstock.wire.errors import Fault, WireFault, failed, failed_because
from penstock.wire.names import is_valid_name
from penstock.wire.numbers import parse_number
from penstock.wire.partition import ANY, bad_partition, read_partition

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.topic import Topic
    from penstock.clock import Clock
    from penstock.nsqd.options import Options


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
            traced.PUB_TRACE: self._pub_trace,
            traced.MPUB_TRACE: self._pub_trace,
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
        """A publish needs its topic, or leave for it; then the kernel reads the command anew."""

        def check_taken(topic: Topic) -> None:
            topic.check_taken()  # else the kernel knows nothing of it, and would ask again

        def make() -> None:
            if session.conn.allowed is not None:
                session.conn.allowed.add(topic)
            self._waits.with_topic(session, topic, PUB_FAULTS[Verb(verb)], check_taken)

        self._waits.with_leave(session, VERB_NAMES[Verb(verb)], topic, b"", make)
        self._waits.resume(session)

    def _on_failed(self, session: Session, verb: int, tail: Tail, unknown: bool) -> None:
        known = tail.topic.decode("ascii") in self._broker.topics
        reason = (tail.owner.failure or "the write was not done") if known else "exiting"
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
        """A PUB_EXT with a trace id: its answer says where the message lies."""
        headed.publish(
            session, tail.owner, headed.Headed(headers, key, trace_id, body), self._waits
        )

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
                if topic.placed:
                    raise WireFault(Fault.PARTITION_MISSING, b"DPUB")
                topic.append(session.conn, Verb.DPUB, body, due_ns)

            def go_on() -> None:
                self._waits.with_topic(session, topic_name, Fault.DPUB_FAILED, append)

            self._waits.with_leave(session, b"DPUB", topic_name, b"", go_on)

        self._waits.read_body(session, b"DPUB", self._options.max_msg_size, take)

    def _pub_trace(self, session: Session, params: list[bytes]) -> None:
        command = params[0]
        if len(params) < 2:
            raise WireFault(Fault.PARAMETERS_MISSING, command)
        topic_name = params[1]
        if not is_valid_name(topic_name):
            raise bad_topic(command, topic_name)
        word = params[2] if len(params) > 2 else b""
        partition = read_partition(command, word)
        options = self._options

        def take(session: Session, body: bytes) -> None:
            messages = traced.messages_of(command, body, options.max_msg_size)

            def publish(topic: Topic) -> None:
                if partition != ANY and not topic.takes(partition):
                    raise bad_partition(command, word)
                if partition == ANY and topic.placed:
                    raise WireFault(Fault.PARTITION_MISSING, command)
                traced.publish(session, topic, partition, command, messages, self._waits.pause)

            def go_on() -> None:
                self._waits.with_topic(session, topic_name, traced.FAULTS[command], publish)

            self._waits.with_leave(session, command, topic_name, b"", go_on)

        def read() -> None:
            size_max = traced.body_bytes_max(command, options.max_msg_size, options.max_body_size)
            self._waits.read_body(session, command, size_max, take)

        def check(topic: Topic) -> None:
            if not topic.takes(partition):
                raise bad_partition(command, word)
            read()

        def find() -> None:
            self._waits.with_topic(session, topic_name, traced.FAULTS[command], check)

        if partition > 0:  # before the body: a client may wait for the answer
            self._waits.with_leave(session, command, topic_name, b"", find)
        else:
            read()
