"""What stands between the id and the body in frames of a client that asked for more.

    enveloped  partition u16 BE, and then as for an extended one; but a message with a key and
               without headers has extver 1, length u16 BE and the key
    extended   extver u8: 4 with headers, and then length u16 BE and the JSON object; else 0
    detailed   offset i64 BE, bytes stored u32 BE (a message's own, as a traced publish tells them)

An extended client of an extended topic gets the second, SUB_ADVANCED and SUB_ORDERED the third,
behind the headers. The first is for clients that ask for an `envelope`, on any topic.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.kernel.pure.block import Batch
    from penstock.kernel.pure.conn import Conn

_EXT_NONE = b"\x00"
_EXT_KEY = 1
_EXT_JSON = 4
_PARTITION = struct.Struct(">H")
_EXT_HEAD = struct.Struct(">BH")  # version, length
_DETAIL = struct.Struct(">qI")
_VALUE_BYTES_MAX = 65535  # what the length field can say


def between(conn: Conn, batch: Batch, index: int, partition: int) -> bytes:
    found = b""
    if conn.enveloped:
        found = _PARTITION.pack(partition)
    if conn.enveloped or conn.extended:
        ext = _ext(_EXT_JSON, batch.headers(index))
        if not ext and conn.enveloped:
            ext = _ext(_EXT_KEY, batch.key(index) or b"")
        found += ext or _EXT_NONE
    if conn.detailed:
        found += _DETAIL.pack(batch.base_offset + index, batch.stored_bytes(index))
    return found


def _ext(version: int, value: bytes) -> bytes:
    """Empty where there is nothing to say."""
    if not 0 < len(value) <= _VALUE_BYTES_MAX:
        return b""
    return _EXT_HEAD.pack(version, len(value)) + value
