"""Rows of an extended topic: their keys are headers, and headers have a bound."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock import limits
from penstock.spark.encode import BadRow, message_columns
from penstock.spark.stager import with_headers

FIRST = np.array([True, False, True, True])


def rows(**columns: pa.Array) -> pa.RecordBatch:
    return message_columns({"body": pa.array([b"a", b"b", b"c", b"d"]), **columns})


def test_a_key_is_a_header() -> None:
    keys = pa.array(["k", "other topic", 'a "ß"\n', None])
    found = with_headers(rows(key=keys), FIRST)
    wanted = [b'{"key":"k"}', None, '{"key":"a \\"ß\\"\\n"}'.encode(), None]
    assert found.column("headers").to_pylist() == wanted
    assert found.column("key").to_pylist()[0] == b"k"


def test_headers_of_its_own_stay() -> None:
    headers = pa.array(['{"x":"1"}', None, None, '{"key":"y"}'])
    found = with_headers(rows(key=pa.array(["k"] * 4), headers=headers), FIRST)
    assert found.column("headers").to_pylist() == [
        b'{"x":"1"}', None, b'{"key":"k"}', b'{"key":"y"}',
    ]  # fmt: skip


def test_a_key_that_is_no_text_is_a_key_alone() -> None:
    found = with_headers(rows(key=pa.array([b"\xff", b"x", None, None])), FIRST)
    assert "headers" not in found.schema.names
    assert with_headers(rows(), FIRST).schema.names == ["body"]


def test_headers_have_a_bound() -> None:
    fits = '{"a":"' + "x" * (limits.HEADERS_BYTES_MAX - 8) + '"}'
    headers = pa.array([fits, fits + " ", fits + " ", None])
    with pytest.raises(BadRow, match="65536 bytes of headers: an extended topic has at") as caught:
        with_headers(rows(headers=headers), FIRST)
    assert caught.value.indexes == [2]
    assert with_headers(rows(headers=headers), FIRST & False).num_rows == 4
