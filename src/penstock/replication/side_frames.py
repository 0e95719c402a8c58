"""The frames that bring a publish to the node that leads its partition, and their bytes.

| kind | | fields | then |
|---|---|---|---|
| 21 | SendBatch | number u64, moved u8; before u32, crc u32 | payload: one batch |
| 22 | BatchAnswered | number u64, ending u8, offset u64, id u64 | why it is not stored, UTF-8 |

The session is the life of the sending node, and `number` counts its batches in that life, so an
answer to an earlier incarnation is not taken for one to this incarnation. The batch is as in the
log; the leader fills in its offset, ids, time and epoch, and answers with the position of its first
message. `moved` 1: the messages were stored before, and only change their place (dead letters).

The frames that fetch a corrupt range from another replica, and their bytes.

| kind | | fields | then |
|---|---|---|---|
| 19 | RequestRange | start u64, end u64 | |
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
| 10 | ReportPosition | epoch u32, replica u64, position | |
| 11 | RequestSnapshot | epoch u32 | |
| 12 | AcknowledgePosition | epoch u32, replica u64, written position, synced position | |
| 13 | SendRecord | epoch u32, position, held position; before u32, crc u32 | payload: the record |
| 14 | SendHeld | epoch u32, held position | |
| 16 | RequestSync | epoch u32, position | |

A position is generation u64 and sequence u64. A record is as in the leader's file; the table of
`frames` explains how it is sent, and the last two fields of 13. The receiving file
(`log.follower_journal`) refuses a record that is invalid or of another position.
"""

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from operator import itemgetter
from typing import Any, NamedTuple

from penstock.log.fold import Position
from penstock.replication.journal import (
    AcknowledgePosition,
    HelloJournal,
    ReportPosition,
    RequestSnapshot,
    RequestSync,
    SendHeld,
    SendRecord,
)
from penstock.replication.matching import Chain

OFFSET_AND_CHAIN = struct.Struct(">QIQI")
_REASON_BYTES_MAX = 1024  # longer ones are cut


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


class RequestRange(NamedTuple):
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


def lacking(until: int) -> Chain:
    """Of an answer without batches."""
    return Chain(0, until, 0)


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


ForwardFrame = SendBatch | BatchAnswered
RangeFrame = RequestRange | SendRange
TableFrame = SendTable | HasTable
JournalFrame = (
    HelloJournal
    | ReportPosition
    | RequestSnapshot
    | AcknowledgePosition
    | SendRecord
    | SendHeld
    | RequestSync
)
JOURNAL_KINDS = (9, 10, 11, 12, 13, 14, 16)


# --- the kinds as a table ---


class FrameKind(NamedTuple):
    """How a frame becomes bytes, and is made of them again."""

    number: int
    of: type
    name: str
    layout: struct.Struct
    numbers: Callable[[Any], Sequence[int]]  # its fields
    make: Callable[..., Any]  # of node, session, what follows the fields, and the fields
    payload: str = ""  # what of it follows in pieces
    text: Callable[[Any], bytes] | None = None  # or as it is, of any length


def flat(number: int, of: Any, name: str, layout: str) -> FrameKind:
    """Its fields are the numbers behind its session."""
    if of._fields[0] == "node":
        return FrameKind(number, of, name, struct.Struct(layout), itemgetter(slice(2, None)),
                    lambda node, session, _, *numbers: of(node, session, *numbers))  # fmt: skip
    return FrameKind(number, of, name, struct.Struct(layout), itemgetter(slice(1, None)),
                lambda node, session, _, *numbers: of(session, *numbers))  # fmt: skip


def _of_journal(
    number: int, of: type, layout: str, numbers: Callable[[Any], Sequence[int]],
    make: Callable[..., Any],
) -> FrameKind:  # fmt: skip
    return FrameKind(number, of, _journals(number), struct.Struct(layout), numbers, make)


def _journals(number: int) -> str:
    return f"a journal's frame of kind {number}"


SIDE_KINDS = (
    flat(9, HelloJournal, _journals(9), ">I"),
    _of_journal(10, ReportPosition, ">I3Q", lambda it: (it.epoch, it.replica, *it.position),
                lambda _, session, __, epoch, replica, *position:
                ReportPosition(session, epoch, replica, Position(*position))),
    flat(11, RequestSnapshot, _journals(11), ">I"),
    _of_journal(12, AcknowledgePosition, ">I5Q",
                lambda it: (it.epoch, it.replica, *it.written, *it.synced),
                lambda _, session, __, epoch, replica, *two: AcknowledgePosition(
                    session, epoch, replica, Position(*two[:2]), Position(*two[2:]))),
    FrameKind(13, SendRecord, "a journal's record", struct.Struct(">I4Q"),
         lambda it: (it.epoch, *it.position, *it.held),
         lambda node, session, record, epoch, *two: SendRecord(
             node, session, epoch, Position(*two[:2]), record, Position(*two[2:])), "record"),
    _of_journal(14, SendHeld, ">I2Q", lambda it: (it.epoch, *it.held),
                lambda node, session, _, epoch, *held:
                SendHeld(node, session, epoch, Position(*held))),
    _of_journal(16, RequestSync, ">I2Q", lambda it: (it.epoch, *it.position),
                lambda node, session, _, epoch, *position:
                RequestSync(node, session, epoch, Position(*position))),
    FrameKind(17, SendTable, "a table of producers", struct.Struct(">IQ"),
         lambda it: (it.epoch, it.end),
         lambda _, session, table, epoch, end: SendTable(session, epoch, end, table), "table"),
    flat(18, HasTable, "an answer to a table", ">IQQ"),
    flat(19, RequestRange, "a question for a range", ">QQ"),
    FrameKind(20, SendRange, "a range", OFFSET_AND_CHAIN, lambda it: (it.start, *it.previous),
         lambda _, session, batches, start, *chain:
         SendRange(session, start, Chain(*chain), batches), "batches"),
    FrameKind(21, SendBatch, "a batch that is handed on", struct.Struct(">QB"),
         lambda it: (it.number, it.moved),
         lambda _, session, batch, number, moved: SendBatch(session, number, bool(moved), batch),
         "batch"),
    FrameKind(22, BatchAnswered, "an answer to a batch", struct.Struct(">QBQQ"), lambda it: it[1:5],
         lambda _, session, reason, number, ending, offset, id: BatchAnswered(
             session, number, Ending(ending), offset, id, _reason(reason)),
         text=lambda it: _cut(it.reason)),
)  # fmt: skip


def _cut(text: str) -> bytes:
    """In UTF-8, without half a character at its end."""
    cut = text.encode("utf-8", "replace")[:_REASON_BYTES_MAX]
    return cut.decode("utf-8", "ignore").encode()


def _reason(text: bytes) -> str:
    """Raises ValueError."""
    if len(text) > _REASON_BYTES_MAX:
        raise ValueError(f"a reason of {len(text)} bytes, at most {_REASON_BYTES_MAX} are sent")
    return text.decode("utf-8", "replace")
