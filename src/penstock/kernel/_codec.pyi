"""Batches as values: hashes, ids, headers, encoding and decoding; `codec` is the same in Python."""

from collections.abc import Mapping, Sequence

from typing_extensions import Buffer

from penstock.kernel.types import BatchHeader, Columns, Headers

def crc32c(data: Buffer, value: int = 0) -> int: ...
def murmur3_32(data: Buffer, seed: int = 0) -> int:
    """MurmurHash3, x86 variant: a key's place among the partitions of a topic."""
    ...

def parse_headers(data: Buffer) -> Headers:
    """The headers of a PUB_EXT: a flat JSON object of strings, as docs/formats.md has it."""
    ...

def id_to_hex(id: int) -> bytes: ...
def hex_to_id(text: bytes) -> int:
    """The id, or -1 when `text` is not 16 hex digits (either case)."""
    ...

def id_above(last_id: int, node_id: int, wall_ns: int) -> int: ...
def id_at(base_id: int, index: int) -> int: ...
def id_index(base_id: int, count: int, id: int) -> int:
    """The index of `id` in a batch of `count` from `base_id`, or -1."""
    ...

def blank(length: int) -> bytearray:
    """A buffer to read batches into. What it holds until then is anything: to fill it with
    zeros first costs an eighth of the reading."""
    ...

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
) -> bytes: ...
def check_batch(data: Buffer, position: int) -> tuple[int, int]:
    """(BatchCheck, length): length is the batch's own claim, 0 when unknown."""
    ...

def check_batches(
    data: Buffer, expected: int, limit: int | None = None
) -> tuple[int, int, int]: ...
def decode_header(data: Buffer, position: int) -> BatchHeader: ...
def decode_bodies(data: Buffer, position: int) -> list[bytes]: ...
def decode_sections(data: Buffer, position: int) -> dict[int, dict[int, int | bytes]]: ...
def decode_columns(data: Buffer, sections: Sequence[int] = ()) -> Columns:
    """Whole sound batches -> Arrow columns (ValueError names the position). `sections` are of
    bytes: each becomes a column, too."""
    ...

def encode_columns(
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

def expand_events(records: Buffer, events_max: int) -> Buffer:
    """Each event by itself: `records` themselves when there is no run among them. Raises
    ValueError for half a record, and for more events than that."""
    ...

def pick_events(records: Buffer, message_id: int, trace_id: int, events_max: int) -> bytes:
    """The events of one message, and of all with this trace id (0: not asked for), each by
    itself. For both 0: those without a message id. Raises ValueError likewise."""
    ...

# The paths of machines without the instructions, so that they are tested on those with them.

def crc32c_portable(data: Buffer, value: int = 0) -> int: ...
def id_to_hex_portable(id: int) -> bytes: ...
def hex_to_id_portable(text: bytes) -> int: ...
