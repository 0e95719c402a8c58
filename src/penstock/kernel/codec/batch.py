"""The batch of `docs/formats.md`: the result of one group commit, columnar.

    header 72 | lengths u32 x count | bodies | trailer | zeros up to a multiple of 8
    short header 40 | body | zeros up to a multiple of 8

A batch is believed only after `check_batch` called it intact: the crc covers all but the magic and
itself, and the numbers fit each other to the byte. The decoders check the numbers again, but not
the crc, so that they never read outside the batch whatever they are given.

Ids take no space: an id is `tick << 22 | node << 12 | sequence`, and message i of a batch stands
i steps after the base id, where a step past sequence 4095 goes to sequence 0 of the next tick.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from penstock.kernel.codec.hashes import crc32c
from penstock.kernel.codec.sections import (
    MalformedTrailer,
    Table,
    decode_table,
    decode_trailer,
    encode_sections,
    split_trailer,
)
from penstock.kernel.layout import (
    ALIGNMENT_BYTES,
    BATCH_MAGIC,
    CRC_AT,
    CRC_FROM,
    FLAG_TRAILER,
    HEADER,
    HEADER_BYTES,
    SHORT_HEADER,
    SHORT_HEADER_BYTES,
    SHORT_MAGIC,
    head_at,
    is_short,
    short_length,
)
from penstock.kernel.types import BatchCheck, BatchHeader

if TYPE_CHECKING:
    from typing_extensions import Buffer

OFFSET_MAX = (1 << 63) - 1  # offsets are i64 in Arrow, in Spark and in the journal

_U32_MAX = 0xFFFFFFFF
_U64_MAX = 0xFFFFFFFFFFFFFFFF
_SEQUENCE_BITS = 12
_SEQUENCE_MASK = 0xFFF
_NODE_MASK = 0x3FF << _SEQUENCE_BITS
_TICK_SHIFT = 22
_TICK_MASK = (1 << 42) - 1
_TICK_NS_BITS = 20
_TICK_EPOCH = 1288834974288  # NSQ's choice (`ids/guid.py`)
_TICK_MAX = (1 << 41) - 1  # an id stays positive as a signed 64-bit number


# --- ids ---


def id_at(base_id: int, index: int) -> int:
    """The id of message `index` of a batch from `base_id`."""
    if not 0 <= base_id <= _U64_MAX or not 0 <= index <= _U64_MAX:
        raise OverflowError(f"id_at({base_id}, {index})")
    steps = (base_id & _SEQUENCE_MASK) + index
    tick = (base_id >> _TICK_SHIFT) + (steps >> _SEQUENCE_BITS) & _TICK_MASK
    return tick << _TICK_SHIFT | base_id & _NODE_MASK | steps & _SEQUENCE_MASK


def id_index(base_id: int, count: int, id: int) -> int:
    """The index of `id` in a batch of `count` from `base_id`, or -1."""
    if not (0 <= base_id <= _U64_MAX and 0 <= count <= _U32_MAX and 0 <= id <= _U64_MAX):
        raise OverflowError(f"id_index({base_id}, {count}, {id})")
    if (base_id ^ id) & _NODE_MASK:
        return -1
    ticks = (id >> _TICK_SHIFT) - (base_id >> _TICK_SHIFT) & _TICK_MASK
    index = (ticks << _SEQUENCE_BITS) + (id & _SEQUENCE_MASK) - (base_id & _SEQUENCE_MASK)
    return index if 0 <= index < count else -1


def id_above(last_id: int, node_id: int, wall_ns: int) -> int:
    """The id that a node gives out at that time, above `last_id`, which another may have given out;
    a clock before 2012 or after 2085 counts as the edge."""
    if not 0 <= last_id <= _U64_MAX:
        raise OverflowError(f"id_above({last_id})")
    tick = min(max((wall_ns >> _TICK_NS_BITS) - _TICK_EPOCH, 1), _TICK_MAX)
    node_bits = node_id << _SEQUENCE_BITS & _NODE_MASK
    id = tick << _TICK_SHIFT | node_bits
    if id > last_id:
        return id
    last_node_bits = last_id & _NODE_MASK
    if node_bits == last_node_bits and last_id & _SEQUENCE_MASK != _SEQUENCE_MASK:
        return last_id + 1
    tick = (last_id >> _TICK_SHIFT) + (node_bits <= last_node_bits) & _TICK_MASK
    return tick << _TICK_SHIFT | node_bits


# --- encode ---


def encode_batch(
    bodies: Sequence[bytes],
    base_offset: int,
    base_id: int,
    timestamp_ns: int,
    synced_end: int = 0,
    leader_epoch: int = 0,
    producer_id: int = 0,
    producer_epoch: int = 0,
    first_sequence: int = 0,
    sections: Mapping[int, Mapping[int, int | bytes]] | None = None,
) -> bytes:
    """One whole batch. ValueError for invalid input, OverflowError for too large a number."""
    count = len(bodies)
    if count == 0:
        raise ValueError("a batch holds at least one message")
    trailer = encode_sections(sections, count) if sections else b""
    lengths = struct.pack(f"<{count}I", *map(len, bodies))
    return assemble(
        count,
        b"".join((lengths, *bodies)),
        trailer,
        base_offset,
        base_id,
        timestamp_ns,
        synced_end,
        leader_epoch,
        producer_id,
        producer_epoch,
        first_sequence,
    )


def assemble(
    count: int,
    messages: bytes,
    trailer: bytes,
    base_offset: int,
    base_id: int,
    timestamp_ns: int,
    synced_end: int = 0,
    leader_epoch: int = 0,
    producer_id: int = 0,
    producer_epoch: int = 0,
    first_sequence: int = 0,
) -> bytes:
    """A batch of `messages` (lengths, then bodies) and a valid trailer."""
    if base_offset > OFFSET_MAX - count:
        raise OverflowError("batch header: offsets have 63 bits")
    content = messages + trailer
    padding = -len(content) % ALIGNMENT_BYTES  # the header is a multiple of 8 itself
    try:
        header = HEADER.pack(
            BATCH_MAGIC,
            0,
            HEADER_BYTES + len(content) + padding,
            FLAG_TRAILER if trailer else 0,
            producer_epoch,
            base_offset,
            base_id,
            timestamp_ns,
            synced_end,
            producer_id,
            first_sequence,
            leader_epoch,
            count,
            len(messages) - 4 * count,
        )
    except struct.error as error:
        raise OverflowError(f"batch header: {error}") from error
    covered = b"".join((header[CRC_FROM:], content, bytes(padding)))
    return BATCH_MAGIC + crc32c(covered).to_bytes(4, "little") + covered


def blank(length: int) -> bytearray:
    """A buffer to read batches into. Its content is undefined: the compiled form is not filled with
    zeros, which would cost an eighth of the reading."""
    return bytearray(length)


# --- check ---


def check_batch(data: Buffer, position: int) -> tuple[int, int]:
    """(BatchCheck, length): length is the batch's own claim, 0 when unknown."""
    view = _view_from(data, position)
    if view[:4] not in (BATCH_MAGIC[: len(view)], SHORT_MAGIC[: len(view)]):
        return BatchCheck.NO_MAGIC, 0
    if len(view) < _header_bytes(view):
        return BatchCheck.SHORT, _claimed(view) if len(view) >= 12 else 0
    header = _unpack(view)
    length = header.length
    if not _fields_fit(view, header):
        return BatchCheck.BAD_FIELDS, length
    if len(view) < length:
        return BatchCheck.SHORT, length
    batch = view[:length]
    if crc32c(batch[CRC_FROM:]) != int.from_bytes(batch[CRC_AT:CRC_FROM], "little"):
        return BatchCheck.BAD_CRC, length
    if sum(body_lengths(batch, header)) != header.bodies_length or not _trailer_fits(batch, header):
        return BatchCheck.BAD_FIELDS, length
    return BatchCheck.INTACT, length


