"""What stands between the id and the body in frames of a client that asked for more.

    extended   extver u8: 4 with headers, and then length u16 BE and the JSON object; else 0
    detailed   offset i64 BE, bytes stored u32 BE (a message's own, as a traced publish tells them)

An extended client of an extended topic gets the first, SUB_ADVANCED and SUB_ORDERED the second;
with both the headers come first.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.kernel.pure.block import Batch
    from penstock.kernel.pure.conn import Conn

_EXT_NONE = b"\x00"
_EXT_JSON = 4
_EXT_HEAD = struct.Struct(">BH")  # version, length
_DETAIL = struct.Struct(">qI")
_HEADERS_BYTES_MAX = 65535  # what the length field can say


def between(conn: Conn, batch: Batch, index: int) -> bytes:
    found = b""
    if conn.extended:
        headers = batch.headers(index)
        if 0 < len(headers) <= _HEADERS_BYTES_MAX:
            found = _EXT_HEAD.pack(_EXT_JSON, len(headers)) + headers
        else:
            found = _EXT_NONE
    if conn.detailed:
        found += _DETAIL.pack(batch.base_offset + index, batch.stored_bytes(index))
    return found
