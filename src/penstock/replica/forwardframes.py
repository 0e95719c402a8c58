"""The frames that bring a publish to the node that leads its partition, and their bytes.

| kind | | fields | then |
|---|---|---|---|
| 21 | SendBatch | number u64, moved u8; before u32, crc u32 | payload: one batch |
| 22 | BatchAnswered | number u64, ending u8, offset u64, id u64 | why it is not stored, UTF-8 |

The session is the life of the node that sends, and `number` counts what it has sent in that life:
so an answer to an earlier life is not taken for one to this life. The batch is as in the log; its
offset, ids, time and epoch are put in by the leader, which answers where its first message is.
`moved` 1: the messages were stored before, and only change their place (dead letters).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from penstock.replica.stageframes import cut_text

BATCH_KIND, BATCH_ANSWERED_KIND = 21, 22
_BATCH = struct.Struct(">QB")
_ANSWERED = struct.Struct(">QBQQ")
BATCH_FIELDS_BYTES = _BATCH.size  # those of its payload are not among them
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
