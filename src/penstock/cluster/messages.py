"""Messages between participants: the content of a `Note` frame.

A message is a MessagePack array: its tag, then its fields. Unknown tags, other types and more or
fewer fields are refused, and then the link ends: both sides have agreed on what they speak.
"""

from typing import Annotated

import msgspec

from penstock.cluster.documents import IDENTITY_PATTERN
from penstock.cluster.keys import PartitionName
from penstock.log.epochs import Extent
from penstock.replication.frames import FrameBroken
from penstock.replication.record import Member

_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Random = Annotated[int, msgspec.Meta(ge=0)]  # of 64 bits: more do not fit into MessagePack
_Name = Annotated[str, msgspec.Meta(max_length=64)]
_Identity = Annotated[str, msgspec.Meta(pattern=f"^{IDENTITY_PATTERN}$")]  # of a topic, as text


class _Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pass


class Heartbeat(_Message, frozen=True, tag=1):
    sent_ns: _Number  # by the sender's monotonic clock
    wall_ns: _Number  # what time it is at the sender


class HeartbeatAnswer(_Message, frozen=True, tag=2):
    sent_ns: _Number  # of the heartbeat


class Refused(_Message, frozen=True, tag=3):
    """A connection to this incarnation of a node was refused."""

    node: _Number
    incarnation: _Random


class SendReport(_Message, frozen=True, tag=4):
    """The extent of the sender's replica, when no member is intact."""

    topic: _Name
    partition: _Number
    epoch: _Number
    entry: Member
    memory_lost_generation: _Number
    extent: Extent | None  # None: that replica is gone


class Corrupt(_Message, frozen=True, tag=5):
    """All replicas of the sender whose logs are corrupt, unreadable or unwritable."""

    names: tuple[PartitionName, ...]
    failed: tuple[PartitionName, ...]  # the latter: they acknowledge nothing


class Renewed(_Message, frozen=True, tag=6):
    """To a leader: this node has a replica of its partition only now, and waits for a greeting."""

    topic: _Name
    partition: _Number


class StartRequest(_Message, frozen=True, tag=7):
    """To the leader of a partition: answer once the in-sync set has the start of this channel."""

    topic: _Name
    partition: _Number
    identity: _Identity
    channel: _Number  # its number


class StartHeld(_Message, frozen=True, tag=8):
    """The answer to a StartRequest, with the same fields."""

    topic: _Name
    partition: _Number
    identity: _Identity
    channel: _Number


class Leaving(_Message, frozen=True, tag=9):
    """The sender stops in order: it hands over, and commits should not wait for it."""


class DrainRequest(_Message, frozen=True, tag=10):
    """To the leaders of a topic: is anything left of what you lead, when you have applied this
    revision of the metadata?"""

    topic: _Name
    identity: _Identity
    revision: _Number


class Drained(_Message, frozen=True, tag=11):
    """The answer to a DrainRequest, about these partitions. `reason`: what is left; empty: nothing
    is, and nothing comes while the revision holds."""

    topic: _Name
    revision: _Number
    partitions: tuple[_Number, ...]
    reason: Annotated[str, msgspec.Meta(max_length=1_000)]


Message = (
    Heartbeat
    | HeartbeatAnswer
    | Refused
    | SendReport
    | Corrupt
    | Renewed
    | StartRequest
    | StartHeld
    | Leaving
    | DrainRequest
    | Drained
)
_decode = msgspec.msgpack.Decoder(Message).decode
encode_message = msgspec.msgpack.Encoder().encode


def decode_message(data: bytes) -> Message:
    """Raises FrameBroken."""
    try:
        return _decode(data)
    except msgspec.DecodeError as error:
        raise FrameBroken(f"a message of {len(data)} bytes: {error}") from error