def check_batches(data: Buffer, expected: int, limit: int | None = None) -> tuple[int, int, int]:
    """The extent of intact batches from the beginning of `data`, the first of them at offset
    `expected` and each behind the one before, up to offset `limit` at most: (bytes, next offset),
    and the length claimed by a last, partial batch (0: unknown)."""
    view = memoryview(data)
    position = claimed = 0
    while position < len(view) and expected != limit:
        status, length = check_batch(view, position)
        if status != BatchCheck.INTACT:
            claimed = length if status == BatchCheck.SHORT else 0
            break
        _, _, base_offset, count = head_at(view, position)
        if base_offset != expected:
            break
        expected += count
        position += length
    return position, expected, claimed


def _header_bytes(view: memoryview) -> int:
    return SHORT_HEADER_BYTES if view[:4] == SHORT_MAGIC else HEADER_BYTES


def _claimed(view: memoryview) -> int:
    length = int.from_bytes(view[8:12], "little")
    return short_length(length) if view[:4] == SHORT_MAGIC else length


def _fields_fit(view: memoryview, header: BatchHeader) -> bool:
    """Checks of the header alone."""
    trailer_at = _trailer_at(view, header)
    slack = header.length - trailer_at
    has_trailer = header.flags & FLAG_TRAILER
    return (
        header.count > 0
        and header.length % ALIGNMENT_BYTES == 0
        and header.flags & ~FLAG_TRAILER == 0
        and header.base_offset <= OFFSET_MAX - header.count
        and (header.synced_end <= header.base_offset or not is_short(view, 0))
        and (slack >= 0 if has_trailer else 0 <= slack < ALIGNMENT_BYTES)
    )


