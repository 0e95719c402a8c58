"""What participants say to each other, as bytes: the content of a `Note` frame.

A message is a MessagePack array: its tag, then its fields. Unknown tags, other types and more or
fewer fields are refused, and then the link ends: both sides have agreed on what they speak.

| tag | message | fields |
|---|---|---|
| 1 | Heartbeat | when it was sent, by the sender's monotonic clock; its wall clock |
| 2 | Answer | the first number of the heartbeat |
| 3 | Refused | node, life |
| 4 | SendReport | topic, partition, epoch; member; generation that lost memory; extent or nil |
| 5 | Corrupt | pairs of topic and partition; those among them that have failed |
| 6 | Renewed | topic, partition |
| 7 | StartAsked | topic, partition, identity of the topic, number of a channel |
| 8 | StartHeld | the same |
| 9 | Leaving | |

A member is node, replica, generation; an extent is start, end, and pairs of epoch and first offset.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.cluster.elections import SendReport
from penstock.cluster.keys import PartitionName
from penstock.cluster.participant import (
    Answer,
    Corrupt,
    Heartbeat,
    Leaving,
    Message,
    Refused,
    Renewed,
    StartAsked,
    StartHeld,
)
from penstock.limits import CORRUPT_NAMED_MAX, REPLICA_EPOCHS_MAX
from penstock.replication.election import Report
from penstock.replication.frames import FrameBroken
from penstock.replication.matching import Extent
from penstock.replication.record import Member

_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Random = Annotated[int, msgspec.Meta(ge=0)]  # of 64 bits: more do not fit into MessagePack
_Name = Annotated[str, msgspec.Meta(max_length=64)]
_Epochs = Annotated[
    tuple[tuple[_Number, _Number], ...], msgspec.Meta(max_length=REPLICA_EPOCHS_MAX)
]


class _Form(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    pass


class _Heartbeat(_Form, tag=1):
    sent_ns: _Number
    wall_ns: _Number


class _Answer(_Form, tag=2):
    sent_ns: _Number


class _Refused(_Form, tag=3):
    node: _Number
    incarnation: _Random


class _Member(_Form):
    node: _Number
    replica: _Random
    generation: _Number


class _Extent(_Form):
    start: _Number
    end: _Number
    epochs: _Epochs


class _Report(_Form, tag=4):
    topic: _Name
    partition: _Number
    epoch: _Number
    entry: _Member
    memory_lost_generation: _Number
    extent: _Extent | None


_Names = Annotated[tuple[tuple[_Name, _Number], ...], msgspec.Meta(max_length=CORRUPT_NAMED_MAX)]


class _Corrupt(_Form, tag=5):
    names: _Names
    failed: _Names


class _Renewed(_Form, tag=6):
    topic: _Name
    partition: _Number


class _Start(_Form):
    topic: _Name
    partition: _Number
    identity: _Random
    channel: _Number


class _StartAsked(_Start, tag=7):
    pass


class _StartHeld(_Start, tag=8):
    pass


class _Leaving(_Form, tag=9):
    pass


_DECODER = msgspec.msgpack.Decoder(
    _Heartbeat
    | _Answer
    | _Refused
    | _Report
    | _Corrupt
    | _Renewed
    | _StartAsked
    | _StartHeld
    | _Leaving
)
_encode = msgspec.msgpack.Encoder().encode


def encode_message(message: Message) -> bytes:
    match message:
        case Heartbeat(sent_ns, wall_ns):
            return _encode(_Heartbeat(sent_ns, wall_ns))
        case Answer(sent_ns):
            return _encode(_Answer(sent_ns))
        case Refused(node, incarnation):
            return _encode(_Refused(node, incarnation))
        case Corrupt(names, failed):
            return _encode(_Corrupt(names, failed))
        case Leaving():
            return _encode(_Leaving())
        case Renewed(name):
            return _encode(_Renewed(*name))
        case StartAsked(name, identity, channel):
            return _encode(_StartAsked(*name, identity, channel))
        case StartHeld(name, identity, channel):
            return _encode(_StartHeld(*name, identity, channel))
        case SendReport(_, name, epoch, report):
            entry, lost, extent = report
            known = None if extent is None else _Extent(*extent)
            return _encode(_Report(*name, epoch, _Member(*entry), lost, known))


def decode_message(node: int, data: bytes) -> Message:
    """Of that node. Raises FrameBroken."""
    try:
        form = _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise FrameBroken(f"a message of {len(data)} bytes: {error}") from error
    if isinstance(form, _Heartbeat):
        return Heartbeat(form.sent_ns, form.wall_ns)
    if isinstance(form, _Answer):
        return Answer(form.sent_ns)
    if isinstance(form, _Refused):
        return Refused(form.node, form.incarnation)
    if isinstance(form, _Corrupt):
        names, failed = (
            [PartitionName(*one) for one in each] for each in (form.names, form.failed)
        )
        return Corrupt(tuple(names), tuple(failed))
    if isinstance(form, _Leaving):
        return Leaving()
    if isinstance(form, _Renewed):
        return Renewed(PartitionName(form.topic, form.partition))
    if isinstance(form, _Start):
        kind = StartAsked if isinstance(form, _StartAsked) else StartHeld
        return kind(PartitionName(form.topic, form.partition), form.identity, form.channel)
    return _report(node, form)


def _report(node: int, form: _Report) -> SendReport:
    member, found = form.entry, form.extent
    extent = None if found is None else Extent(found.start, found.end, found.epochs)
    entry = Member(member.node, member.replica, member.generation)
    report = Report(entry, form.memory_lost_generation, extent)
    return SendReport(node, PartitionName(form.topic, form.partition), form.epoch, report)
