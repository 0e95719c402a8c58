"""The trailer of a batch: typed sections, each a small table by message index.

Layout (`docs/formats.md`): type u16, flags u16, length u32 of the payload, payload; one after
another, until fewer than 8 bytes are left or a type is 0. What follows the end must be zeros.

    integers (types below 64)   entries n u32 | n indexes u32, rising | n values of 8 bytes
    bytes (types from 64)       entries n u32 | n indexes u32, rising | n lengths u32 | the bytes

A section of an unknown type is skipped whatever it holds, so the format can grow. A section of a
known type must fit to the byte, or the whole trailer is malformed.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from penstock.kernel.layout import SECTION_BYTES_TYPE_MIN, SECTION_HEADER
from penstock.kernel.types import Section

_KNOWN = frozenset(Section)
_UNSIGNED = frozenset((Section.ID, Section.TRACE))  # the other integers are signed

Value = int | bytes
Table = dict[int, Value]


class MalformedTrailer(ValueError):
    pass


def encode_sections(sections: Mapping[int, Mapping[int, Value]], count: int) -> bytes:
    """The trailer of a batch of `count` messages; empty tables are left out."""
    parts = []
    for type_, table in sorted(sections.items()):
        if type_ not in _KNOWN:
            raise ValueError(f"unknown section type {type_}")
        if table:
            payload = _encode_table(type_, table, count)
            parts.append(SECTION_HEADER.pack(type_, 0, len(payload)) + payload)
    return b"".join(parts)


def _encode_table(type_: int, table: Mapping[int, Value], count: int) -> bytes:
    indexes = sorted(table)
    if indexes[0] < 0 or indexes[-1] >= count:
        raise ValueError(f"section {type_} names a message outside the batch")
    values = [table[index] for index in indexes]
    entries = len(indexes)
    head = struct.pack(f"<I{entries}I", entries, *indexes)
    try:
        if type_ < SECTION_BYTES_TYPE_MIN:
            return head + struct.pack(_integer_format(type_, entries), *values)
        lengths = struct.pack(f"<{entries}I", *map(len, values))  # type: ignore[arg-type]
        return head + lengths + b"".join(values)  # type: ignore[arg-type]
    except struct.error as error:
        raise OverflowError(f"section {type_}: {error}") from error


def decode_trailer(trailer: memoryview, count: int) -> dict[int, Table]:
    """All tables of known types. Raises MalformedTrailer."""
    sections: dict[int, Table] = {}
    for type_, payload in split_trailer(trailer):
        indexes, values = decode_table(type_, payload, count)
        sections.setdefault(type_, {}).update(zip(indexes, values, strict=True))
    return sections


def split_trailer(trailer: memoryview) -> Iterator[tuple[int, memoryview]]:
    """(type, payload) of each section of a known type; checks the bytes behind the last one."""
    position = 0
    while len(trailer) - position >= SECTION_HEADER.size:
        type_, flags, length = SECTION_HEADER.unpack_from(trailer, position)
        if type_ == 0:
            break
        start = position + SECTION_HEADER.size
        position = start + length
        if position > len(trailer):
            raise MalformedTrailer(f"section {type_} runs past the end of the batch")
        if type_ in _KNOWN:
            if flags:
                raise MalformedTrailer(f"section {type_} has unknown flags")
            yield type_, trailer[start:position]
    if any(trailer[position:]):
        raise MalformedTrailer("padding is not zero")


def decode_table(
    type_: int, payload: memoryview, count: int
) -> tuple[tuple[int, ...], Sequence[Value]]:
    """The indexes and the values of one section."""
    entries = int.from_bytes(payload[:4], "little")
    values_at = 4 + 4 * entries
    fixed_bytes = values_at + entries * (8 if type_ < SECTION_BYTES_TYPE_MIN else 4)
    if len(payload) < 4 or fixed_bytes > len(payload):
        raise MalformedTrailer(f"section {type_} is shorter than its entries")
    indexes = struct.unpack_from(f"<{entries}I", payload, 4)
    if any(a >= b for a, b in pairwise(indexes)) or (indexes and indexes[-1] >= count):
        raise MalformedTrailer(f"section {type_} has indexes that do not rise within the batch")
    if type_ < SECTION_BYTES_TYPE_MIN:
        if fixed_bytes != len(payload):
            raise MalformedTrailer(f"section {type_} is longer than its entries")
        return indexes, struct.unpack_from(_integer_format(type_, entries), payload, values_at)
    ends = list(
        accumulate(struct.unpack_from(f"<{entries}I", payload, values_at), initial=fixed_bytes)
    )
    if ends[-1] != len(payload):
        raise MalformedTrailer(f"section {type_} has lengths that do not add up")
    return indexes, [bytes(payload[start:end]) for start, end in pairwise(ends)]


def _integer_format(type_: int, entries: int) -> str:
    return f"<{entries}{'Q' if type_ in _UNSIGNED else 'q'}"
