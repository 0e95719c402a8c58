"""The kernel's output, byte by byte: on disk the batch, the entry of a channel journal and the
record of a trace; on the wire the head of a frame. docs/formats.md has the meaning of the values.

The batch, little-endian, a multiple of 8 bytes long:

    offset  size       field
    0       4          magic `PSB1`
    4       4          crc: crc32c of bytes 8 to the end
    8       4          length: the whole batch, header and padding included
    12      2          flags: bit 0, a trailer follows the bodies
    14      2          producer epoch
    16      8          base offset
    24      8          base id
    32      8          timestamp
    40      8          synced end
    48      8          producer id
    56      4          first sequence
    60      4          leader epoch
    64      4          count
    68      4          bodies: sum of the body lengths
    72      4 x count  lengths
            bodies     end to end
            trailer    sections: type u16, flags u16, length u32 of the payload, payload
            0 to 7     zeros

A batch of one message, with neither trailer nor producer, may have the short form, 40 bytes and the
body. Base offset, base id and timestamp stand where they do in the other one:

    0       4          magic `PSS1`
    4       4          crc: crc32c of bytes 8 to the end
    8       4          body: its length; the batch is 40 bytes longer, up to a multiple of 8
    12      2          leader epoch
    14      2          unsynced: how far the synced end lies below the base offset
    16      8          base offset
    24      8          base id
    32      8          timestamp

Whoever reads or writes one of these in Python takes the layout from here, so that a field cannot
stand in two places. The compiled form has its own structs; a test holds them against these.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

# --- the batch ---

BATCH_MAGIC = b"PSB1"
HEADER = struct.Struct("<4sIIHHQQqQQIIII")  # as BatchHeader, after magic and crc
HEADER_BYTES = HEADER.size
SHORT_MAGIC = b"PSS1"
SHORT_HEADER = struct.Struct("<4sIIHHQQq")
SHORT_HEADER_BYTES = SHORT_HEADER.size
ALIGNMENT_BYTES = 8  # of a batch's beginning and length
LENGTH_FIELD_BYTES = 4  # of one body: what even an empty message costs
FLAG_TRAILER = 1
CRC_AT = 4
CRC_FROM = 8  # the crc covers all behind itself

SECTION_HEADER = struct.Struct("<HHI")  # type, flags, length of the payload
SECTION_BYTES_TYPE_MIN = 64  # sections of lower types hold integers, the others bytes

_HEAD = struct.Struct("<8xIH2xQ40xI")
_BASE_OFFSET = struct.Struct("<16xQ")
_NAME = struct.Struct("<4xI8xQ36xI")
_SHORT_HEAD = struct.Struct("<8xI4xQ")
_SHORT_NAME = struct.Struct("<4xI4xH2xQ")
_MAGIC = struct.Struct("<4s")
_U32_MAX = 0xFFFFFFFF
_EPOCH_AT = 14
_STANDING = struct.Struct("<QQqQQII")  # from base offset to leader epoch
_STANDING_AT = 16


def is_short(data: Buffer, position: int) -> bool:
    """Has the batch at `position` the short form?"""
    return bool(_MAGIC.unpack_from(data, position)[0] == SHORT_MAGIC)


def short_length(body_bytes: int) -> int:
    """The length of a batch in the short form. A batch too long for it wraps to less than its
    body."""
    return -(-(SHORT_HEADER_BYTES + body_bytes) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES & _U32_MAX


def head_at(data: Buffer, position: int) -> tuple[int, int, int, int]:
    """Of the header at `position`: length, flags, base offset, count. Unchecked."""
    if is_short(data, position):
        body_bytes, base_offset = _SHORT_HEAD.unpack_from(data, position)
        return short_length(body_bytes), 0, base_offset, 1
    length, flags, base_offset, count = _HEAD.unpack_from(data, position)
    return length, flags, base_offset, count


def base_offset_at(data: Buffer, position: int) -> int:
    (base_offset,) = _BASE_OFFSET.unpack_from(data, position)
    return int(base_offset)


def name_at(data: Buffer, position: int) -> tuple[int, int, int]:
    """Of the header at `position`: leader epoch, base offset, crc. Unchecked."""
    if is_short(data, position):
        crc, epoch, base_offset = _SHORT_NAME.unpack_from(data, position)
    else:
        crc, base_offset, epoch = _NAME.unpack_from(data, position)
    return epoch, base_offset, crc


def put_position(
    batch: bytearray,
    base_offset: int,
    base_id: int,
    timestamp_ns: int,
    synced_end: int,
    leader_epoch: int = 0,
    producer: tuple[int, int, int] = (0, 0, 0),
) -> None:
    """Write the position into a batch of the long form, and its producer: id, epoch, first
    sequence. Its crc is wrong afterwards."""
    id, epoch, sequence = producer
    batch[_EPOCH_AT:_STANDING_AT] = epoch.to_bytes(_STANDING_AT - _EPOCH_AT, "little")
    position = base_offset, base_id, timestamp_ns, synced_end, id, sequence, leader_epoch
    _STANDING.pack_into(batch, _STANDING_AT, *position)


# --- others on disk ---

JOURNAL_ENTRY = struct.Struct("<BBHIqqQ")  # kind, state, attempts, reserved, a, b, id

# time, message id, offset, trace id, count, topic, channel, client, attempts, partition, kind, 0
TRACE_RECORD = struct.Struct("<qQqQIHHHHHBB")

# --- the wire, big-endian ---

FRAME_HEAD = struct.Struct(">II")  # size of what follows it, type
MESSAGE_HEAD = struct.Struct(">IIqH16s")  # and timestamp, attempts, id: the body comes next
