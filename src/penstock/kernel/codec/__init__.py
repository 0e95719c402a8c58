"""Batches, ids, hashes and headers in plain Python, where the compiled kernel is not installed.

A client or a Spark worker needs these functions and no engine. `_codec` is their compiled form,
which is many times faster; the tests compare the two.
"""

from penstock.kernel.codec.batch import blank as blank
from penstock.kernel.codec.batch import check_batch as check_batch
from penstock.kernel.codec.batch import check_batches as check_batches
from penstock.kernel.codec.batch import decode_bodies as decode_bodies
from penstock.kernel.codec.batch import decode_header as decode_header
from penstock.kernel.codec.batch import decode_sections as decode_sections
from penstock.kernel.codec.batch import encode_batch as encode_batch
from penstock.kernel.codec.batch import id_above as id_above
from penstock.kernel.codec.batch import id_at as id_at
from penstock.kernel.codec.batch import id_index as id_index
from penstock.kernel.codec.columns import decode_columns as decode_columns
from penstock.kernel.codec.columns import encode_columns as encode_columns
from penstock.kernel.codec.hashes import crc32c as crc32c
from penstock.kernel.codec.hashes import hex_to_id as hex_to_id
from penstock.kernel.codec.hashes import id_to_hex as id_to_hex
from penstock.kernel.codec.hashes import murmur3_32 as murmur3_32
from penstock.kernel.codec.headers import parse_headers as parse_headers
from penstock.kernel.codec.traceruns import expand_events as expand_events
from penstock.kernel.codec.traceruns import pick_events as pick_events
