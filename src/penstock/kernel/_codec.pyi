"""Batches as values: hashes, ids, headers, encoding and decoding; `codec` is the same in Python."""

from typing_extensions import Buffer

from penstock.kernel.codec import blank as blank
from penstock.kernel.codec import check_batch as check_batch
from penstock.kernel.codec import check_batches as check_batches
from penstock.kernel.codec import crc32c as crc32c
from penstock.kernel.codec import decode_bodies as decode_bodies
from penstock.kernel.codec import decode_columns as decode_columns
from penstock.kernel.codec import decode_header as decode_header
from penstock.kernel.codec import decode_sections as decode_sections
from penstock.kernel.codec import encode_batch as encode_batch
from penstock.kernel.codec import encode_columns as encode_columns
from penstock.kernel.codec import expand_events as expand_events
from penstock.kernel.codec import hex_to_id as hex_to_id
from penstock.kernel.codec import id_above as id_above
from penstock.kernel.codec import id_at as id_at
from penstock.kernel.codec import id_index as id_index
from penstock.kernel.codec import id_to_hex as id_to_hex
from penstock.kernel.codec import murmur3_32 as murmur3_32
from penstock.kernel.codec import parse_headers as parse_headers
from penstock.kernel.codec import pick_events as pick_events

# The paths of machines without the instructions, so that they are tested on those with them.

def crc32c_portable(data: Buffer, value: int = 0) -> int: ...
def id_to_hex_portable(id: int) -> bytes: ...
def hex_to_id_portable(text: bytes) -> int: ...
