"""Several messages in one body, as /mpub brings them (`Pack` of the interface)."""

from __future__ import annotations

import struct

from penstock.kernel.interface import BAD_COUNT, BAD_MESSAGE, Pack

ANY_SIZE = 0x7FFFFFFF
SIZE_BYTES = 4
_read_size = struct.Struct(">i").unpack_from


def messages_of(
    pack: int, body: bytes, count_max: int, message_bytes_max: int
) -> list[bytes] | int:
    """All of them, or what is wrong: BAD_COUNT or BAD_MESSAGE."""
    if Pack(pack) is Pack.FRAMED:
        return _framed(body, count_max, message_bytes_max)
    lines = [line for line in body.split(b"\n") if line]
    return BAD_MESSAGE if lines and max(map(len, lines)) > message_bytes_max else lines


def _framed(body: bytes, count_max: int, message_bytes_max: int) -> list[bytes] | int:
    if len(body) < SIZE_BYTES:
        return BAD_COUNT
    count: int = _read_size(body)[0]
    if not 0 < count <= count_max:
        return BAD_COUNT
    bodies = []
    position = SIZE_BYTES
    for _ in range(count):
        if len(body) - position < SIZE_BYTES:
            return BAD_MESSAGE
        size: int = _read_size(body, position)[0]
        position += SIZE_BYTES
        if not 0 < size <= message_bytes_max or size > len(body) - position:
            return BAD_MESSAGE
        bodies.append(body[position : position + size])
        position += size
    return bodies