def _trailer_fits(batch: memoryview, header: BatchHeader) -> bool:
    trailer = batch[_trailer_at(batch, header) :]
    if not header.flags & FLAG_TRAILER:
        return not any(trailer)
    try:
        for type_, payload in split_trailer(trailer):
            decode_table(type_, payload, header.count)
    except MalformedTrailer:
        return False
    return True


# --- decode ---


def decode_header(data: Buffer, position: int) -> BatchHeader:
    """The header at `position`, its numbers not checked. ValueError where no batch begins."""
    view = _view_from(data, position)
    if view[:4] not in (BATCH_MAGIC, SHORT_MAGIC) or len(view) < _header_bytes(view):
        raise ValueError(f"no batch header at {position}")
    return _unpack(view)


def decode_bodies(data: Buffer, position: int) -> list[bytes]:
    batch, header = open_batch(data, position)
    lengths = body_lengths(batch, header)
    ends = accumulate(lengths, initial=bodies_at(batch, header))
    return [bytes(batch[start:end]) for start, end in pairwise(ends)]


def decode_sections(data: Buffer, position: int) -> dict[int, Table]:
    batch, header = open_batch(data, position)
    if not header.flags & FLAG_TRAILER:
        return {}
    return decode_trailer(batch[_trailer_at(batch, header) :], header.count)


def open_batch(data: Buffer, position: int) -> tuple[memoryview, BatchHeader]:
    """The batch at `position` with all numbers checked but the crc and the trailer."""
    header = decode_header(data, position)
    view = _view_from(data, position)
    batch = view[: header.length]
    if (
        not _fields_fit(view, header)
        or len(batch) < header.length
        or sum(body_lengths(batch, header)) != header.bodies_length
    ):
        raise ValueError(f"no whole batch at {position}")
    return batch, header


def body_lengths(batch: memoryview, header: BatchHeader) -> tuple[int, ...]:
    if is_short(batch, 0):
        return (header.bodies_length,)
    return struct.unpack_from(f"<{header.count}I", batch, HEADER_BYTES)


def bodies_at(batch: memoryview, header: BatchHeader) -> int:
    return SHORT_HEADER_BYTES if is_short(batch, 0) else HEADER_BYTES + 4 * header.count


def _trailer_at(batch: memoryview, header: BatchHeader) -> int:
    return bodies_at(batch, header) + header.bodies_length


def _unpack(view: memoryview) -> BatchHeader:
    if is_short(view, 0):
        _, _, size, epoch, unsynced, offset, id, timestamp_ns = SHORT_HEADER.unpack_from(view)
        length, synced_end = short_length(size), offset - unsynced & _U64_MAX
        return BatchHeader(length, 0, 0, offset, id, timestamp_ns, synced_end, 0, 0, epoch, 1, size)
    return BatchHeader._make(HEADER.unpack_from(view)[2:])


def _view_from(data: Buffer, position: int) -> memoryview:
    if position < 0:
        raise ValueError(f"position {position} is negative")
    return memoryview(data).cast("B")[position:]
