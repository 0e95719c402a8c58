"""The bytes between nodes: frames of the machines, for many partitions on one link.

A link carries a sequence of frames. Each names its partition and is checked by itself: a frame from
a stranger or a broken network is refused before any of it is interpreted.

| at | bytes | field |
|---|---|---|
| 0 | 4 | length of everything after this field, up to `REPLICA_FRAME_BYTES_MAX` |
| 4 | 4 | crc32c of everything after this field, without the payload |
| 8 | 1 | version: 1 |
| 9 | 1 | kind |
| 10 | 2 | partition |
| 12 | 8 | identity of the topic |
| 20 | 8 | session |
| 28 | ... | fields of the kind, then epochs or a payload, if it has any |

Numbers are big endian. Fields, in this order:

| kind | | fields | then |
|---|---|---|---|
| 1 | Hello | epoch u32 | |
| 2 | ReportExtent | epoch u32; replica, generation, committed, start, end u64 | epochs: u32, u64 |
| 3 | MatchAt | end u64, chain | |
| 4 | BeginAt | start u64 | |
| 5 | Matched | end u64 | |
| 6 | Append | epoch u32; chain; start u64, committed u64; before u32, crc u32 | payload: batches |
| 7 | Acknowledge | epoch u32, replica u64, written u64, synced u64 | |
| 8 | Refuse | epoch u32 | |
| 15 | Chunk | kind u8, total u32, at u32, crc u32 | payload: a part of one |
| 32 | Note, of no partition | content of [cluster/messages.py](../cluster/messages.py) | |
| 9 to 14, 16 | of the channel journal: [side_frames.py](side_frames.py) | | |
| 17, 18 | of the table of producers: [side_frames.py](side_frames.py) | | |
| 19, 20 | of the repair of a corrupt range: [side_frames.py](side_frames.py) | | |
| 21, 22 | of forwarded publishes: [side_frames.py](side_frames.py) | | |
| 23, 24 | of requests that another node answers: [side_frames.py](side_frames.py) | | |

A chain names the batch before: epoch u32, offset u64, crc u32. Batches are as in the log. An
unknown version or kind ends the link: both sides agreed on their language when it was made.

**A payload** of up to `REPLICA_CHUNK_BYTES` is sent with its frame. Of a larger one, all chunks but
the last go ahead as frames 15, in the same session: `kind` is that of the frame to come, `total`
the length of the whole payload, `at` the position of this chunk in it. The frame itself carries the
last, and `before` is the number of bytes that went ahead of it. The last number of the fields is
the crc32c of the payload in this frame. It is separate because the payload is the same for all
replicas and the session is not ([chunks.py](chunks.py)). It is 0 in an append and in chunks of one:
each batch has a checksum, which the follower's log verifies before it writes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import PenstockError
from penstock.kernel import crc32c
from penstock.limits import REPLICA_EPOCHS_MAX, REPLICA_FRAME_BYTES_MAX
from penstock.log.epochs import BatchName, Extent
from penstock.replication.chunks import Assembly, Key, Payload, cut
from penstock.replication.effects import (
    Acknowledge,
    BeginAt,
    Hello,
    MatchAt,
    Matched,
    Refuse,
    ReportExtent,
)
from penstock.replication.journal import HelloJournal
from penstock.replication.side_frames import (
    SIDE_KINDS,
    ForwardFrame,
    FrameKind,
    JournalFrame,
    RangeFrame,
    RequestFrame,
    TableFrame,
    flat,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

VERSION = 1
_PREFIX = struct.Struct(">II")  # length, crc
_HEAD = struct.Struct(">BBHQQ")  # version, kind, partition, identity, session
_LENGTH_MIN = 4 + _HEAD.size
_BUFFER_BYTES = 2 * (4 + REPLICA_FRAME_BYTES_MAX)  # a frame, and most of the next one
_EPOCH = struct.Struct(">IQ")
_APPEND = struct.Struct(">IIQIQQ")
_OF_PAYLOAD = struct.Struct(">II")  # how much of it went ahead, and the crc of what is here
_CHUNK = struct.Struct(">BII")  # kind of the frame to come, length of all, position of this
_CRC = struct.Struct(">I")
_APPEND_KIND, _ACKNOWLEDGE_KIND, _RECORD_KIND, _CHUNK_KIND, _TABLE_KIND = 6, 7, 13, 15, 17


class FrameBroken(PenstockError):
    """Input of a link that is no frame: the link ends."""


class Target(NamedTuple):
    """The partition that a frame is about."""

    identity: int
    partition: int


class AppendFrame(NamedTuple):
    """Batches that follow `previous`, as in the leader's log; without any, only the committed end.
    Batches of a received frame are valid until more is read from the link."""

    session: int
    epoch: int
    previous: BatchName
    start: int
    batches: bytes | bytearray | memoryview
    committed: int


class Note(NamedTuple):
    """Between nodes, not partitions: `target` and session are zero."""

    session: int
    data: bytes


NO_TARGET = Target(0, 0)
Encoded = tuple["Buffer", ...]  # one frame: its parts, to be written one behind the other
Frame = (
    Hello
    | ReportExtent
    | MatchAt
    | BeginAt
    | Matched
    | AppendFrame
    | Acknowledge
    | Refuse
    | JournalFrame
    | TableFrame
    | RangeFrame
    | ForwardFrame
    | RequestFrame
    | Note
)


# --- the kinds as a table ---


def _append(session: int, batches: bytearray | memoryview, numbers: Sequence[int]) -> AppendFrame:
    epoch, before, offset, crc, start, committed = numbers
    return AppendFrame(session, epoch, BatchName(before, offset, crc), start, batches, committed)


def _report_extent(session: int, rest: bytes, numbers: Sequence[int]) -> ReportExtent:
    epoch, replica, generation, committed, start, end = numbers
    count, remainder = divmod(len(rest), _EPOCH.size)
    if remainder or count > REPLICA_EPOCHS_MAX:
        raise FrameBroken(
            f"{len(rest)} bytes of epochs: at most {REPLICA_EPOCHS_MAX} of {_EPOCH.size} bytes"
        )
    extent = Extent(start, end, tuple(_EPOCH.iter_unpack(rest)))
    _check_extent(extent)
    return ReportExtent(session, epoch, replica, generation, extent, committed)


def _check_extent(extent: Extent) -> None:
    """A position that contradicts itself would be matched to a meaningless offset."""
    start, end, epochs = extent
    rises = all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(epochs))
    within = epochs[0][1] == start and epochs[-1][1] < end if epochs else start == end
    if not (rises and within):
        raise FrameBroken(f"epochs {epochs} in a log from {start} to {end}")


def _epochs(frame: ReportExtent) -> bytes:
    epochs = frame.extent.epochs
    if len(epochs) > REPLICA_EPOCHS_MAX:
        raise ValueError(f"{len(epochs)} epochs, at most {REPLICA_EPOCHS_MAX} are named")
    return b"".join(_EPOCH.pack(*one) for one in epochs)


_KINDS = (
    flat(1, Hello, "a hello", ">I"),
    FrameKind(2, ReportExtent, "a position", struct.Struct(">IQQQQQ"),
         lambda it: (it.epoch, it.replica, it.generation, it.committed, *it.extent[:2]),
         lambda _, session, rest, *numbers: _report_extent(session, rest, numbers), text=_epochs),
    flat(3, MatchAt, "a match", ">QIQI"),
    flat(4, BeginAt, "a beginning", ">Q"),
    flat(5, Matched, "an answer to a match", ">Q"),
    FrameKind(_APPEND_KIND, AppendFrame, "an append", _APPEND,
         lambda it: (it.epoch, *it.previous, it.start, it.committed),
         lambda _, session, batches, *numbers: _append(session, batches, numbers), "batches"),
    flat(_ACKNOWLEDGE_KIND, Acknowledge, "an acknowledgement", ">IQQQ"),
    flat(8, Refuse, "a refusal", ">I"),
    flat(32, Note, "a note", "", "data", text=lambda it: it.data),
    *SIDE_KINDS,
)  # fmt: skip
_BY_TYPE: dict[type, FrameKind] = {kind.of: kind for kind in _KINDS}
_BY_NUMBER = {kind.number: kind for kind in _KINDS}
_ACKNOWLEDGE = _BY_NUMBER[_ACKNOWLEDGE_KIND].layout
# Of kinds with a payload: how long head and fields are.
_FIELDS_ENDS = {
    kind.number: _HEAD.size + kind.layout.size + _OF_PAYLOAD.size
    for kind in _KINDS if kind.payload
} | {_CHUNK_KIND: _HEAD.size + _CHUNK.size + _CRC.size}  # fmt: skip


# --- to bytes ---


def encode(target: Target, frame: Frame, payload: Payload | None = None) -> list[Encoded]:
    """`payload`: the bytes behind the fields, where they were encoded already for another
    replica."""
    kind = _BY_TYPE[type(frame)]
    fields = kind.layout.pack(*kind.numbers(frame))
    if kind.payload:
        payload = payload or cut(
            getattr(frame, kind.payload), is_append=kind.number == _APPEND_KIND
        )
        return _with_payload(target, kind.number, frame.session, fields, payload)
    if kind.text is not None:
        fields += kind.text(frame)
    return [(_sealed(target, kind.number, frame.session, fields),)]


def _with_payload(
    target: Target, kind: int, session: int, fields: bytes, payload: Payload
) -> list[Encoded]:
    encoded: list[Encoded] = []
    at = 0
    for parts, length, crc in payload.chunks[:-1]:
        chunk = _CHUNK.pack(kind, payload.length, at) + _CRC.pack(crc)
        encoded.append((_sealed(target, _CHUNK_KIND, session, chunk, length), *parts))
        at += length
    parts, length, crc = payload.chunks[-1]
    fields += _OF_PAYLOAD.pack(at, crc)
    encoded.append((_sealed(target, kind, session, fields, length), *parts))
    return encoded


def _sealed(
    target: Target, kind: int, session: int, fields: bytes, payload_bytes: int = 0
) -> bytes:
    """A frame up to its payload."""
    content = _HEAD.pack(VERSION, kind, target.partition, target.identity, session) + fields
    length = 4 + len(content) + payload_bytes
    if length > REPLICA_FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {length} bytes, at most {REPLICA_FRAME_BYTES_MAX} are sent")
    return _PREFIX.pack(length, crc32c(content)) + content


# --- from bytes ---


class Frames:
    """Cuts the input of one lane of a link into frames. `node`: the sender.

    A socket reads into `space()`, and `filled` says how much came. What is in a frame is copied out
    of there once, and a chunk of a payload straight to its position in the whole; an append that is
    in one frame is not copied at all.
    """

    def __init__(self, node: int) -> None:
        self.assembly = Assembly()
        self._node = node
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._end = 0  # of what has come and is no whole frame yet

    def space(self) -> memoryview:
        return self._buffer[self._end :]

    def filled(self, count: int) -> Iterator[tuple[Target, Frame]]:
        """The frames that are whole now. Raises `FrameBroken`, and then the link is of no use."""
        buffer, at = self._buffer, 0
        self._end = have = self._end + count
        try:
            while have - at >= _PREFIX.size:
                length, crc = _PREFIX.unpack_from(buffer, at)
                _check_length(length)
                end = at + 4 + length
                if have < end:
                    return
                content = buffer[at + _PREFIX.size : end]
                at = end
                found = self._decode(content, crc)
                if found is not None:
                    yield found
        finally:
            if at:
                buffer[: have - at] = buffer[at:have]
                self._end = have - at

    def _decode(self, content: memoryview, crc: int) -> tuple[Target, Frame] | None:
        version, kind, partition, identity, session = _HEAD.unpack_from(content)
        fields_end = _FIELDS_ENDS.get(kind, len(content))
        if crc32c(content[:fields_end]) != crc:
            raise FrameBroken(f"a frame of {len(content) + 4} bytes fails its checksum")
        if version != VERSION:
            raise FrameBroken(f"version {version} of frames is not known here, {VERSION} is")
        target = Target(identity, partition)
        if kind == _ACKNOWLEDGE_KIND and len(content) == _HEAD.size + _ACKNOWLEDGE.size:
            return target, Acknowledge(session, *_ACKNOWLEDGE.unpack_from(content, _HEAD.size))
        fields = bytes(content[_HEAD.size : fields_end])
        if kind not in _FIELDS_ENDS:
            return target, self._frame(target, kind, session, fields)
        if len(content) < fields_end:
            name = "a chunk" if kind == _CHUNK_KIND else _BY_NUMBER[kind].name
            raise FrameBroken(f"{name} of {len(fields)} bytes, it has {fields_end - _HEAD.size}")
        payload = content[fields_end:]
        is_append = (fields[0] if kind == _CHUNK_KIND else kind) == _APPEND_KIND
        crc = _CRC.unpack_from(content, fields_end - _CRC.size)[0]
        if not is_append and crc32c(payload) != crc:
            raise FrameBroken(f"a payload of {len(payload)} bytes fails its checksum")
        try:
            return self._with_payload(target, kind, session, fields, payload)
        except ValueError as error:
            raise FrameBroken(str(error)) from error

    def _with_payload(
        self, target: Target, kind: int, session: int, fields: bytes, payload: memoryview
    ) -> tuple[Target, Frame] | None:
        if kind == _CHUNK_KIND:
            of_kind, total, at = _CHUNK.unpack_from(fields)
            if of_kind == _CHUNK_KIND or of_kind not in _FIELDS_ENDS:
                raise FrameBroken(f"chunks of kind {of_kind}, which has no payload")
            self.assembly.add(Key(*target, of_kind), session, total, at, payload)
            return None
        before, _ = _OF_PAYLOAD.unpack_from(fields, len(fields) - _OF_PAYLOAD.size)
        found = self.assembly.finish(Key(*target, kind), session, before, payload)
        if kind == _APPEND_KIND:
            return target, _append(session, found, _APPEND.unpack_from(fields))
        whole = found if isinstance(found, bytearray) else bytes(found)
        known = _BY_NUMBER[kind]
        return target, known.make(self._node, session, whole, *known.layout.unpack_from(fields))

    def _frame(self, target: Target, number: int, session: int, body: bytes) -> Frame:
        kind = _BY_NUMBER.get(number)
        if kind is None:
            raise FrameBroken(f"kind {number} of frames is not known here")
        size = kind.layout.size
        if len(body) < size or (len(body) > size and kind.text is None):
            raise FrameBroken(f"{kind.name} of {len(body)} bytes, it has {size}")
        try:
            numbers = kind.layout.unpack_from(body)
            frame: Frame = kind.make(self._node, session, body[size:], *numbers)
        except ValueError as error:
            raise FrameBroken(str(error)) from error
        if isinstance(frame, Hello):
            self.assembly.drop_other_sessions(Key(*target, _APPEND_KIND), session)
            self.assembly.drop_other_sessions(Key(*target, _TABLE_KIND), session)
        elif isinstance(frame, HelloJournal):
            self.assembly.drop_other_sessions(Key(*target, _RECORD_KIND), session)
        return frame


def _check_length(length: int) -> None:
    if not _LENGTH_MIN <= length <= REPLICA_FRAME_BYTES_MAX:
        raise FrameBroken(
            f"a frame of {length} bytes: {_LENGTH_MIN} to {REPLICA_FRAME_BYTES_MAX} are allowed"
        )
