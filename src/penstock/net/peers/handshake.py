"""One connection until frames may come over it, without I/O: `greeting` as two state machines.

| dialling | on | to |
|---|---|---|
| WAITS | a welcome that is proven, for what was asked | OPEN: its proof goes out |
| WAITS | a refusal, anything else | PeerFault |

| listening | on | to |
|---|---|---|
| WAITS | a greeting that may be welcomed | WELCOMED: the welcome goes out |
| WAITS | another one | PeerRefused: the refusal goes out, and the connection ends |
| WELCOMED | a proof that holds | OPEN |
| WELCOMED | another one | PeerRefused |

`feed` returns what goes out. Behind what it needed there may be frames already: they are in `rest`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from penstock.broker.ports import Lane
from penstock.errors import PeerFault
from penstock.net.peers.greeting import (
    GREETING_BYTES,
    NO_PROOF,
    PROOF_BYTES,
    VERSION,
    Greeting,
    Kind,
    Reason,
    decode,
    is_proven,
    lane_of,
    proof,
    refusal,
)


class PeerRefused(PeerFault):
    """This node refuses the other one, or is refused by it. `answer`: what still goes out."""

    def __init__(self, reason: Reason, answer: bytes = b"") -> None:
        super().__init__(reason.text)
        self.reason = reason
        self.answer = answer


class Own(NamedTuple):
    """Who this node is, and what it shares with the others."""

    node: int
    incarnation: int
    cluster: int
    secrets: tuple[bytes, ...] = ()  # the first one proves, any of them is a proof


class State(IntEnum):
    WAITS = 1
    WELCOMED = 2
    OPEN = 3


class Dialling:
    def __init__(self, own: Own, node: int, lane: Lane, session: int, nonce: bytes) -> None:
        self.state = State.WAITS
        self.incarnation = 0  # of the other process, once it is open
        self.rest = b""
        self._own = own
        self._greeting = Greeting(
            Kind.GREETING, lane, own.cluster, own.node, node, own.incarnation, session, nonce
        )
        self._buffer = b""

    def begin(self) -> bytes:
        return self._greeting.encode()

    def feed(self, data: bytes) -> bytes:
        """Raises PeerFault."""
        self._buffer += data
        if len(self._buffer) < GREETING_BYTES:
            return b""
        welcome = decode(self._buffer[:GREETING_BYTES])
        self.rest, self._buffer = self._buffer[GREETING_BYTES:], b""
        self._check(welcome)
        self.state, self.incarnation = State.OPEN, welcome.incarnation
        secret = self._own.secrets[0] if self._own.secrets else b""
        return proof(secret, Kind.GREETING, self._greeting, welcome)

    def _check(self, welcome: Greeting) -> None:
        asked = self._greeting
        if welcome.kind is Kind.REFUSAL:
            raise PeerRefused(_reason(welcome))
        if welcome.kind is not Kind.WELCOME or welcome.version != VERSION:
            raise PeerRefused(Reason.VERSION)
        answers = (welcome.cluster, welcome.source, welcome.target)
        if answers != (asked.cluster, asked.target, asked.source):
            raise PeerRefused(Reason.NODE)
        if (welcome.lane, welcome.session) != (asked.lane, asked.session):
            raise PeerFault("a welcome to another greeting")
        if not is_proven(self._own.secrets, welcome.proof, Kind.WELCOME, asked, welcome):
            raise PeerRefused(Reason.PROOF)


class Listening:
    """`may_link`: node, life and session of who greets; why it may not, or None."""

    def __init__(
        self, own: Own, nonce: bytes, may_link: Callable[[int, int, int], Reason | None]
    ) -> None:
        self.state = State.WAITS
        self.rest = b""
        self._own = own
        self._nonce = nonce
        self._may_link = may_link
        self._greeting: Greeting | None = None
        self._welcome: Greeting | None = None
        self._buffer = b""

    @property
    def greeting(self) -> Greeting:
        if self._greeting is None:
            raise RuntimeError("nothing was said on this connection yet")
        return self._greeting

    @property
    def lane(self) -> Lane:
        return lane_of(self.greeting)

    def feed(self, data: bytes) -> bytes:
        """Raises PeerFault."""
        self._buffer += data
        out = b""
        if self.state is State.WAITS and len(self._buffer) >= GREETING_BYTES:
            greeting = decode(self._buffer[:GREETING_BYTES])
            self._buffer = self._buffer[GREETING_BYTES:]
            out = self._welcomed(greeting)
        if self.state is State.WELCOMED and len(self._buffer) >= PROOF_BYTES:
            given, self.rest = self._buffer[:PROOF_BYTES], self._buffer[PROOF_BYTES:]
            self._buffer = b""
            self._open(given)
        return out

    def _welcomed(self, greeting: Greeting) -> bytes:
        reason = self._hindrance(greeting)
        if reason is not None:
            raise PeerRefused(reason, refusal(reason, greeting.session))
        own = self._own
        bare = Greeting(
            Kind.WELCOME, lane_of(greeting), own.cluster, own.node, greeting.source,
            own.incarnation,
            greeting.session, self._nonce, NO_PROOF,
        )  # fmt: skip
        secret = own.secrets[0] if own.secrets else b""
        given = proof(secret, Kind.WELCOME, greeting, bare)
        self._greeting, self._welcome = greeting, bare
        self.state = State.WELCOMED
        return bare._replace(proof=given).encode()

    def _hindrance(self, greeting: Greeting) -> Reason | None:
        if greeting.kind is not Kind.GREETING or greeting.version != VERSION:
            return Reason.VERSION
        if greeting.cluster != self._own.cluster:
            return Reason.CLUSTER
        if greeting.target != self._own.node:
            return Reason.NODE
        return self._may_link(greeting.source, greeting.incarnation, greeting.session)

    def _open(self, given: bytes) -> None:
        greeting, welcome = self._greeting, self._welcome
        if greeting is None or welcome is None:
            raise RuntimeError("a proof before a greeting")
        if not is_proven(self._own.secrets, given, Kind.GREETING, greeting, welcome):
            raise PeerRefused(Reason.PROOF, refusal(Reason.PROOF, greeting.session))
        self.state = State.OPEN


def _reason(welcome: Greeting) -> Reason:
    try:
        return Reason(welcome.lane)
    except ValueError as error:
        raise PeerFault(f"the other node refuses, for reason {welcome.lane}") from error
