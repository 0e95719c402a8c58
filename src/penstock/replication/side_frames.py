"""The frames that bring a publish to the node that leads its partition, and their bytes.

| kind | | fields | then |
|---|---|---|---|
| 21 | SendBatch | number u64, moved u8; before u32, crc u32 | payload: one batch |
| 22 | BatchAnswered | number u64, ending u8, offset u64, id u64 | why it is not stored, UTF-8 |

The session is the life of the sending node, and `number` counts its batches in that life, so an
answer to an earlier incarnation is not taken for one to this incarnation. The batch is as in the
log; the leader fills in its offset, ids, time and epoch, and answers with the place of its first
message. `moved` 1: the messages were stored before, and only change their place (dead letters).

The frames that fetch a corrupt range from another replica, and their bytes.

| kind | | fields | then |
|---|---|---|---|
| 19 | AskRange | start u64, end u64 | |
| 20 | SendRange | start u64; chain; before u32, crc u32 | payload: batches, or none |

The session is the number of the question, which the answer repeats. A chain is the batch before
`start`; the table of `frames` explains the last two fields of 20. An answer without batches has (0,
`lacks_until`, 0) in its chain: this replica will never have any of [start, lacks_until): the range
is corrupt there as well, or removed. A 0 there makes no such claim: the range is not known to be
committed so far, or is unreadable just now.

The frames that give a learner its leader's table of producers, and their bytes.

| kind | | fields | then |
|---|---|---|---|
| 17 | SendTable | epoch u32, end u64; before u32, crc u32 | payload: the table, as in its file |
| 18 | HasTable | epoch u32, replica u64, end u64 | |

The table contains all committed batches below the offset `end`. The table of `frames` explains the
last two fields of 17.

The bytes of a channel journal's frames: fields and rest, as in the table of `frames`.

| kind | | fields | then |
|---|---|---|---|
| 9 | HelloJournal | epoch u32 | |
| 10 | TellPlace | epoch u32, replica u64, place | |
| 11 | AskSnapshot | epoch u32 | |
| 12 | AcknowledgePlace | epoch u32, replica u64, written place, synced place | |
| 13 | SendRecord | epoch u32, place, held place; before u32, crc u32 | payload: the record |
| 14 | SendHeld | epoch u32, held place | |
| 16 | AskSync | epoch u32, place | |

A place is generation u64 and sequence u64. A record is as in the leader's file; the table of
`frames` explains how it is sent, and the last two fields of 13. The receiving file
(`log.follower_journal`) refuses a record that is invalid or of another place.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from penstock.log.fold import Position
from penstock.replication.journal import (
    AcknowledgePlace,
    AskSnapshot,
    AskSync,
    HelloJournal,
    SendHeld,
    SendRecord,
    TellPlace,
)
from penstock.replication.matching import Chain

_REASON_BYTES_MAX = 1024  # longer ones are cut


def cut_text(text: str, bytes_max: int) -> bytes:
    """In UTF-8, without half a character at its end."""
    cut = text.encode("utf-8", "replace")[:bytes_max]
    return cut.decode("utf-8", "ignore").encode()


BATCH_KIND, BATCH_ANSWERED_KIND = 21, 22
_BATCH = struct.Struct(">QB")
_ANSWERED = struct.Struct(">QBQQ")
BATCH_FIELDS_BYTES = _BATCH.size  # those of its payload are not among them


class Ending(IntEnum):
    STORED = 1  # as safe as the topic's durability says
    REFUSED = 2  # nothing is stored
    UNKNOWN = 3  # the leadership ended before it was committed
    NOT_LED = 4  # nothing is stored: another node leads the partition, or none


class SendBatch(NamedTuple):
    session: int
    number: int
    moved: bool
    batch: bytes | bytearray


class BatchAnswered(NamedTuple):
    session: int  # that of the batch
    number: int
    ending: Ending
    offset: int = 0  # of its first message, where it was stored
    id: int = 0
    reason: str = ""


ForwardFrame = SendBatch | BatchAnswered


def forward_body(frame: ForwardFrame) -> tuple[int, bytes]:
    """Kind and fields."""
    if isinstance(frame, SendBatch):
        return BATCH_KIND, _BATCH.pack(frame.number, frame.moved)
    fields = _ANSWERED.pack(frame.number, frame.ending, frame.offset, frame.id)
    return BATCH_ANSWERED_KIND, fields + cut_text(frame.reason, _REASON_BYTES_MAX)


def sent_batch(session: int, fields: bytes, batch: bytes | bytearray) -> SendBatch:
    number, moved = _BATCH.unpack_from(fields)
    return SendBatch(session, number, bool(moved), batch)


def batch_answered(session: int, body: bytes) -> BatchAnswered:
    """Raises ValueError."""
    if not _ANSWERED.size <= len(body) <= _ANSWERED.size + _REASON_BYTES_MAX:
        raise ValueError(
            f"an answer to a batch of {len(body)} bytes, it has {_ANSWERED.size} "
            f"to {_ANSWERED.size + _REASON_BYTES_MAX}"
        )
    number, ending, offset, id = _ANSWERED.unpack_from(body)
    reason = body[_ANSWERED.size :].decode("utf-8", "replace")
    return BatchAnswered(session, number, Ending(ending), offset, id, reason)


ASK_RANGE_KIND, RANGE_KIND = 19, 20
_ASK = struct.Struct(">QQ")
OFFSET_AND_CHAIN = struct.Struct(">QIQI")
RANGE_FIELDS_BYTES = OFFSET_AND_CHAIN.size  # those of its payload are not among them


def lacking(until: int) -> Chain:
    """Of an answer without batches."""
    return Chain(0, until, 0)


class AskRange(NamedTuple):
    session: int
    start: int
    end: int


class SendRange(NamedTuple):
    session: int
    start: int
    previous: Chain
    batches: bytes | bytearray

    @property
    def lacks_until(self) -> int:
        """0: it does not say that it lacks any of it."""
        return 0 if self.batches else self.previous.offset


RangeFrame = AskRange | SendRange


def range_body(frame: RangeFrame) -> tuple[int, bytes]:
    """Kind and fields."""
    if isinstance(frame, AskRange):
        return ASK_RANGE_KIND, _ASK.pack(frame.start, frame.end)
    return RANGE_KIND, OFFSET_AND_CHAIN.pack(frame.start, *frame.previous)


def sent_range(session: int, fields: bytes, batches: bytes | bytearray) -> SendRange:
    start, *chain = OFFSET_AND_CHAIN.unpack_from(fields)
    return SendRange(session, start, Chain(*chain), batches)


def ask_range(session: int, body: bytes) -> AskRange:
    """Raises ValueError."""
    if len(body) != _ASK.size:
        raise ValueError(f"a question for a range of {len(body)} bytes, it has {_ASK.size}")
    return AskRange(session, *_ASK.unpack(body))


TABLE_KIND, HAS_TABLE_KIND = 17, 18
_TABLE = struct.Struct(">IQ")
_HAS_TABLE = struct.Struct(">IQQ")
TABLE_FIELDS_BYTES = _TABLE.size  # those of its payload are not among them


class SendTable(NamedTuple):
    session: int
    epoch: int
    end: int
    table: bytes | bytearray


class HasTable(NamedTuple):
    """The replica has installed it, durably."""

    session: int
    epoch: int
    replica: int
    end: int


TableFrame = SendTable | HasTable


def table_body(frame: TableFrame) -> tuple[int, bytes]:
    """Kind and fields."""
    if isinstance(frame, SendTable):
        return TABLE_KIND, _TABLE.pack(frame.epoch, frame.end)
    return HAS_TABLE_KIND, _HAS_TABLE.pack(frame.epoch, frame.replica, frame.end)


def sent_table(session: int, fields: bytes, table: bytes | bytearray) -> SendTable:
    epoch, end = _TABLE.unpack_from(fields)
    return SendTable(session, epoch, end, table)


def has_table(session: int, body: bytes) -> HasTable:
    """Raises ValueError."""
    if len(body) != _HAS_TABLE.size:
        raise ValueError(f"an answer to a table of {len(body)} bytes, it has {_HAS_TABLE.size}")
    return HasTable(session, *_HAS_TABLE.unpack(body))


JournalFrame = (
    HelloJournal | TellPlace | AskSnapshot | AcknowledgePlace | SendRecord | SendHeld | AskSync
)

# Each begins with the epoch; so many numbers of 8 bytes follow.
_NUMBERS = {9: 0, 10: 3, 11: 0, 12: 5, 13: 4, 14: 2, 16: 2}
_LAYOUTS = {kind: struct.Struct(f">I{count}Q") for kind, count in _NUMBERS.items()}
RECORD_KIND = 13
RECORD_FIELDS_BYTES = _LAYOUTS[RECORD_KIND].size  # those of its payload are not among them
JOURNAL_KINDS = tuple(_LAYOUTS)


def journal_body(frame: JournalFrame) -> tuple[int, bytes]:
    """Kind and fields."""
    match frame:
        case HelloJournal(_, _, epoch):
            return _packed(9, epoch)
        case TellPlace(_, epoch, replica, place):
            return _packed(10, epoch, replica, *place)
        case AskSnapshot(_, epoch):
            return _packed(11, epoch)
        case AcknowledgePlace(_, epoch, replica, written, synced):
            return _packed(12, epoch, replica, *written, *synced)
        case SendRecord(_, _, epoch, place, _, held):
            return _packed(RECORD_KIND, epoch, *place, *held)
        case SendHeld(_, _, epoch, held):
            return _packed(14, epoch, *held)
        case AskSync(_, _, epoch, place):
            return _packed(16, epoch, *place)


def _packed(kind: int, *fields: int) -> tuple[int, bytes]:
    return kind, _LAYOUTS[kind].pack(*fields)


def journal_frame(
    kind: int, node: int, session: int, fields: bytes, record: bytes | bytearray = b""
) -> JournalFrame:
    """Raises ValueError when the fields are not whole, or more follows than there is."""
    layout = _LAYOUTS[kind]
    if len(fields) != layout.size:
        raise ValueError(
            f"a journal's frame of kind {kind} of {len(fields)} bytes, it has {layout.size}"
        )
    return _frame(kind, node, session, layout.unpack(fields), record)


def _frame(
    kind: int, node: int, session: int, fields: Sequence[int], record: bytes | bytearray
) -> JournalFrame:
    match kind, *fields:
        case 9, epoch:
            return HelloJournal(node, session, epoch)
        case 10, epoch, replica, generation, sequence:
            return TellPlace(session, epoch, replica, Position(generation, sequence))
        case 11, epoch:
            return AskSnapshot(session, epoch)
        case 12, epoch, replica, *two:
            return AcknowledgePlace(session, epoch, replica, *_two_places(two))
        case 13, epoch, *two:
            place, held = _two_places(two)
            return SendRecord(node, session, epoch, place, record, held)
    epoch, *numbers = fields
    make = SendHeld if kind == 14 else AskSync
    return make(node, session, epoch, Position(*numbers))


def _two_places(numbers: Sequence[int]) -> tuple[Position, Position]:
    return Position(*numbers[:2]), Position(*numbers[2:])
