"""What the kernel reports about V2 clients, turned into broker calls and replies.

The kernel serves PUB, MPUB, RDY and FIN by itself as long as they are right; everything else
arrives here as an event, and the connection stands still until it is resumed. For each command the
order of checks is NSQ's: the state first (the table of `wire/states.py`), then parameters from
left to right, then the body, then what the broker says. The first failure is the one that is
reported.

An exception that is no `PenstockError` is a fault of the program, in the middle of a change of the
broker perhaps. The policy is that of the turn (`net/turn.py`): the daemon stops, and what a command
has half done is neither stored nor acknowledged. A change of streams touches nothing but its own
connection, so a fault there costs that one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.errors import AuthFailed, PenstockError
from penstock.kernel import BadPub, Conn, Cut, Event, Held, Locality, Tail, Verb, Window, hex_to_id
from penstock.nsqd import traced
from penstock.nsqd.auth import Grant, applicant
from penstock.nsqd.session import Session
from penstock.wire import frames
from penstock.wire.errors import NOT_IN_FLIGHT, NOT_OWNER, Fault, WireFault, reason_of
from penstock.wire.frames import FrameType
from penstock.wire.identify import Offer, Settings, decode_request, encode_response, negotiate
from penstock.wire.names import is_valid_name, quote
from penstock.wire.numbers import parse_number
from penstock.wire.partition import check_extra, check_partition
from penstock.wire.states import State, Verdict, verdict

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.topic import Topic
    from penstock.clock import Clock
    from penstock.nsqd.auth import Auth
    from penstock.nsqd.options import Options
    from penstock.nsqd.topics import Found, TopicMaker
    from penstock.nsqd.upgrade import Upgrades

log = logging.getLogger("penstock.nsqd")

_VERB_NAMES = {Verb.PUB: b"PUB", Verb.MPUB: b"MPUB", Verb.DPUB: b"DPUB"}
_PUB_FAULTS = {
    Verb.PUB: Fault.PUB_FAILED,
    Verb.MPUB: Fault.MPUB_FAILED,
    Verb.DPUB: Fault.DPUB_FAILED,
}
_SINGLE = (b"PUB", b"DPUB", traced.PUB_TRACE)  # their body is one message
_HELD_REASONS = {Held.NOT_IN_FLIGHT: NOT_IN_FLIGHT, Held.NOT_OWNER: NOT_OWNER}


def bad_pub(verb: Verb, kind: BadPub, topic: bytes, a: int, b: int) -> WireFault:
    """The error for a malformed PUB or MPUB."""
    name = _VERB_NAMES[verb]
    match kind:
        case BadPub.PARAMS:
            return WireFault(Fault.PARAMETERS_MISSING, name)
        case BadPub.TOPIC_NAME:
            return bad_topic(name, topic)
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
            return WireFault(Fault.MPUB_COUNT, a)
        case BadPub.MESSAGE_INVALID:
            return WireFault(Fault.MPUB_MESSAGE_SIZE, a, b)


def cut_off(command: bytes, part: Cut, index: int) -> WireFault:
    """The error for a client that ended its stream within a command."""
    is_message = command in _SINGLE
    match part:
        case Cut.SIZE if is_message:
            return WireFault(Fault.MESSAGE_SIZE_UNREAD, command)
        case Cut.SIZE:
            return WireFault(Fault.BODY_SIZE_UNREAD, command)
        case Cut.BODY if not is_message:
            return WireFault(Fault.BODY_UNREAD, command)
        case Cut.COUNT:
            return WireFault(Fault.MPUB_COUNT_UNREAD)
        case Cut.MESSAGE_SIZE:
            return WireFault(Fault.MPUB_MESSAGE_SIZE_UNREAD, index)
    return WireFault(Fault.MESSAGE_UNREAD, command)


def bad_topic(command: bytes, topic: bytes) -> WireFault:
    if command == b"MPUB":
        return WireFault(Fault.BAD_TOPIC_MPUB, quote(topic))
    return WireFault(Fault.BAD_TOPIC, command, quote(topic))


class Protocol:
    """All V2 sessions of one daemon. `handle` takes every event of the kernel except NEED."""

    def __init__(
        self,
        broker: Broker,
        topics: TopicMaker,
        auth: Auth,
        options: Options,
        offer: Offer,
        upgrades: Upgrades,
        clock: Clock,
        on_fault: Callable[[Exception], None],
    ) -> None:
        self._broker = broker
        self._on_fault = on_fault
        self._upgrades = upgrades
        self._topics = topics
        self._auth_servers = auth
        self._options = options
        self._offer = offer
        self._wall_ns = clock.wall_ns
        self._mono_ns = clock.mono_ns
        self.sessions: dict[int, Session] = {}
        self.accepted_count = 0
        self.refused_count = 0  # publishes
        self._handlers: dict[int, Callable[..., None]] = {
            Event.LINE: self._on_line,
            Event.BODY: self._on_body,
            Event.BODY_SIZE: self._on_body_size,
            Event.BAD_PUB: self._on_bad_pub,
            Event.TOPIC: self._on_topic,
            Event.REFUSED: self._on_refused,
            Event.PUB_FAILED: self._on_pub_failed,
            Event.FIN_FAILED: self._on_fin_failed,
            Event.BAD_MAGIC: self._on_bad_magic,
            Event.CLOSED: self._on_closed,
            Event.CUT: self._on_cut,
        }
        self._commands: dict[bytes, Callable[[Session, list[bytes]], None]] = {
            b"IDENTIFY": self._identify,
            b"AUTH": self._auth,
            b"SUB": self._sub,
            b"RDY": self._rdy,
            b"FIN": self._fin,
            b"REQ": self._req,
            b"TOUCH": self._touch,
            b"CLS": self._cls,
            b"NOP": self._nop,
            b"DPUB": self._dpub,
            traced.PUB_TRACE: self._pub_trace,
            traced.MPUB_TRACE: self._pub_trace,
            b"PUB": self._pub,
            b"MPUB": self._pub,
        }

    def add(self, session: Session) -> None:
        self.sessions[session.conn.serial] = session
        self.accepted_count += 1
        conn = session.conn
        conn.timeout_ns = session.settings.message_timeout_ns
        conn.locality = self._locality(None)
        conn.output_every(0, 0)
        conn.locked = self._options.tls_required != "false"
        if self._auth_servers.required:
            conn.allowed = set()
        log.info("TCP: new client(%s)", session.remote)

    def handle(self, event: tuple[Any, ...]) -> None:
        conn: Conn = event[1]
        self._guard(conn.owner, self._handlers[event[0]], *event[2:])

    def _guard(self, session: Session, act: Callable[..., None], *arguments: Any) -> None:
        try:
            act(session, *arguments)
        except WireFault as error:
            self._fail(session, error)
        except PenstockError as error:
            log.error("client(%s): %s: %s", session.remote, act.__name__, error)
            session.conn.close()
        except Exception as error:
            log.error("client(%s): a fault in %s", session.remote, act.__name__)
            self._on_fault(error)

    def _fail(self, session: Session, error: WireFault) -> None:
        conn = session.conn
        log.info("client(%s) - %s", session.remote, error)
        if error.fault in _PUB_FAULTS.values():
            self.refused_count += 1
        conn.reply(FrameType.ERROR, error.data)
        if error.fault.fatal:
            conn.close_after_flush()
        else:
            conn.resume()

    # --- events ---

    def _on_line(self, session: Session, params: list[bytes]) -> None:
        command = params[0]
        if session.conn.locked and command != b"IDENTIFY":
            raise WireFault(Fault.TLS_REQUIRED, command)
        allowed = verdict(command, session.state)
        if allowed is None:
            raise WireFault(Fault.INVALID_COMMAND, command)
        if allowed is Verdict.REFUSED:
            raise WireFault(Fault.WRONG_STATE, command)
        if allowed is Verdict.ALLOWED:
            self._commands[command](session, params)
        self._resume(session)

    def _on_body(self, session: Session, body: bytes) -> None:
        take = session.awaits
        if take is None:
            raise RuntimeError("a body came that no command asked for")
        session.awaits = None
        take(session, body)
        self._resume(session)

    def _on_body_size(self, session: Session, size: int) -> None:
        command, size_max = session.body_command, session.body_bytes_max
        if command in _SINGLE:
            if size > size_max:
                raise WireFault(Fault.MESSAGE_TOO_BIG, command, size, size_max)
            raise WireFault(Fault.MESSAGE_SIZE_INVALID, command, size)
        if size > size_max:
            raise WireFault(Fault.BODY_TOO_BIG, command, size, size_max)
        raise WireFault(Fault.BODY_SIZE_INVALID, command, size)

    def _on_bad_pub(
        self, session: Session, verb: int, kind: int, topic: bytes, a: int, b: int
    ) -> None:
        raise bad_pub(Verb(verb), BadPub(kind), topic, a, b)

    def _on_cut(self, session: Session, verb: int, part: int, index: int) -> None:
        command = _VERB_NAMES[Verb(verb)] if verb else session.body_command
        raise cut_off(command, Cut(part), index)

    def _on_topic(self, session: Session, verb: int, topic: bytes) -> None:
        """A publish needs its topic, or leave for it; then the kernel reads the command anew."""

        def make() -> None:
            if session.conn.allowed is not None:
                session.conn.allowed.add(topic)
            self._with_topic(session, topic, _PUB_FAULTS[Verb(verb)], lambda topic: None)

        self._with_leave(session, _VERB_NAMES[Verb(verb)], topic, b"", make)
        self._resume(session)

    def _resume(self, session: Session) -> None:
        if session.awaits is None and not session.waits:
            session.conn.resume()

    def _pause(self, session: Session) -> Callable[[Callable[[], None]], None]:
        """No command is read until the returned function is called, with what is to be done."""

        def act_and_resume(session: Session, act: Callable[[], None]) -> None:
            act()
            self._resume(session)

        def go_on(act: Callable[[], None]) -> None:
            session.waits = False
            if not session.gone:
                self._guard(session, act_and_resume, act)

        session.waits = True
        return go_on

    def _with_topic(
        self, session: Session, name: bytes, fault: Fault, act: Callable[[Topic], None]
    ) -> None:
        """Call `act` with the topic, now or once it has been made."""

        def act_or_fail(found: Found) -> None:
            try:
                if isinstance(found, PenstockError):
                    raise found
                act(found)
            except PenstockError as error:
                raise WireFault(fault, reason_of(error)) from error

        try:
            topic = self._topics.at_once(name.decode("ascii"))
        except PenstockError as error:
            raise WireFault(fault, reason_of(error)) from error
        if topic is not None:
            act_or_fail(topic)
            return
        go_on = self._pause(session)
        self._topics.topic(name.decode("ascii"), lambda found: go_on(lambda: act_or_fail(found)))

    def _on_pub_failed(self, session: Session, verb: int, tail: Tail) -> None:
        known = tail.topic.decode("ascii") in self._broker.topics
        reason = (tail.owner.failure or "the write was not done") if known else "exiting"
        raise WireFault(_PUB_FAULTS[Verb(verb)], reason.encode("utf-8", "replace"))

    def _on_refused(self, session: Session, verb: int, tail: Tail, count: int) -> None:
        reason = tail.owner.topic.refusal_of(count)
        if reason:
            raise WireFault(_PUB_FAULTS[Verb(verb)], reason.encode("utf-8", "replace"))
        session.conn.resume()  # by now there is room

    def _on_fin_failed(self, session: Session, message_id: bytes, held: int) -> None:
        # Not a halt: the connection has gone on reading, so it is not resumed either.
        fault = Fault.FIN_FAILED.data(message_id, _HELD_REASONS[Held(held)])
        session.conn.reply(FrameType.ERROR, fault)

    def _on_bad_magic(self, session: Session, magic: bytes) -> None:
        log.info("client(%s) bad protocol magic %s", session.remote, quote(magic).decode())
        raise WireFault(Fault.BAD_PROTOCOL)

    def _on_closed(self, session: Session, reason: str) -> None:
        session.gone = True
        session.stop_heartbeat()
        session.drop_grant_timer()
        self.sessions.pop(session.conn.serial, None)
        if session.channel is not None:
            session.channel.leave(session.conn)
            session.channel = None
        log.info("client(%s): closed: %s", session.remote, reason)

    # --- commands ---

    def _read_body(
        self,
        session: Session,
        command: bytes,
        size_max: int,
        take: Callable[[Session, bytes], None],
    ) -> None:
        session.awaits = take
        session.body_command = command
        session.body_bytes_max = size_max
        session.conn.read_body(size_max)

    def _identify(self, session: Session, params: list[bytes]) -> None:
        self._read_body(session, b"IDENTIFY", self._options.max_body_size, self._take_identify)

    def _take_identify(self, session: Session, body: bytes) -> None:
        request = decode_request(body)
        settings = negotiate(request, session.settings, self._offer_to(session))
        session.settings = settings
        conn = session.conn
        conn.sample_rate = settings.sample_rate
        conn.timeout_ns = settings.message_timeout_ns
        conn.locality = self._locality(settings)
        if settings.output_timeout_ns > self._options.output_buffer_timeout_ns:
            conn.output_every(settings.output_bytes, settings.output_timeout_ns)
        else:
            conn.output_every(0, 0)
        session.start_heartbeat(conn.last_command_ns)
        if request.feature_negotiation:
            conn.reply(FrameType.RESPONSE, encode_response(settings, self._offer))
        else:
            conn.reply(FrameType.RESPONSE, frames.OK)
        if settings.tls or settings.snappy or settings.deflate:
            self._upgrade(session)

    def _offer_to(self, session: Session) -> Offer:
        """A connection changes its streams once: what it has, it keeps."""
        if session.link is None:
            return self._offer
        return replace(self._offer, tls=False, snappy=False, deflate=False)

    def _upgrade(self, session: Session) -> None:
        def check(failure: str) -> None:
            if failure:
                raise WireFault(Fault.IDENTIFY_FAILED, failure.encode())

        def done(failure: str) -> None:
            go_on(lambda: check(failure))
            self._upgrades.soon()

        go_on = self._pause(session)
        try:
            self._upgrades.start(session, done)
        except Exception:
            log.exception("client(%s): a fault in a change of streams", session.remote)
            session.conn.close()

    def _locality(self, settings: Settings | None) -> Locality:
        """How near a client is; None has not told. As in NSQ two empty names are the same place."""
        options = self._options
        if not options.topology_aware:
            return Locality.UNKNOWN
        if settings is not None and settings.topology_zone == options.topology_zone:
            return Locality.ZONE
        if settings is not None and settings.topology_region == options.topology_region:
            return Locality.REGION
        return Locality.GLOBAL

    def _auth(self, session: Session, params: list[bytes]) -> None:
        if len(params) != 1:
            raise WireFault(Fault.AUTH_PARAMETERS)
        self._read_body(session, b"AUTH", self._options.max_body_size, self._take_auth)

    def _take_auth(self, session: Session, body: bytes) -> None:
        if session.has_authorizations:
            raise WireFault(Fault.AUTH_TWICE)
        if not self._auth_servers.required:
            raise WireFault(Fault.AUTH_DISABLED)
        if len(body) > limits.AUTH_SECRET_BYTES_MAX:  # it is kept as long as the connection
            raise WireFault(Fault.BODY_TOO_BIG, b"AUTH", len(body), limits.AUTH_SECRET_BYTES_MAX)
        session.secret = body

        def answer(grant: Grant) -> None:
            if not grant.entries:
                raise WireFault(Fault.AUTH_NONE_FOUND)
            session.conn.reply(FrameType.RESPONSE, grant.encode())

        self._ask_auth(session, answer)

    def _ask_auth(self, session: Session, act: Callable[[Grant], None]) -> None:
        def take(found: Grant | AuthFailed) -> None:
            if isinstance(found, AuthFailed):
                # Only the log says why: what is known of the servers is not for strangers.
                log.warning("PROTOCOL(V2): [%s] AUTH failed %s", session.remote, found)
                raise WireFault(Fault.AUTH_FAILED)
            session.set_grant(found)
            act(found)

        go_on = self._pause(session)
        self._auth_servers.ask(applicant(session), lambda found: go_on(lambda: take(found)))

    def _with_leave(
        self,
        session: Session,
        command: bytes,
        topic: bytes,
        channel: bytes,
        act: Callable[[], None],
    ) -> None:
        """Call `act` if the client may do this, now or once an auth server was asked again. Without
        a channel it wants to publish."""

        def check(grant: Grant) -> None:
            if not grant.allows(topic.decode("ascii"), channel.decode("ascii")):
                raise WireFault(Fault.AUTH_DENIED, command, quote(topic), quote(channel))
            act()

        if not self._auth_servers.required:
            act()
        elif session.grant is None or not session.grant.entries:
            raise WireFault(Fault.AUTH_FIRST, command)
        elif session.grant_has_ended:
            self._ask_auth(session, check)
        else:
            check(session.grant)

    def _sub(self, session: Session, params: list[bytes]) -> None:
        if not session.settings.heartbeat_ns:
            raise WireFault(Fault.SUB_HEARTBEATS_OFF)
        if len(params) < 3:
            raise WireFault(Fault.PARAMETERS_MISSING, b"SUB")
        topic_name, channel_name = params[1], params[2]
        if not is_valid_name(topic_name):
            raise bad_topic(b"SUB", topic_name)
        if not is_valid_name(channel_name):
            raise WireFault(Fault.BAD_CHANNEL, b"SUB", quote(channel_name))
        check_extra(b"SUB", params[3] if len(params) > 3 else b"")

        def subscribe(topic: Topic) -> None:
            channel = topic.channel(channel_name.decode("ascii"))
            channel.subscribe(session.conn, self._options.max_channel_consumers)
            session.channel = channel
            session.state = State.SUBSCRIBED
            session.conn.reply(FrameType.RESPONSE, frames.OK)

        def go_on() -> None:
            self._with_topic(session, topic_name, Fault.SUB_FAILED, subscribe)

        self._with_leave(session, b"SUB", topic_name, channel_name, go_on)

    def _rdy(self, session: Session, params: list[bytes]) -> None:
        text = params[1] if len(params) > 1 else b"1"
        count = parse_number(text)
        if count is None:
            raise WireFault(Fault.RDY_UNREADABLE, text)
        if count > self._options.max_rdy_count:
            raise WireFault(Fault.RDY_RANGE, count, self._options.max_rdy_count)
        session.conn.rdy = count

    def _message_id(self, params: list[bytes], count_min: int) -> bytes:
        if len(params) < count_min:
            raise WireFault(Fault.PARAMS_MISSING, params[0])
        if len(params[1]) != frames.ID_BYTES:
            raise WireFault(Fault.BAD_ID)
        return params[1]

    def _settle(
        self, session: Session, fault: Fault, message_id: bytes, act: Callable[[Window, int], int]
    ) -> None:
        """Do something to a message in flight; tell the client when it is not its own."""
        number = hex_to_id(message_id)
        window = session.conn.find(number) if number >= 0 else None
        held = Held.NOT_IN_FLIGHT if window is None else Held(act(window, number))
        if held is not Held.DONE:
            raise WireFault(fault, message_id, _HELD_REASONS[held])

    def _fin(self, session: Session, params: list[bytes]) -> None:
        message_id, serial = self._message_id(params, 2), session.conn.serial
        self._settle(
            session,
            Fault.FIN_FAILED,
            message_id,
            lambda window, number: window.finish(serial, number),
        )

    def _req(self, session: Session, params: list[bytes]) -> None:
        message_id, serial = self._message_id(params, 3), session.conn.serial
        timeout_ms = parse_number(params[2])
        if timeout_ms is None:
            raise WireFault(Fault.TIMEOUT_UNREADABLE, b"REQ", params[2])
        delay_ns = min(timeout_ms * limits.MS, self._options.max_req_timeout_ns)
        self._settle(
            session,
            Fault.REQ_FAILED,
            message_id,
            lambda window, number: window.requeue(serial, number, delay_ns, self._wall_ns()),
        )

    def _touch(self, session: Session, params: list[bytes]) -> None:
        message_id, serial = self._message_id(params, 2), session.conn.serial
        self._settle(
            session,
            Fault.TOUCH_FAILED,
            message_id,
            lambda window, number: window.touch(serial, number, self._mono_ns()),
        )

    def _cls(self, session: Session, params: list[bytes]) -> None:
        session.conn.rdy = 0
        session.conn.closing = True
        session.state = State.CLOSING
        session.conn.reply(FrameType.RESPONSE, frames.CLOSE_WAIT)

    def _nop(self, session: Session, params: list[bytes]) -> None:
        pass

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
                topic.append(session.conn, Verb.DPUB, body, due_ns)

            def go_on() -> None:
                self._with_topic(session, topic_name, Fault.DPUB_FAILED, append)

            self._with_leave(session, b"DPUB", topic_name, b"", go_on)

        self._read_body(session, b"DPUB", self._options.max_msg_size, take)

    def _pub_trace(self, session: Session, params: list[bytes]) -> None:
        command = params[0]
        if len(params) < 2:
            raise WireFault(Fault.PARAMETERS_MISSING, command)
        topic_name = params[1]
        if not is_valid_name(topic_name):
            raise bad_topic(command, topic_name)
        check_partition(command, params[2] if len(params) > 2 else b"")
        options = self._options

        def take(session: Session, body: bytes) -> None:
            messages = traced.messages_of(command, body, options.max_msg_size)

            def publish(topic: Topic) -> None:
                traced.publish(session, topic, command, messages, self._pause)

            def go_on() -> None:
                self._with_topic(session, topic_name, traced.FAULTS[command], publish)

            self._with_leave(session, command, topic_name, b"", go_on)

        size_max = traced.body_bytes_max(command, options.max_msg_size, options.max_body_size)
        self._read_body(session, command, size_max, take)
