"""What is special about messages of an extended topic: consumers see their headers.

A key is a header there, as it is of nsqd's own `/pub?key=`: a row with a key and no headers gets
`{"key":...}`. A frame has two bytes for the length of the headers, and leaves longer ones away, so
these are refused here. A key that is no text cannot stand in JSON: it says where the message goes,
and no more.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import limits
from penstock.spark.encode import BadRow

_quoted = json.encoder.encode_basestring  # of the standard library, compiled


def with_headers(rows: pa.RecordBatch, extended: np.ndarray[Any, Any]) -> pa.RecordBatch:
    """`rows` in the form in which `encode` takes them; `extended` says which are of such a topic.
    Raises BadRow."""
    names = rows.schema.names
    headers = rows.column("headers") if "headers" in names else pa.nulls(len(rows), pa.binary())
    if "key" in names:
        headers = _with_keys(headers, rows.column("key"), extended)
    lengths = pc.binary_length(headers).fill_null(0).to_numpy()
    long = np.flatnonzero(extended & (lengths > limits.HEADERS_BYTES_MAX))
    if len(long):
        rule = f"an extended topic has at most {limits.HEADERS_BYTES_MAX}"
        raise BadRow(long[:1], f"{lengths[long[0]]} bytes of headers: {rule}")
    if headers.null_count == len(rows):
        return rows
    if "headers" in names:
        return rows.set_column(names.index("headers"), "headers", headers)
    return rows.append_column("headers", headers)


def _with_keys(headers: pa.Array, keys: pa.Array, extended: np.ndarray[Any, Any]) -> pa.Array:
    wanted = pc.and_(headers.is_null(), keys.is_valid()).to_numpy(zero_copy_only=False) & extended
    indexes = np.flatnonzero(wanted)
    if not len(indexes):
        return headers
    texts = [_header(key) for key in keys.take(pa.array(indexes)).to_pylist()]
    return pc.replace_with_mask(headers, pa.array(wanted), pa.array(texts, pa.binary()))


def _header(key: bytes) -> bytes | None:
    try:
        return f'{{"key":{_quoted(key.decode())}}}'.encode()
    except UnicodeDecodeError:
        return None
