"""Messages between participants, as bytes: the content of a `Note` frame.

A message is a MessagePack array: its tag, then its fields. Unknown tags, other types and more or
fewer fields are refused, and then the link ends: both sides have agreed on what they speak.

| tag | message | fields |
|---|---|---|
| 1 | Heartbeat | when it was sent, by the sender's monotonic clock; its wall clock |
| 2 | HeartbeatAnswer | the first number of the heartbeat |
| 3 | Refused | node, incarnation |
| 4 | SendReport | topic, partition, epoch; member; generation that lost memory; extent or nil |
| 5 | Corrupt | pairs of topic and partition; those among them that have failed |
| 6 | Renewed | topic, partition |
| 7 | StartRequest | topic, partition, identity of the topic, number of a channel |
| 8 | StartHeld | the same |
| 9 | Leaving | |
| 10 | DrainRequest | topic, its identity, revision |
| 11 | Drained | topic, revision, partitions, reason |

A member is node, replica, generation; an extent is start, end, and pairs of epoch and first offset.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, NamedTuple

import msgspec

from penstock.cluster.documents import IDENTITY_PATTERN, identity_of, identity_text
from penstock.cluster.elections import SendReport
from penstock.cluster.keys import PartitionName
from penstock.cluster.participant import (
    Corrupt,
    Drained,
    DrainRequest,
    Heartbeat,
    HeartbeatAnswer,
    Leaving,
    Message,
    Refused,
    Renewed,
    StartHeld,
    StartRequest,
)
from penstock.limits import CORRUPT_NAMED_MAX, PARTITIONS_MAX, REPLICA_EPOCHS_MAX
from penstock.log.epochs import Extent
from penstock.replication.election import MemberReport
from penstock.replication.frames import FrameBroken
from penstock.replication.record import Member

_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Random = Annotated[int, msgspec.Meta(ge=0)]  # of 64 bits: more do not fit into MessagePack
_Name = Annotated[str, msgspec.Meta(max_length=64)]
_Names = Annotated[tuple[tuple[_Name, _Number], ...], msgspec.Meta(max_length=CORRUPT_NAMED_MAX)]
_Member = tuple[_Number, _Random, _Number]
_Epochs = Annotated[
    tuple[tuple[_Number, _Number], ...], msgspec.Meta(max_length=REPLICA_EPOCHS_MAX)
]
_Extent = tuple[_Number, _Number, _Epochs]
_Identity = Annotated[str, msgspec.Meta(pattern=f"^{IDENTITY_PATTERN}$")]
_Partitions = Annotated[tuple[_Number, ...], msgspec.Meta(max_length=PARTITIONS_MAX)]
_Reason = Annotated[str, msgspec.Meta(max_length=1_000)]
_Start = tuple[_Name, _Number, _Identity, _Number]


class _Kind(NamedTuple):
    tag: int
    of: type
    fields: Any  # the types of what follows the tag
    write: Callable[[Any], Iterable[Any]]
    read: Callable[..., Message]  # of the node that sends it, and of the fields


def _report(
    node: int, topic: str, partition: int, epoch: int, entry: _Member, lost: int,
    extent: _Extent | None,
) -> SendReport:  # fmt: skip
    known = None if extent is None else Extent(*extent)
    report = MemberReport(Member(*entry), lost, known)
    return SendReport(node, PartitionName(topic, partition), epoch, report)


def _corrupt(node: int, *groups: tuple[tuple[str, int], ...]) -> Corrupt:
    names, failed = (tuple(PartitionName(*one) for one in group) for group in groups)
    return Corrupt(names, failed)


def _start(
    make: type[StartRequest | StartHeld], node: int, topic: str, partition: int, identity: str,
    channel: int,
) -> StartRequest | StartHeld:  # fmt: skip
    return make(PartitionName(topic, partition), identity_of(identity), channel)


def _flat(message: StartRequest | StartHeld) -> Iterable[Any]:
    return *message.name, identity_text(message.identity), message.channel


_KINDS = (
    _Kind(1, Heartbeat, tuple[_Number, _Number], tuple, lambda _, *both: Heartbeat(*both)),
    _Kind(2, HeartbeatAnswer, tuple[_Number], tuple, lambda _, sent_ns: HeartbeatAnswer(sent_ns)),
    _Kind(3, Refused, tuple[_Number, _Random], tuple, lambda _, *both: Refused(*both)),
    _Kind(4, SendReport, tuple[_Name, _Number, _Number, _Member, _Number, _Extent | None],
          lambda it: (*it.name, it.epoch, *it.report), _report),
    _Kind(5, Corrupt, tuple[_Names, _Names], tuple, _corrupt),
    _Kind(6, Renewed, tuple[_Name, _Number], lambda it: it.name,
          lambda _, *name: Renewed(PartitionName(*name))),
    _Kind(7, StartRequest, _Start, _flat, partial(_start, StartRequest)),
    _Kind(8, StartHeld, _Start, _flat, partial(_start, StartHeld)),
    _Kind(9, Leaving, tuple[()], tuple, lambda _: Leaving()),
    _Kind(10, DrainRequest, tuple[_Name, _Identity, _Number],
          lambda it: (it.topic, identity_text(it.identity), it.revision),
          lambda _, topic, identity, at: DrainRequest(topic, identity_of(identity), at)),
    _Kind(11, Drained, tuple[_Name, _Number, _Partitions, _Reason], tuple,
          lambda _, *fields: Drained(*fields)),
)  # fmt: skip
_BY_TYPE = {kind.of: kind for kind in _KINDS}
_BY_TAG = {kind.tag: kind for kind in _KINDS}
_decode = msgspec.msgpack.Decoder(list[Any]).decode
_encode = msgspec.msgpack.Encoder().encode


def encode_message(message: Message) -> bytes:
    kind = _BY_TYPE[type(message)]
    return _encode((kind.tag, *kind.write(message)))


def decode_message(node: int, data: bytes) -> Message:
    """A message from that node. Raises FrameBroken."""
    try:
        tag, *fields = _decode(data) or [None]
        kind = _BY_TAG.get(tag) if type(tag) is int else None
        if kind is None:
            raise FrameBroken(f"a message of {len(data)} bytes: {tag!r} is no tag")
        return kind.read(node, *msgspec.convert(fields, kind.fields))
    except msgspec.DecodeError as error:
        raise FrameBroken(f"a message of {len(data)} bytes: {error}") from error
