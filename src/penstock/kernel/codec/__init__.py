"""Batches, ids, hashes and headers in plain Python, where the compiled kernel is not installed.

A client or a Spark worker needs these functions and no engine. `_codec` is their compiled form,
which is many times faster; the tests compare the two.
"""

from penstock.kernel.codec.batch import (
    blank,
    check_batch,
    check_batches,
    decode_bodies,
    decode_header,
    decode_sections,
    encode_batch,
    id_above,
    id_at,
    id_index,
)
from penstock.kernel.codec.columns import decode_columns, encode_columns
from penstock.kernel.codec.hashes import crc32c, hex_to_id, id_to_hex, murmur3_32
from penstock.kernel.codec.headers import parse_headers
from penstock.kernel.codec.traceruns import expand_events, pick_events

__all__ = [
    "blank",
    "check_batch",
    "check_batches",
    "crc32c",
    "decode_bodies",
    "decode_columns",
    "decode_header",
    "decode_sections",
    "encode_batch",
    "encode_columns",
    "expand_events",
    "hex_to_id",
    "id_above",
    "id_at",
    "id_index",
    "id_to_hex",
    "murmur3_32",
    "parse_headers",
    "pick_events",
]
