"""The kernel's reports about V2 clients, turned into broker calls and replies.

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
from penstock.errors import PenstockError
from penstock.kernel import Conn, Cut, Event, Locality, Verb
from penstock.nsqd.auth import Grant
from penstock.nsqd.consuming import Consuming
from penstock.nsqd.pattern import kernel_filter
from penstock.nsqd.publishing import PUB_FAULTS, SINGLE, VERB_NAMES, Publishing, cut_off
from penstock.nsqd.session import Session
from penstock.nsqd.waits import Waits
from penstock.wire import frames
from penstock.wire.errors import Fault, WireFault
from penstock.wire.frames import FrameType
from penstock.wire.identify import Offer, Settings, decode_request, encode_response, negotiate
from penstock.wire.names import quote
from penstock.wire.states import Verdict, verdict

if TYPE_CHECKING:
    from penstock.nsqd.assembly import Node
    from penstock.nsqd.options import Options

log = logging.getLogger("penstock.nsqd")


class Protocol:
    """All V2 sessions of one daemon. `handle` takes every event of the kernel except NEED."""

    def __init__(self, node: Node, options: Options, offer: Offer) -> None:
        clock, self._on_fault = node.ports.clock, node.ports.on_fault
        self._upgrades = node.upgrades
        self._waits = Waits(node.topics, node.auth, self._guard)
        self._auth_servers = node.auth
        self._options = options
        self._offer = offer
        self.sessions: dict[int, Session] = {}
        self.accepted_count = 0
        self.refused_count = 0  # publishes, those over HTTP among them
        self._handlers: dict[int, Callable[..., None]] = {
            Event.LINE: self._on_line,
            Event.BODY: self._on_body,
            Event.BODY_SIZE: self._on_body_size,
            Event.BAD_MAGIC: self._on_bad_magic,
            Event.CLOSED: self._on_closed,
            Event.CUT: self._on_cut,
        }
        self._commands: dict[bytes, Callable[[Session, list[bytes]], None]] = {
            b"IDENTIFY": self._identify,
            b"AUTH": self._auth,
            b"NOP": lambda session, params: None,
        }
        for side in (
            Publishing(node.broker, options, clock, self._waits),
            Consuming(options, clock, self._waits),
        ):
            self._handlers.update(side.handlers)
            self._commands.update(side.commands)

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
            log.error("client(%s): internal error in %s", session.remote, act.__name__)
            self._on_fault(error)

    def _fail(self, session: Session, error: WireFault) -> None:
        conn = session.conn
        log.info("client(%s) - %s", session.remote, error)
        if error.fault in PUB_FAULTS.values():
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
        self._waits.resume(session)

    def _on_body(self, session: Session, body: bytes) -> None:
        take = session.awaits
        if take is None:
            raise RuntimeError("a body arrived that no command asked for")
        session.awaits = None
        take(session, body)
        self._waits.resume(session)

    def _on_body_size(self, session: Session, size: int) -> None:
        command, size_max = session.body_command, session.body_bytes_max
        if command in SINGLE:
            if size > size_max:
                raise WireFault(Fault.MESSAGE_TOO_BIG, command, size, size_max)
            raise WireFault(Fault.MESSAGE_SIZE_INVALID, command, size)
        if size > size_max:
            raise WireFault(Fault.BODY_TOO_BIG, command, size, size_max)
        raise WireFault(Fault.BODY_SIZE_INVALID, command, size)

    def _on_cut(self, session: Session, verb: int, part: int, index: int) -> None:
        command = VERB_NAMES[Verb(verb)] if verb else session.body_command
        raise cut_off(command, Cut(part), index)

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

    def _identify(self, session: Session, params: list[bytes]) -> None:
        self._waits.read_body(
            session, b"IDENTIFY", self._options.max_body_size, self._take_identify
        )

    def _take_identify(self, session: Session, body: bytes) -> None:
        request = decode_request(body)
        settings = negotiate(request, session.settings, self._offer_to(session))
        wanted = settings.ext_filter
        session.filter = kernel_filter(wanted) if wanted is not None else None
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
        """A connection changes its streams once, and keeps the result."""
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

        go_on = self._waits.pause(session)
        try:
            self._upgrades.start(session, done)
        except Exception:
            log.exception(
                "client(%s): internal error while upgrading the connection", session.remote
            )
            session.conn.close()

    def _locality(self, settings: Settings | None) -> Locality:
        """The locality of a client; None if it names none. As in NSQ two empty names are equal."""
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
        self._waits.read_body(session, b"AUTH", self._options.max_body_size, self._take_auth)

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

        self._waits.ask_auth(session, answer)
