"""Batches for tests: strategies that make any that can be written, and tools to damage them."""

import struct
from typing import Any

from hypothesis import strategies as st

from penstock import kernel
from penstock.kernel import Section

U64_MAX = (1 << 64) - 1
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
U64 = st.integers(0, U64_MAX)
U32 = st.integers(0, (1 << 32) - 1)
U16 = st.integers(0, (1 << 16) - 1)

VALUES: dict[int, st.SearchStrategy[Any]] = {
    Section.TIMESTAMP: I64,
    Section.ID: U64,
    Section.DUE: I64,
    Section.ATTEMPTS: I64,
    Section.TRACE: U64,
    Section.KEY: st.binary(max_size=20),
    Section.HEADERS: st.binary(max_size=40),
}


@st.composite
def batch_arguments(draw: st.DrawFn, count_max: int = 20) -> dict[str, Any]:
    """What encode_batch takes, empty section tables left out."""
    bodies = draw(st.lists(st.binary(max_size=60), min_size=1, max_size=count_max))
    types = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=4))
    indexes = st.integers(0, len(bodies) - 1)
    return {
        "bodies": bodies,
        "base_offset": draw(st.integers(0, (1 << 63) - 1 - len(bodies))),
        "base_id": draw(U64),
        "timestamp_ns": draw(I64),
        "synced_end": draw(U64),
        "leader_epoch": draw(U32),
        "producer_id": draw(U64),
        "producer_epoch": draw(U16),
        "first_sequence": draw(U32),
        "sections": {
            type_: draw(st.dictionaries(indexes, VALUES[type_], min_size=1, max_size=5))
            for type_ in types
        },
    }


def short_batch(
    body: bytes,
    base_offset: int,
    base_id: int,
    timestamp_ns: int,
    unsynced: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """A batch of one message in the short form, as docs/formats.md has it."""
    fields = (len(body), leader_epoch, unsynced, base_offset, base_id, timestamp_ns)
    return with_crc(struct.pack("<4sIIHHQQq", b"PSS1", 0, *fields) + body + bytes(-len(body) % 8))


def with_crc(batch: bytes) -> bytes:
    """The batch with the crc that its bytes call for: damage that only the numbers give away."""
    return batch[:4] + struct.pack("<I", kernel.crc32c(batch[8:])) + batch[8:]


def with_trailer(trailer: bytes, bodies: list[bytes]) -> bytes:
    """A batch of `bodies` with any bytes at all where the trailer belongs, and a right crc."""
    plain = kernel.encode_batch(bodies, 7, 1 << 22, 99)
    content = plain[72 : 72 + 4 * len(bodies) + sum(map(len, bodies))] + trailer
    content += bytes(-len(content) % 8)
    header = bytearray(plain[:72])
    struct.pack_into("<IH", header, 8, 72 + len(content), 1)
    return with_crc(bytes(header) + content)


def section(type_: int, payload: bytes, flags: int = 0) -> bytes:
    return struct.pack("<HHI", type_, flags, len(payload)) + payload
