"""How two nodes make sure of each other, before a frame is looked at.

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
| 8 | life of the node that dials | life of the one that listens | zeros |
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
link have the number of their session, and the listening node takes no number twice from one life.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from enum import IntEnum
from typing import NamedTuple

from penstock.broker.ports import Lane
from penstock.errors import PeerFault
from penstock.kernel import crc32c

MAGIC = b"PENSTOCK"
VERSION = 2  # since 2 batches of one message may have the short form
NONCE_BYTES = PROOF_BYTES = 32
_FIELDS = struct.Struct(">8sHBB16sIIQQ32s")
_CRC = struct.Struct(">I")
GREETING_BYTES = _FIELDS.size + PROOF_BYTES + _CRC.size
NO_PROOF = bytes(PROOF_BYTES)


class Kind(IntEnum):
    GREETING = 1
    WELCOME = 2
    REFUSAL = 3


class Reason(IntEnum):
    """Of a refusal."""

    VERSION = 1
    CLUSTER = 2
    NODE = 3
    STRANGER = 4
    SESSION = 5
    PROOF = 6

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS = {
    Reason.VERSION: "it speaks another version",
    Reason.CLUSTER: "it belongs to another cluster",
    Reason.NODE: "another node is at this address",
    Reason.STRANGER: "it does not know this node, or this incarnation of it",
    Reason.SESSION: "it has a newer session already",
    Reason.PROOF: "the secrets differ",
}


class Greeting(NamedTuple):
    """Of either side."""

    kind: Kind
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
        """What proofs are about."""
        return _FIELDS.pack(
            MAGIC, self.version, self.kind, self.lane, self.cluster.to_bytes(16, "big"),
            self.source, self.target, self.incarnation, self.session, self.nonce,
        )  # fmt: skip

    def encode(self) -> bytes:
        content = self.unproven + self.proof
        return content + _CRC.pack(crc32c(content))


def decode(data: bytes) -> Greeting:
    """Raises PeerFault for what is none."""
    if len(data) != GREETING_BYTES:
        raise PeerFault(f"a greeting of {len(data)} bytes, it has {GREETING_BYTES}")
    content = data[: -_CRC.size]
    magic, version, kind, lane, cluster, source, target, incarnation, session, nonce = (
        _FIELDS.unpack_from(content)
    )
    if magic != MAGIC:
        raise PeerFault("no node of a Penstock cluster is at the other end")
    if _CRC.unpack_from(data, len(content))[0] != crc32c(content):
        raise PeerFault("a greeting does not have its checksum")
    if kind not in Kind.__members__.values():
        raise PeerFault(f"a greeting of kind {kind}")
    proof = content[_FIELDS.size :]
    uuid = int.from_bytes(cluster, "big")
    return Greeting(
        Kind(kind), lane, uuid, source, target, incarnation, session, nonce, proof, version
    )


def refusal(reason: Reason, session: int) -> bytes:
    return Greeting(Kind.REFUSAL, reason, 0, 0, 0, 0, session).encode()


def lane_of(greeting: Greeting) -> Lane:
    """Raises PeerFault."""
    try:
        return Lane(greeting.lane)
    except ValueError as error:
        raise PeerFault(f"lane {greeting.lane} is not known here") from error


# --- proofs ---


def proof(secret: bytes, side: Kind, greeting: Greeting, welcome: Greeting) -> bytes:
    """Of the side that sends `side`."""
    if not secret:
        return NO_PROOF
    about = bytes([side]) + greeting.unproven + welcome.unproven
    return hmac.new(secret, about, hashlib.sha256).digest()


def is_proven(
    secrets: tuple[bytes, ...], given: bytes, side: Kind, greeting: Greeting, welcome: Greeting
) -> bool:
    """By any of the secrets: they are changed one node after the other."""
    known = secrets or (b"",)
    found = [hmac.compare_digest(proof(one, side, greeting, welcome), given) for one in known]
    return any(found)
