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
| 2 | Tell | epoch u32, replica, generation, committed, start, end: u64 each | epochs: u32, u64 |
| 3 | MatchAt | end u64, chain | |
| 4 | BeginAt | start u64 | |
| 5 | Matched | end u64 | |
| 6 | Row | epoch u32; chain; start u64, committed u64; before u32, crc u32 | payload: batches |
| 7 | Acknowledge | epoch u32, replica u64, written u64, synced u64 | |
| 8 | Refuse | epoch u32 | |
| 15 | Piece | kind u8, total u32, at u32, crc u32 | payload: a part of one |
| 32 | Note, of no partition | content of [cluster/messages.py](../cluster/messages.py) | |
| 9 to 14, 16 | of the channel journal: [side_frames.py](side_frames.py) | | |
| 17, 18 | of the table of producers: [side_frames.py](side_frames.py) | | |
| 19, 20 | of the repair of a corrupt range: [side_frames.py](side_frames.py) | | |
| 21, 22 | of forwarded publishes: [side_frames.py](side_frames.py) | | |

A chain names the batch before: epoch u32, offset u64, crc u32. Batches are as in the log. An
unknown version or kind ends the link: both sides agreed on their language when it was made.

**A payload** of up to `REPLICA_PIECE_BYTES` is sent with its frame. Of a larger one, all pieces but
the last go ahead as frames 15, in the same session: `kind` is that of the frame to come, `total`
the length of the whole payload, `at` the position of this piece in it. The frame itself carries the
last, and `before` is the number of bytes that went ahead of it. The last number of the fields is
the crc32c of the payload in this frame. It is separate because the payload is the same for all
replicas and the session is not ([chunks.py](chunks.py)). It is 0 in a row and in pieces of one:
each batch has a checksum, which the follower's log verifies before it writes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import PenstockError
from penstock.kernel import crc32c
from penstock.limits import REPLICA_EPOCHS_MAX, REPLICA_FRAME_BYTES_MAX
from penstock.replication.chunks import Assembly, Key, Payload, cut
from penstock.replication.effects import Acknowledge, BeginAt, Hello, MatchAt, Matched, Refuse, Tell
from penstock.replication.journal import HelloJournal, SendRecord
from penstock.replication.matching import Chain, Extent
from penstock.replication.side_frames import (
    ASK_RANGE_KIND,
    BATCH_ANSWERED_KIND,
    BATCH_FIELDS_BYTES,
    BATCH_KIND,
    HAS_TABLE_KIND,
    JOURNAL_KINDS,
    OFFSET_AND_CHAIN,
    RANGE_FIELDS_BYTES,
    RANGE_KIND,
    RECORD_FIELDS_BYTES,
    RECORD_KIND,
    TABLE_FIELDS_BYTES,
    TABLE_KIND,
    AskRange,
    BatchAnswered,
    ForwardFrame,
    HasTable,
    JournalFrame,
    RangeFrame,
    SendBatch,
    SendRange,
    SendTable,
    TableFrame,
    ask_range,
    batch_answered,
    forward_body,
    has_table,
    journal_body,
    journal_frame,
    range_body,
    sent_batch,
    sent_range,
    sent_table,
    table_body,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

VERSION = 1
_PREFIX = struct.Struct(">II")  # length, crc
_HEAD = struct.Struct(">BBHQQ")  # version, kind, partition, identity, session
_LENGTH_MIN = 4 + _HEAD.size
_BUFFER_BYTES = 2 * (4 + REPLICA_FRAME_BYTES_MAX)  # a frame, and most of the next one
_EPOCH = struct.Struct(">IQ")
_HELLO = struct.Struct(">I")
_TELL = struct.Struct(">IQQQQQ")
_OFFSET = struct.Struct(">Q")
_ROW = struct.Struct(">IIQIQQ")
_OF_PAYLOAD = struct.Struct(">II")  # how much of it went ahead, and the crc of what is here
_PIECE = struct.Struct(">BII")  # kind of the frame to come, length of all, place of this
_CRC = struct.Struct(">I")
_ACKNOWLEDGE = struct.Struct(">IQQQ")
_REFUSE = struct.Struct(">I")
_HELLO_KIND, _TELL_KIND, _MATCH_AT_KIND, _BEGIN_AT_KIND = 1, 2, 3, 4
_MATCHED_KIND, _ROW_KIND, _ACKNOWLEDGE_KIND, _REFUSE_KIND = 5, 6, 7, 8
_PIECE_KIND, _NOTE_KIND = 15, 32
# Of kinds with a payload: how long head and fields are.
_FIELDS_ENDS = {
    _ROW_KIND: _HEAD.size + _ROW.size + _OF_PAYLOAD.size,
    RECORD_KIND: _HEAD.size + RECORD_FIELDS_BYTES + _OF_PAYLOAD.size,
    TABLE_KIND: _HEAD.size + TABLE_FIELDS_BYTES + _OF_PAYLOAD.size,
    RANGE_KIND: _HEAD.size + RANGE_FIELDS_BYTES + _OF_PAYLOAD.size,
    BATCH_KIND: _HEAD.size + BATCH_FIELDS_BYTES + _OF_PAYLOAD.size,
    _PIECE_KIND: _HEAD.size + _PIECE.size + _CRC.size,
}


# Which may go in pieces.
_PAYLOAD_KINDS = (_ROW_KIND, RECORD_KIND, TABLE_KIND, RANGE_KIND, BATCH_KIND)


class FrameBroken(PenstockError):
    """What came over a link is no frame: the link ends."""


class Target(NamedTuple):
    """The partition that a frame is about."""

    identity: int
    partition: int


class Row(NamedTuple):
    """Batches that follow `previous`, as they stand in the leader's log; without any, the committed
    end alone. Of one that came over a link, the batches are valid until more is read from there."""

    session: int
    epoch: int
    previous: Chain
    start: int
    batches: bytes | bytearray | memoryview
    committed: int


class Note(NamedTuple):
    """Of a node, not of a partition: `target` is zero, and so is the session."""

    session: int
    data: bytes


NO_TARGET = Target(0, 0)
Encoded = tuple["Buffer", ...]  # one frame: its parts, to be written one behind the other
Frame = (
    Hello
    | Tell
    | MatchAt
    | BeginAt
    | Matched
    | Row
    | Acknowledge
    | Refuse
    | JournalFrame
    | TableFrame
    | RangeFrame
    | ForwardFrame
    | Note
)


# --- to bytes ---


def encode(target: Target, frame: Frame, payload: Payload | None = None) -> list[Encoded]:
    """`payload`: what is behind the fields, where it was cut already for another replica."""
    field = _PAYLOAD_FIELDS.get(type(frame))
    if field is not None:
        payload = payload or cut(getattr(frame, field), is_row=type(frame) is Row)
        return _with_payload(target, frame, payload)
    kind, fields = _fields_of(frame)
    return [(_sealed(target, kind, frame.session, fields),)]


_PAYLOAD_FIELDS: dict[type, str] = {
    Row: "batches",
    SendRecord: "record",
    SendTable: "table",
    SendRange: "batches",
    SendBatch: "batch",
}


def _with_payload(target: Target, frame: Frame, payload: Payload) -> list[Encoded]:
    kind, fields = _fields_of(frame)
    encoded: list[Encoded] = []
    at = 0
    for data, crc in payload.pieces[:-1]:
        piece = _PIECE.pack(kind, payload.length, at) + _CRC.pack(crc)
        encoded.append((_sealed(target, _PIECE_KIND, frame.session, piece, data), data))
        at += memoryview(data).nbytes
    data, crc = payload.pieces[-1]
    fields += _OF_PAYLOAD.pack(at, crc)
    encoded.append((_sealed(target, kind, frame.session, fields, data), data))
    return encoded


def _sealed(target: Target, kind: int, session: int, fields: bytes, payload: Buffer = b"") -> bytes:
    """A frame up to its payload."""
    content = _HEAD.pack(VERSION, kind, target.partition, target.identity, session) + fields
    length = 4 + len(content) + memoryview(payload).nbytes
    if length > REPLICA_FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {length} bytes, at most {REPLICA_FRAME_BYTES_MAX} are sent")
    return _PREFIX.pack(length, crc32c(content)) + content


def _fields_of(frame: Frame) -> tuple[int, bytes]:
    match frame:
        case Row(_, epoch, previous, start, _, committed):
            return _ROW_KIND, _ROW.pack(epoch, *previous, start, committed)
        case Acknowledge(_, epoch, replica, written, synced):
            return _ACKNOWLEDGE_KIND, _ACKNOWLEDGE.pack(epoch, replica, written, synced)
        case Hello(_, _, epoch):
            return _HELLO_KIND, _HELLO.pack(epoch)
        case Tell():
            return _TELL_KIND, _tell_body(frame)
        case MatchAt(_, _, end, chain):
            return _MATCH_AT_KIND, OFFSET_AND_CHAIN.pack(end, *chain)
        case BeginAt(_, _, start):
            return _BEGIN_AT_KIND, _OFFSET.pack(start)
        case Matched(_, end):
            return _MATCHED_KIND, _OFFSET.pack(end)
        case Refuse(_, epoch):
            return _REFUSE_KIND, _REFUSE.pack(epoch)
        case Note(_, data):
            return _NOTE_KIND, data
        case SendTable() | HasTable():
            return table_body(frame)
        case AskRange() | SendRange():
            return range_body(frame)
        case SendBatch() | BatchAnswered():
            return forward_body(frame)
        case _:
            return journal_body(frame)


def _tell_body(frame: Tell) -> bytes:
    extent = frame.extent
    if len(extent.epochs) > REPLICA_EPOCHS_MAX:
        raise ValueError(f"{len(extent.epochs)} epochs, at most {REPLICA_EPOCHS_MAX} are named")
    fields = _TELL.pack(
        frame.epoch, frame.replica, frame.generation, frame.committed, extent.start, extent.end
    )
    return fields + b"".join(_EPOCH.pack(*one) for one in extent.epochs)


# --- from bytes ---


class Frames:
    """What comes over one lane of a link, cut into frames. `node`: where it comes from.

    A socket reads into `space()`, and `filled` says how much came. What is in a frame is copied out
    of there once, and a piece of a payload straight to its place in the whole; a row that is in one
    frame is not copied at all.
    """

    def __init__(self, node: int) -> None:
        self.assembly = Assembly()
        self._node = node
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._end = 0  # of what has come and is no whole frame yet

    def space(self) -> memoryview:
        return self._buffer[self._end :]

    def feed(self, data: Buffer) -> Iterator[tuple[Target, Frame]]:
        """As if a socket had brought it. Rows may be kept."""
        rest = memoryview(data).cast("B")
        while rest:
            space = self.space()
            part, rest = rest[: len(space)], rest[len(space) :]
            space[: len(part)] = part
            for target, frame in self.filled(len(part)):
                if isinstance(frame, Row):
                    frame = frame._replace(batches=bytes(frame.batches))
                yield target, frame

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
            raise FrameBroken(f"a frame of {len(content) + 4} bytes does not have its checksum")
        if version != VERSION:
            raise FrameBroken(f"version {version} of frames is not known here, {VERSION} is")
        target = Target(identity, partition)
        if kind == _ACKNOWLEDGE_KIND and len(content) == _HEAD.size + _ACKNOWLEDGE.size:
            return target, Acknowledge(session, *_ACKNOWLEDGE.unpack_from(content, _HEAD.size))
        fields = bytes(content[_HEAD.size : fields_end])
        if kind not in _FIELDS_ENDS:
            return target, self._frame(target, kind, session, fields)
        if len(content) < fields_end:
            raise FrameBroken(
                f"{_NAMES[kind]} of {len(fields)} bytes, it has {fields_end - _HEAD.size}"
            )
        payload = content[fields_end:]
        is_row = (fields[0] if kind == _PIECE_KIND else kind) == _ROW_KIND
        crc = _CRC.unpack_from(content, fields_end - _CRC.size)[0]
        if not is_row and crc32c(payload) != crc:
            raise FrameBroken(f"a payload of {len(payload)} bytes does not have its checksum")
        try:
            return self._with_payload(target, kind, session, fields, payload)
        except ValueError as error:
            raise FrameBroken(str(error)) from error

    def _with_payload(
        self, target: Target, kind: int, session: int, fields: bytes, payload: memoryview
    ) -> tuple[Target, Frame] | None:
        if kind == _PIECE_KIND:
            of_kind, total, at = _PIECE.unpack_from(fields)
            if of_kind not in _PAYLOAD_KINDS:
                raise FrameBroken(f"pieces of kind {of_kind}, which has no payload")
            self.assembly.add(Key(*target, of_kind), session, total, at, payload)
            return None
        before, _ = _OF_PAYLOAD.unpack_from(fields, len(fields) - _OF_PAYLOAD.size)
        found = self.assembly.finish(Key(*target, kind), session, before, payload)
        if kind == _ROW_KIND:
            return target, _row(session, fields, found)
        whole = found if isinstance(found, bytearray) else bytes(found)
        if kind == RECORD_KIND:
            return target, journal_frame(
                kind, self._node, session, fields[: -_OF_PAYLOAD.size], whole
            )
        if kind == TABLE_KIND:
            return target, sent_table(session, fields, whole)
        if kind == RANGE_KIND:
            return target, sent_range(session, fields, whole)
        return target, sent_batch(session, fields, whole)

    def _frame(self, target: Target, kind: int, session: int, body: bytes) -> Frame:
        decoder = _DECODERS.get(kind)
        if decoder is None:
            raise FrameBroken(f"kind {kind} of frames is not known here")
        try:
            frame = decoder(self._node, session, body)
        except ValueError as error:
            raise FrameBroken(str(error)) from error
        if isinstance(frame, Hello):
            self.assembly.drop_other_sessions(Key(*target, _ROW_KIND), session)
            self.assembly.drop_other_sessions(Key(*target, TABLE_KIND), session)
        elif isinstance(frame, HelloJournal):
            self.assembly.drop_other_sessions(Key(*target, RECORD_KIND), session)
        return frame


def _check_length(length: int) -> None:
    if not _LENGTH_MIN <= length <= REPLICA_FRAME_BYTES_MAX:
        raise FrameBroken(
            f"a frame of {length} bytes: {_LENGTH_MIN} to {REPLICA_FRAME_BYTES_MAX} are allowed"
        )


def _fields(layout: struct.Struct, body: bytes, what: str, rest: bool = False) -> Sequence[int]:
    if len(body) < layout.size or (len(body) > layout.size and not rest):
        raise FrameBroken(f"{what} of {len(body)} bytes, it has {layout.size}")
    return layout.unpack_from(body)


def _hello(node: int, session: int, body: bytes) -> Hello:
    return Hello(node, session, *_fields(_HELLO, body, "a hello"))


def _tell(node: int, session: int, body: bytes) -> Tell:
    fields = _fields(_TELL, body, "a position", rest=True)
    epoch, replica, generation, committed, start, end = fields
    rest = body[_TELL.size :]
    count, remainder = divmod(len(rest), _EPOCH.size)
    if remainder or count > REPLICA_EPOCHS_MAX:
        raise FrameBroken(
            f"{len(rest)} bytes of epochs: at most {REPLICA_EPOCHS_MAX} of {_EPOCH.size} bytes"
        )
    extent = Extent(start, end, tuple(_EPOCH.iter_unpack(rest)))
    _check_extent(extent)
    return Tell(session, epoch, replica, generation, extent, committed)


def _check_extent(extent: Extent) -> None:
    """A position that contradicts itself would be matched to an offset that means nothing."""
    start, end, epochs = extent
    rises = all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(epochs))
    within = epochs[0][1] == start and epochs[-1][1] < end if epochs else start == end
    if not (rises and within):
        raise FrameBroken(f"epochs {epochs} in a log from {start} to {end}")


