"""The frames that bring stages to the replicas of their partition, and their bytes.

| kind | | fields | then |
|---|---|---|---|
| 23 | SendStage | number u64; before u32, crc u32 | payload: the stage's file |
| 24 | StageStored | replica u64, number u64, stored u8 | why it is not stored, UTF-8 |
| 25 | AskStage | replica u64, number u64, 0 u8 | |

The session is the life of the node that sends the frame. A stage's number names one file in its
partition's whole life, so nothing hangs on it but that the pieces of one payload belong together.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

STAGE_KIND, STAGE_STORED_KIND, ASK_STAGE_KIND = 23, 24, 25
_STAGE = struct.Struct(">Q")
_STORED = struct.Struct(">QQB")  # replica, number, stored
STAGE_FIELDS_BYTES = _STAGE.size  # those of its payload are not among them
_REASON_BYTES_MAX = 1024  # longer ones are cut


class SendStage(NamedTuple):
    session: int
    number: int
    file: bytes | bytearray


class StageStored(NamedTuple):
    """To the node that sent it."""

    session: int
    replica: int
    number: int
    reason: str = ""  # why it is not stored; empty: it is, durably


class AskStage(NamedTuple):
    """Of a replica that lacks it."""

    session: int
    replica: int
    number: int


StageFrame = SendStage | StageStored | AskStage


def stage_body(frame: StageFrame) -> tuple[int, bytes]:
    """Kind and fields."""
    match frame:
        case SendStage(_, number, _):
            return STAGE_KIND, _STAGE.pack(number)
        case AskStage(_, replica, number):
            return ASK_STAGE_KIND, _STORED.pack(replica, number, 0)
        case StageStored(_, replica, number, reason):
            fields = _STORED.pack(replica, number, not reason)
            return STAGE_STORED_KIND, fields + cut_text(reason, _REASON_BYTES_MAX)


def cut_text(text: str, bytes_max: int) -> bytes:
    """In UTF-8, without half a character at its end."""
    cut = text.encode("utf-8", "replace")[:bytes_max]
    return cut.decode("utf-8", "ignore").encode()


def sent_stage(session: int, fields: bytes, file: bytes | bytearray) -> SendStage:
    (number,) = _STAGE.unpack_from(fields)
    return SendStage(session, number, file)


def stage_stored(session: int, body: bytes) -> StageStored:
    """Raises ValueError."""
    if not _STORED.size <= len(body) <= _STORED.size + _REASON_BYTES_MAX:
        raise ValueError(
            f"an answer to a stage of {len(body)} bytes, it has {_STORED.size} "
            f"to {_STORED.size + _REASON_BYTES_MAX}"
        )
    replica, number, is_stored = _STORED.unpack_from(body)
    reason = body[_STORED.size :].decode("utf-8", "replace")
    if bool(reason) == bool(is_stored):
        raise ValueError(f"an answer to a stage that is stored: {is_stored}, because: {reason!r}")
    return StageStored(session, replica, number, reason)


def asked_stage(session: int, body: bytes) -> AskStage:
    """Raises ValueError."""
    if len(body) != _STORED.size:
        raise ValueError(f"a question for a stage of {len(body)} bytes, it has {_STORED.size}")
    replica, number, _ = _STORED.unpack(body)
    return AskStage(session, replica, number)
