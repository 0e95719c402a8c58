"""The frames that bring a publish to the node that leads its partition, and their bytes.

| kind | | fields | then |
|---|---|---|---|
| 21 | SendBatch | number u64, moved u8; before u32, crc u32 | payload: one batch |
| 22 | BatchAnswered | number u64, ending u8, offset u64, id u64 | why it is not stored, UTF-8 |

The session is the incarnation of the sending node, and `number` counts its batches since then, so
an answer to an earlier incarnation is not taken for one to this incarnation. The batch is as in the
log; the leader fills in its offset, ids, time and epoch, and answers with the position of its first
message. `moved` 1: the messages were stored before, and only change their place (dead letters).

The frames of a request that another node answers, of no partition, and their bytes.

| kind | | fields | then |
|---|---|---|---|
| 23 | SendRequest | number u64; before u32, crc u32 | payload: the request |
| 24 | RequestAnswered | number u64; before u32, crc u32 | payload: the answer |

[nsqd/peer_requests.py](../nsqd/peer_requests.py) has the session and the content.

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
from typing import Any, NamedTuple, get_type_hints

from penstock.log.epochs import BatchName
from penstock.replication.journal import (
    AcknowledgePosition,
    HelloJournal,
    ReportPosition,
    RequestSnapshot,
    RequestSync,
    SendHeld,
    SendRecord,
)

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


class SendRequest(NamedTuple):
    session: int
    number: int
    packed: bytes | bytearray


class RequestAnswered(NamedTuple):
    session: int  # that of the request
    number: int
    packed: bytes | bytearray


class RequestRange(NamedTuple):
    session: int
    start: int
    end: int


class SendRange(NamedTuple):
    session: int
    start: int
    previous: BatchName
    batches: bytes | bytearray

    @property
    def lacks_until(self) -> int:
        """0: it does not report a missing range."""
        return 0 if self.batches else self.previous.offset


def lacking(until: int) -> BatchName:
    """Of an answer without batches."""
    return BatchName(0, until, 0)


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
RequestFrame = SendRequest | RequestAnswered
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


# --- the kinds as a table ---


class FrameKind(NamedTuple):
    number: int
    of: type
    name: str
    layout: struct.Struct
    numbers: Callable[[Any], Sequence[int]]  # its fields
    make: Callable[..., Any]  # of node, session, what follows the fields, and the fields
    payload: str = ""  # what of it follows in chunks
    text: Callable[[Any], bytes] | None = None  # or as it is, of any length


def _cut(text: str) -> bytes:
    """Cut to a valid end of UTF-8."""
    cut = text.encode("utf-8", "replace")[:_REASON_BYTES_MAX]
    return cut.decode("utf-8", "ignore").encode()


def _reason(text: bytes) -> str:
    """Raises ValueError."""
    if len(text) > _REASON_BYTES_MAX:
        raise ValueError(f"a reason of {len(text)} bytes, at most {_REASON_BYTES_MAX} are sent")
    return text.decode("utf-8", "replace")


def flat(
    number: int, of: Any, name: str, layout: str, payload: str = "",
    read: Callable[[bytes], Any] = bytes, text: Callable[[Any], bytes] | None = None,
) -> FrameKind:  # fmt: skip
    """A frame whose fields are numbers, and tuples of them, according to its type. `node` and
    `session` are stored elsewhere, and `payload` follows: in chunks, or as encoded `text`."""
    hints = get_type_hints(of)
    shapes = [(one, hints[one], len(getattr(hints[one], "_fields", ())))
              for one in of._fields if one not in ("node", "session", payload)]  # fmt: skip
    has_node = of._fields[0] == "node"

    def numbers(frame: Any) -> list[int]:
        found: list[int] = []
        for one, _, length in shapes:
            value = getattr(frame, one)
            found += value if length else (value,)
        return found

    def make(node: int, session: int, rest: bytes, *numbers: int) -> Any:
        values: dict[str, Any] = {"session": session} | ({"node": node} if has_node else {})
        at = 0
        for one, kind, length in shapes:
            values[one] = kind(*numbers[at : at + (length or 1)])
            at += length or 1
        if payload:
            values[payload] = rest if text is None else read(rest)
        return of(**values)

    chunks = payload if text is None else ""
    return FrameKind(number, of, name, struct.Struct(layout), numbers, make, chunks, text)


def _of_journal(number: int, of: Any, layout: str) -> FrameKind:
    return flat(number, of, f"a journal's frame of kind {number}", layout)


SIDE_KINDS = (
    _of_journal(9, HelloJournal, ">I"),
    _of_journal(10, ReportPosition, ">I3Q"),
    _of_journal(11, RequestSnapshot, ">I"),
    _of_journal(12, AcknowledgePosition, ">I5Q"),
    flat(13, SendRecord, "a journal's record", ">I4Q", "record"),
    _of_journal(14, SendHeld, ">I2Q"),
    _of_journal(16, RequestSync, ">I2Q"),
    flat(17, SendTable, "a table of producers", ">IQ", "table"),
    flat(18, HasTable, "an answer to a table", ">IQQ"),
    flat(19, RequestRange, "a question for a range", ">QQ"),
    flat(20, SendRange, "a range", ">QIQI", "batches"),
    flat(21, SendBatch, "a batch that is handed on", ">QB", "batch"),
    flat(22, BatchAnswered, "an answer to a batch", ">QBQQ", "reason",
         _reason, lambda it: _cut(it.reason)),
    flat(23, SendRequest, "a request", ">Q", "packed"),
    flat(24, RequestAnswered, "an answer to a request", ">Q", "packed"),
)  # fmt: skip
