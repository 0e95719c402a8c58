"""Batches as values, as both forms of the kernel have them: hashes, ids, encoding, decoding.

A protocol here is a module of either form: `contract.py` compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer


class BatchHeader(NamedTuple):
    """The fixed header of `docs/formats.md`, without magic and crc."""

    length: int
    flags: int
    producer_epoch: int
    base_offset: int
    base_id: int
    timestamp_ns: int
    synced_end: int
    producer_id: int
    first_sequence: int
    leader_epoch: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    bodies_length: int


class Section(IntEnum):
    """The known sections of a batch's trailer. Below 64 integers, from 64 bytes."""

    TIMESTAMP = 1
    ID = 2
    DUE = 3
    ATTEMPTS = 4
    TRACE = 5
    KEY = 64
    HEADERS = 65


class BatchCheck(IntEnum):
    """What stands at a position of a segment."""

    SOUND = 0
    SHORT = 1  # the buffer ends before the batch does
    NO_MAGIC = 2  # not a batch at all (zeros, or foreign bytes)
    BAD_FIELDS = 3  # magic, but impossible numbers
    BAD_CRC = 4


class Values(NamedTuple):
    """What messages have in a section of bytes: a binary column in Arrow's layout, with nulls."""

    present: bytearray  # a bit for each message, the lowest first
    offsets: bytearray  # i64 x (count + 1)
    values: bytearray


class Columns(NamedTuple):
    """Arrow layout: fixed-width columns as contiguous little-endian buffers, a binary column as i64
    value offsets (count + 1 of them) and the bodies end to end."""

    count: int  # type: ignore[assignment]  # as above
    offsets: bytearray  # i64: message offset
    timestamps: bytearray  # i64: nanoseconds
    ids: bytearray  # u64
    attempts: bytearray  # u16: 0 unless carried in
    body_offsets: bytearray  # i64 x (count + 1): LargeBinary
    bodies: bytearray
    sections: tuple[Values | None, ...] = ()  # as asked for; None: no message has that one


class Headers(NamedTuple):
    """What the kernel makes of the JSON headers of a message."""

    wrong_at: int  # the first byte that cannot be; -1: they are right, and the rest says more
    key: bytes | None
    trace_id: int | None
    has_others: bool  # members that only an extended topic keeps
    context_id: int = 0  # of a `traceparent` whose caller records it (`traceparent.py`); 0: none


class CrcFunctions(Protocol):
    """Module `crc32c`."""

    def crc32c(self, data: Buffer, value: int = 0) -> int: ...


class HashFunctions(Protocol):
    """Module `murmur3`."""

    def murmur3_32(self, data: Buffer, seed: int = 0) -> int:
        """MurmurHash3, x86 variant: a key's place among the partitions of a topic."""
        ...


class HeaderFunctions(Protocol):
    """Module `headers`."""

    def parse_headers(self, data: Buffer) -> Headers:
        """The headers of a PUB_EXT: a flat JSON object of strings, as docs/formats.md has it."""
        ...


class IdFunctions(Protocol):
    """Module `hexid`."""

    def id_to_hex(self, id: int) -> bytes: ...
    def hex_to_id(self, text: bytes) -> int:
        """The id, or -1 when `text` is not 16 hex digits (either case)."""
        ...


class BatchFunctions(Protocol):
    """Module `batch`."""

    def id_at(self, base_id: int, index: int) -> int: ...
    def id_index(self, base_id: int, count: int, id: int) -> int:
        """The index of `id` in a batch of `count` from `base_id`, or -1."""
        ...

    def blank(self, length: int) -> bytearray:
        """A buffer to read batches into. What it holds until then is anything: to fill it with
        zeros first costs an eighth of the reading."""
        ...

    def encode_batch(
        self,
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
    ) -> bytes: ...

    def check_batch(self, data: Buffer, position: int) -> tuple[int, int]:
        """(BatchCheck, length): length is the batch's own claim, 0 when unknown."""
        ...

    def decode_header(self, data: Buffer, position: int) -> BatchHeader: ...
    def decode_bodies(self, data: Buffer, position: int) -> list[bytes]: ...
    def decode_sections(self, data: Buffer, position: int) -> dict[int, dict[int, int | bytes]]: ...


class ColumnFunctions(Protocol):
    """Module `columns`."""

    def decode_columns(self, data: Buffer, sections: Sequence[int] = ()) -> Columns:
        """Whole sound batches -> Arrow columns (ValueError names the position). `sections` are of
        bytes: each becomes a column, too."""
        ...

    def encode_columns(
        self,
        lengths: Buffer,
        bodies: Buffer,
        base_offset: int,
        base_id: int,
        timestamp_ns: int,
        trailer: Buffer = b"",
    ) -> bytes:
        """Columns -> one batch: a u32 length for each message, the bodies end to end, and the
        trailer's sections as `docs/formats.md` has them. ValueError when they do not fit."""
        ...
