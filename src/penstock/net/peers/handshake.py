"""The mutual authentication of two nodes, before any frame.

A connection is one lane of a link. The node that dials speaks first:

    dials                      listens
    greeting  --------------->
              <--------------- welcome, or a refusal; then the connection ends
    proof     --------------->
              frames in both directions

| bytes | greeting | welcome | refusal |
|---|---|---|---|
| 8 | magic | magic | magic |
| 2 | version | version | version |
| 1 | kind 1 | kind 2 | kind 3 |
| 1 | lane | lane | reason |
| 16 | uuid of the cluster | the same | zeros |
| 4, 4 | from, to | from, to | zeros |
| 8 | incarnation of the dialling node | of the listening one | zeros |
| 8 | session | session | session |
| 32 | nonce | nonce | zeros |
| 32 | zeros | proof | zeros |
| 4 | crc32c of all before | the same | the same |

The dialling node's proof is 32 bytes and nothing else.

**Proofs.** With a shared secret, each side proves that it has it: HMAC-SHA256 over which side it is
and both messages without proof and crc, so that no proof can be sent back, or used for another
connection. What follows is neither secret nor protected: that is what TLS is for. Without a secret
proofs are zeros; then the network, or TLS with certificates on both sides, decides who may link.

**Sessions** are numbered by the dialling node, in the order in which it makes them. Both lanes of a
link have the number of their session, and the listening node takes no number twice from one
incarnation.

**The machines** have no I/O.

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

import hashlib
import hmac
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from penstock.broker.ports import PeerLane
from penstock.errors import PeerFault
from penstock.kernel import crc32c

MAGIC = b"PENSTOCK"
VERSION = 2  # since 2 batches of one message may have the short form
NONCE_BYTES = PROOF_BYTES = 32
_FIELDS = struct.Struct(">8sHBB16sIIQQ32s")
_CRC = struct.Struct(">I")
GREETING_BYTES = _FIELDS.size + PROOF_BYTES + _CRC.size
NO_PROOF = bytes(PROOF_BYTES)


class HandshakeKind(IntEnum):
    GREETING = 1
    WELCOME = 2
    REFUSAL = 3


class Reason(IntEnum):
    VERSION = 1
    CLUSTER = 2
    NODE = 3
    STRANGER = 4
    SESSION = 5
    PROOF = 6


_TEXTS = {
    Reason.VERSION: "it speaks another version of the protocol",
    Reason.CLUSTER: "it belongs to another cluster",
    Reason.NODE: "another node is at this address",
    Reason.STRANGER: "it does not know this node, or this incarnation of it",
    Reason.SESSION: "it has a newer session already",
    Reason.PROOF: "the secrets differ",
}


class Greeting(NamedTuple):
    kind: HandshakeKind
    lane: int  # of a refusal: its reason
    cluster: int
    source: int
    target: int
    incarnation: int
    session: int
    nonce: bytes = bytes(NONCE_BYTES)
    proof: bytes = NO_PROOF
    version: int = VERSION

    @property
    def unproven(self) -> bytes:
        """The part of the greetings that the proofs cover."""
        return _FIELDS.pack(
            MAGIC, self.version, self.kind, self.lane, self.cluster.to_bytes(16, "big"),
            self.source, self.target, self.incarnation, self.session, self.nonce,
        )  # fmt: skip

    def encode(self) -> bytes:
        content = self.unproven + self.proof
        return content + _CRC.pack(crc32c(content))


def decode(data: bytes) -> Greeting:
    """Raises PeerFault for an invalid one."""
    if len(data) != GREETING_BYTES:
        raise PeerFault(f"a greeting of {len(data)} bytes, it has {GREETING_BYTES}")
    content = data[: -_CRC.size]
    magic, version, kind, lane, cluster, source, target, incarnation, session, nonce = (
        _FIELDS.unpack_from(content)
    )
    if magic != MAGIC:
        raise PeerFault("no node of a Penstock cluster is at the other end")
    if _CRC.unpack_from(data, len(content))[0] != crc32c(content):
        raise PeerFault("a greeting fails its checksum")
    if kind not in HandshakeKind.__members__.values():
        raise PeerFault(f"a greeting of kind {kind}")
    proof = content[_FIELDS.size :]
    uuid = int.from_bytes(cluster, "big")
    return Greeting(
        HandshakeKind(kind), lane, uuid, source, target, incarnation, session, nonce, proof, version
    )


def refusal(reason: Reason, session: int) -> bytes:
    return Greeting(HandshakeKind.REFUSAL, reason, 0, 0, 0, 0, session).encode()


def lane_of(greeting: Greeting) -> PeerLane:
    """Raises PeerFault."""
    try:
        return PeerLane(greeting.lane)
    except ValueError as error:
        raise PeerFault(f"lane {greeting.lane} is not known here") from error


# --- proofs ---


def proof(secret: bytes, side: HandshakeKind, greeting: Greeting, welcome: Greeting) -> bytes:
    """The proof of the side that sends `side`."""
    if not secret:
        return NO_PROOF
    about = bytes([side]) + greeting.unproven + welcome.unproven
    return hmac.new(secret, about, hashlib.sha256).digest()


def is_proven(
    secrets: tuple[bytes, ...],
    given: bytes,
    side: HandshakeKind,
    greeting: Greeting,
    welcome: Greeting,
) -> bool:
    """By any of the secrets: they are changed one node after the other."""
    known = secrets or (b"",)
    found = [hmac.compare_digest(proof(one, side, greeting, welcome), given) for one in known]
    return any(found)


class PeerRefused(PeerFault):
    """This node refuses the other one, or is refused by it. `answer`: the last output."""

    def __init__(self, reason: Reason, answer: bytes = b"") -> None:
        super().__init__(_TEXTS[reason])
        self.reason = reason
        self.answer = answer


class Own(NamedTuple):
    node: int
    incarnation: int
    cluster: int
    secrets: tuple[bytes, ...] = ()  # the first one proves, any of them is a proof


class HandshakeState(IntEnum):
    WAITS = 1
    WELCOMED = 2
    OPEN = 3


class Dialling:
    def __init__(self, own: Own, node: int, lane: PeerLane, session: int, nonce: bytes) -> None:
        self.state = HandshakeState.WAITS
        self.incarnation = 0  # of the other process, once it is open
        self.rest = b""
        self._own = own
        self._greeting = Greeting(
            HandshakeKind.GREETING, lane, own.cluster, own.node, node, own.incarnation, session,
            nonce,
        )  # fmt: skip
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
        self.state, self.incarnation = HandshakeState.OPEN, welcome.incarnation
        secret = self._own.secrets[0] if self._own.secrets else b""
        return proof(secret, HandshakeKind.GREETING, self._greeting, welcome)

    def _check(self, welcome: Greeting) -> None:
        asked = self._greeting
        if welcome.kind is HandshakeKind.REFUSAL:
            raise PeerRefused(_reason(welcome))
        if welcome.kind is not HandshakeKind.WELCOME or welcome.version != VERSION:
            raise PeerRefused(Reason.VERSION)
        answers = (welcome.cluster, welcome.source, welcome.target)
        if answers != (asked.cluster, asked.target, asked.source):
            raise PeerRefused(Reason.NODE)
        if (welcome.lane, welcome.session) != (asked.lane, asked.session):
            raise PeerFault("a welcome to another greeting")
        if not is_proven(self._own.secrets, welcome.proof, HandshakeKind.WELCOME, asked, welcome):
            raise PeerRefused(Reason.PROOF)


class Listening:
    """`may_link` takes node, incarnation and session of the other side; returns the reason of a
    refusal, or None."""

    def __init__(
        self, own: Own, nonce: bytes, may_link: Callable[[int, int, int], Reason | None]
    ) -> None:
        self.state = HandshakeState.WAITS
        self.rest = b""
        self._own = own
        self._nonce = nonce
        self._may_link = may_link
        self.greeting: Greeting  # from WELCOMED on
        self.lane: PeerLane
        self._welcome: Greeting
        self._buffer = b""

    def feed(self, data: bytes) -> bytes:
        """Raises PeerFault."""
        self._buffer += data
        out = b""
        if self.state is HandshakeState.WAITS and len(self._buffer) >= GREETING_BYTES:
            greeting = decode(self._buffer[:GREETING_BYTES])
            self._buffer = self._buffer[GREETING_BYTES:]
            out = self._welcomed(greeting)
        if self.state is HandshakeState.WELCOMED and len(self._buffer) >= PROOF_BYTES:
            given, self.rest = self._buffer[:PROOF_BYTES], self._buffer[PROOF_BYTES:]
            self._buffer = b""
            self._open(given)
        return out

    def _welcomed(self, greeting: Greeting) -> bytes:
        reason = self._hindrance(greeting)
        if reason is not None:
            raise PeerRefused(reason, refusal(reason, greeting.session))
        own, self.lane = self._own, lane_of(greeting)
        bare = Greeting(
            HandshakeKind.WELCOME, self.lane, own.cluster, own.node, greeting.source,
            own.incarnation, greeting.session, self._nonce, NO_PROOF,
        )  # fmt: skip
        secret = own.secrets[0] if own.secrets else b""
        given = proof(secret, HandshakeKind.WELCOME, greeting, bare)
        self.greeting, self._welcome = greeting, bare
        self.state = HandshakeState.WELCOMED
        return bare._replace(proof=given).encode()

    def _hindrance(self, greeting: Greeting) -> Reason | None:
        if greeting.kind is not HandshakeKind.GREETING or greeting.version != VERSION:
            return Reason.VERSION
        if greeting.cluster != self._own.cluster:
            return Reason.CLUSTER
        if greeting.target != self._own.node:
            return Reason.NODE
        return self._may_link(greeting.source, greeting.incarnation, greeting.session)

    def _open(self, given: bytes) -> None:
        greeting, welcome = self.greeting, self._welcome
        if not is_proven(self._own.secrets, given, HandshakeKind.GREETING, greeting, welcome):
            raise PeerRefused(Reason.PROOF, refusal(Reason.PROOF, greeting.session))
        self.state = HandshakeState.OPEN


def _reason(welcome: Greeting) -> Reason:
    try:
        return Reason(welcome.lane)
    except ValueError as error:
        raise PeerFault(f"the other node refuses, for reason {welcome.lane}") from error
