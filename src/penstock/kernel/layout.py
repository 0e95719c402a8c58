"""What the kernel writes, byte by byte: on disk the batch, the entry of a channel journal and the
record of a trace; on the wire the head of a frame. docs/formats.md says what the values mean.

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
ALIGNMENT_BYTES = 8  # of a batch's beginning and length
LENGTH_FIELD_BYTES = 4  # of one body: what even an empty message costs
FLAG_TRAILER = 1
CRC_AT = 4
CRC_FROM = 8  # the crc covers all behind itself

SECTION_HEADER = struct.Struct("<HHI")  # type, flags, length of the payload
SECTION_BYTES_TYPE_MIN = 64  # sections of lower types hold integers, the others bytes

_PLACE = struct.Struct("<8xIH2xQ40xI")
_BASE_OFFSET = struct.Struct("<16xQ")
_NAME = struct.Struct("<4xI8xQ36xI")
_EPOCH_AT = 14
_STANDING = struct.Struct("<QQqQQII")  # from base offset to leader epoch
_STANDING_AT = 16


def place_at(data: Buffer, position: int) -> tuple[int, int, int, int]:
    """Of the header at `position`: length, flags, base offset, count. Nothing is checked."""
    length, flags, base_offset, count = _PLACE.unpack_from(data, position)
    return length, flags, base_offset, count


def base_offset_at(data: Buffer, position: int) -> int:
    (base_offset,) = _BASE_OFFSET.unpack_from(data, position)
    return int(base_offset)


def name_at(data: Buffer, position: int) -> tuple[int, int, int]:
    """Of the header at `position`: leader epoch, base offset, crc. Nothing is checked."""
    crc, base_offset, epoch = _NAME.unpack_from(data, position)
    return epoch, base_offset, crc


def put_place(
    batch: bytearray,
    base_offset: int,
    base_id: int,
    timestamp_ns: int,
    synced_end: int,
    leader_epoch: int = 0,
) -> None:
    """Write into a batch where it stands, with no producer; its crc is wrong afterwards."""
    batch[_EPOCH_AT:_STANDING_AT] = bytes(_STANDING_AT - _EPOCH_AT)
    _STANDING.pack_into(
        batch, _STANDING_AT, base_offset, base_id, timestamp_ns, synced_end, 0, 0, leader_epoch
    )


# --- others on disk ---

JOURNAL_ENTRY = struct.Struct("<BBHIqqQ")  # kind, state, attempts, reserved, a, b, id

# time, message id, offset, trace id, count, topic, channel, client, attempts, partition, kind, 0
TRACE_RECORD = struct.Struct("<qQqQIHHHHHBB")

# --- the wire, big-endian ---

FRAME_HEAD = struct.Struct(">II")  # size of what follows it, type
MESSAGE_HEAD = struct.Struct(">IIqH16s")  # and timestamp, attempts, id: the body comes next
