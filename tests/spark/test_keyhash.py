"""The hash of a column of keys is the kernel's of each."""

from __future__ import annotations

import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel import murmur3_32
from penstock.spark.routing import key_hashes


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=40), st.integers(0, 5))
def test_each_is_the_kernels(keys: list[bytes | None], first: int) -> None:
    column = pa.array(keys, pa.binary())[first:]
    assert key_hashes(column).tolist() == [murmur3_32(key or b"") for key in keys[first:]]


def test_long_ones_too() -> None:
    dice = random.Random(1)
    keys = [dice.randbytes(length) for length in (0, 255, 256, 257, 258, 5000, 3)]
    assert key_hashes(pa.array(keys)).tolist() == [murmur3_32(key) for key in keys]


def test_values_that_are_known() -> None:
    column = pa.array([b"", b"hello", b"hello, world"])
    assert key_hashes(column).tolist() == [0, 0x248BFA47, 0x149BBB7F]