def _match_at(node: int, session: int, body: bytes) -> MatchAt:
    end, epoch, offset, crc = _fields(OFFSET_AND_CHAIN, body, "a match")
    return MatchAt(node, session, end, Chain(epoch, offset, crc))


def _begin_at(node: int, session: int, body: bytes) -> BeginAt:
    return BeginAt(node, session, *_fields(_OFFSET, body, "a beginning"))


def _matched(node: int, session: int, body: bytes) -> Matched:
    return Matched(session, *_fields(_OFFSET, body, "an answer to a match"))


def _row(session: int, fields: bytes, batches: bytearray | memoryview) -> Row:
    epoch, before, offset, crc, start, committed = _ROW.unpack_from(fields)
    return Row(session, epoch, Chain(before, offset, crc), start, batches, committed)


def _acknowledge(node: int, session: int, body: bytes) -> Acknowledge:
    return Acknowledge(session, *_fields(_ACKNOWLEDGE, body, "an acknowledgement"))


def _refuse(node: int, session: int, body: bytes) -> Refuse:
    return Refuse(session, *_fields(_REFUSE, body, "a refusal"))


_NAMES = {
    _ROW_KIND: "a row",
    RECORD_KIND: "a journal's record",
    TABLE_KIND: "a table of producers",
    RANGE_KIND: "a range",
    BATCH_KIND: "a batch that is handed on",
    _PIECE_KIND: "a piece",
}


def _note(node: int, session: int, body: bytes) -> Note:
    return Note(session, body)


_DECODERS: dict[int, Callable[[int, int, bytes], Frame]] = {
    _HELLO_KIND: _hello,
    _TELL_KIND: _tell,
    _MATCH_AT_KIND: _match_at,
    _BEGIN_AT_KIND: _begin_at,
    _MATCHED_KIND: _matched,
    _ACKNOWLEDGE_KIND: _acknowledge,
    _REFUSE_KIND: _refuse,
    HAS_TABLE_KIND: lambda node, session, body: has_table(session, body),
    ASK_RANGE_KIND: lambda node, session, body: ask_range(session, body),
    BATCH_ANSWERED_KIND: lambda node, session, body: batch_answered(session, body),
    _NOTE_KIND: _note,
    **{kind: partial(journal_frame, kind) for kind in JOURNAL_KINDS},
}
