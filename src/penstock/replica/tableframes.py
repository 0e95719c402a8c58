"""The frames that give a learner its leader's table of producers, and their bytes.

| kind | | fields | then |
|---|---|---|---|
| 17 | SendTable | epoch u32, end u64; before u32, crc u32 | payload: the table, as in its file |
| 18 | HasTable | epoch u32, replica u64, end u64 | |

`end` is the offset as of which the table is: all committed batches below it are in it. What the
last two fields of 17 are says the table of `frames`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

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
