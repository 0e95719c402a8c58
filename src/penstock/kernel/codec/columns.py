"""Batches as Arrow-shaped columns, for readers that want rows by the million; and back.

The bodies of a batch are already what Arrow calls the values of a binary column, and its value
offsets are a running sum of the lengths; the other columns follow from the header, and a
trailer's sections overwrite single entries; those of bytes, keys and headers, are columns of their
own, made when they are asked for. Every batch is checked first: a reader gets all rows
or an error that names the position of the batch it does not believe.

The way back takes the same columns and makes one batch. The trailer comes ready made: whoever has
columns has those of its sections too.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from penstock.kernel.codec.batch import (
    assemble,
    bodies_at,
    body_lengths,
    check_batch,
    decode_sections,
    id_at,
    open_batch,
)
from penstock.kernel.codec.sections import MalformedTrailer, Table, decode_trailer
from penstock.kernel.layout import SECTION_BYTES_TYPE_MIN
from penstock.kernel.types import BatchCheck, Columns, Section, Values

if TYPE_CHECKING:
    from typing_extensions import Buffer

_ATTEMPTS_MAX = 0xFFFF  # attempts are a u16 on the wire


def decode_columns(data: Buffer, sections: Sequence[int] = ()) -> Columns:
    """Whole intact batches -> columns. ValueError names the position of one that is not intact.
    `sections` are of bytes: each becomes a column, too."""
    view = memoryview(data).cast("B")
    for section in sections:
        if section < SECTION_BYTES_TYPE_MIN:
            raise ValueError(f"section {section} holds no bytes")
    found: list[dict[int, bytes]] = [{} for _ in sections]
    offsets, timestamps, ids, attempts, body_offsets, bodies = (bytearray() for _ in range(6))
    columns = Columns(0, offsets, timestamps, ids, attempts, body_offsets, bodies)
    columns.body_offsets.extend(bytes(8))
    position = 0
    count = 0
    while position < len(view):
        check, length = check_batch(view, position)
        if check != BatchCheck.INTACT:
            raise ValueError(f"batch at {position}: {BatchCheck(check).name}")
        own = decode_sections(view, position)
        for wanted, values in zip(sections, found, strict=True):
            table = own.get(wanted, {})
            values.update({count + index: bytes(table[index]) for index in table})
        count += _append_batch(columns, view, position, own)
        position += length
    made = tuple(_values(values, count) if values else None for values in found)
    return columns._replace(count=count, sections=made)


def _values(values: Mapping[int, bytes], count: int) -> Values:
    present = bytearray(-(-count // 8))
    for index in values:
        present[index >> 3] |= 1 << (index & 7)
    listed = [values.get(index, b"") for index in range(count)]
    ends = accumulate(map(len, listed), initial=0)
    offsets = bytearray(struct.pack(f"<{count + 1}q", *ends))
    return Values(present, offsets, bytearray().join(listed))


def _append_batch(
    columns: Columns, view: memoryview, position: int, sections: Mapping[int, Table]
) -> int:
    batch, header = open_batch(view, position)
    count = header.count
    first = header.base_offset
    own_timestamps = sections.get(Section.TIMESTAMP, {})
    own_ids = sections.get(Section.ID, {})
    attempts = {
        index: min(max(int(value), 0), _ATTEMPTS_MAX)
        for index, value in sections.get(Section.ATTEMPTS, {}).items()
    }
    timestamps = [own_timestamps.get(i, header.timestamp_ns) for i in range(count)]
    ids = [own_ids[i] if i in own_ids else id_at(header.base_id, i) for i in range(count)]
    ends = accumulate(body_lengths(batch, header), initial=len(columns.bodies))
    start = bodies_at(batch, header)
    columns.offsets.extend(struct.pack(f"<{count}q", *range(first, first + count)))
    columns.timestamps.extend(struct.pack(f"<{count}q", *timestamps))
    columns.ids.extend(struct.pack(f"<{count}Q", *ids))
    columns.attempts.extend(struct.pack(f"<{count}H", *(attempts.get(i, 0) for i in range(count))))
    columns.body_offsets.extend(struct.pack(f"<{count}q", *islice(ends, 1, None)))
    columns.bodies.extend(batch[start : start + header.bodies_length])
    return count


def encode_columns(
    lengths: Buffer,
    bodies: Buffer,
    base_offset: int,
    base_id: int,
    timestamp_ns: int,
    trailer: Buffer = b"",
) -> bytes:
    """One whole batch from its columns: a u32 length for each message, the bodies end to end, and
    the trailer's sections in the form of docs/formats.md. ValueError for invalid input."""
    lengths, bodies, trailer = bytes(lengths), bytes(bodies), bytes(trailer)
    count = len(lengths) // 4
    if count == 0 or len(lengths) % 4:
        raise ValueError("a batch holds at least one message, with a length of 4 bytes each")
    if sum(struct.unpack(f"<{count}I", lengths)) != len(bodies):
        raise ValueError("the lengths do not add up to the bodies")
    try:
        decode_trailer(memoryview(trailer), count)
    except MalformedTrailer as error:
        raise ValueError("the trailer is malformed") from error
    return assemble(count, lengths + bodies, trailer, base_offset, base_id, timestamp_ns)
