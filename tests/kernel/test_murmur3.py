"""The hash of keys against published vectors, and against a hash of another hand."""

from __future__ import annotations

from types import ModuleType

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each

VECTORS = [
    (b"", 0, 0x00000000),
    (b"", 1, 0x514E28B7),
    (b"", 0xFFFFFFFF, 0x81F16F39),
    (b"\xff\xff\xff\xff", 0, 0x76293B50),
    (b"\x21\x43\x65\x87", 0, 0xF55B516B),
    (b"\x21\x43\x65\x87", 0x5082EDEE, 0x2362F9DE),
    (b"\x21\x43\x65", 0, 0x7E4A8634),
    (b"\x21\x43", 0, 0xA0F7B07A),
    (b"\x21", 0, 0x72661CF4),
    (b"\0\0\0\0", 0, 0x2362F9DE),
    (b"\0", 0, 0x514E28B7),
    (b"Hello, world!", 0x9747B28C, 0x24884CBA),
    (b"The quick brown fox jumps over the lazy dog", 0x9747B28C, 0x2FA826CD),
]


@each(("data", "seed", "value"), VECTORS)
def test_known_vectors(functions: ModuleType, data: bytes, seed: int, value: int) -> None:
    assert functions.murmur3_32(data, seed) == value


@given(data=st.binary(max_size=300), seed=st.integers(0, 2**32 - 1))
def test_as_another_implementation_has_it(functions: ModuleType, data: bytes, seed: int) -> None:
    assert functions.murmur3_32(data, seed) == mmh3.hash(data, seed, signed=False)
    assert functions.murmur3_32(data) == mmh3.hash(data, signed=False)


def test_any_buffer_will_do(functions: ModuleType) -> None:
    for form in (bytes, bytearray, memoryview):
        assert functions.murmur3_32(form(b"\x21\x43\x65\x87")) == 0xF55B516B


@pytest.mark.parametrize("seed", [-1, 1 << 32])
def test_a_seed_has_32_bits(functions: ModuleType, seed: int) -> None:
    with pytest.raises(OverflowError):
        functions.murmur3_32(b"", seed)
