"""What the replicas of a node share: who the node is, what it has promised, and the way to others.

There is one only where partitions are kept on several nodes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from penstock.broker.catchup import CatchUp
from penstock.broker.ports import Peers
from penstock.broker.promises import Promises
from penstock.log.ledgerfile import ReplicaKey
from penstock.replica.authority import Heard, Isolation
from penstock.replica.frames import Target

_IDENTITY_BYTES = 8


@dataclass(slots=True)
class Station:
    node: int
    life: int  # a random number of this process
    generation: int  # of its start, durable
    promises: Promises
    peers: Peers
    heard: Heard = field(default_factory=Heard)  # by which offices know that they are in force
    isolation: Isolation = field(default_factory=Isolation)
    catch_up: CatchUp = field(default_factory=CatchUp)


def identity_number(identity: str) -> int:
    """A topic's identity as records and frames carry it."""
    digest = hashlib.blake2b(identity.encode(), digest_size=_IDENTITY_BYTES).digest()
    return int.from_bytes(digest, "big")


def target_of(key: ReplicaKey) -> Target:
    return Target(identity_number(key.identity), key.partition)
