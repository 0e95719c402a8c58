"""The checksum against published vectors, and against division bit by bit."""

import random
from types import ModuleType

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock.kernel._codec import crc32c_portable, hex_to_id_portable, id_to_hex_portable

VECTORS = [
    (b"", 0x00000000),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),  # RFC 3720, B.4
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


def bit_by_bit(data: bytes) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


NOISE = random.Random(1).randbytes(70_000)
EXPECTED = {length: bit_by_bit(NOISE[:length]) for length in range(301)}


@each(("data", "value"), VECTORS)
def test_known_vectors(functions: ModuleType, data: bytes, value: int) -> None:
    assert functions.crc32c(data) == value
    assert crc32c_portable(data) == value


def test_every_length_up_to_300(functions: ModuleType) -> None:
    for length, expected in EXPECTED.items():
        assert functions.crc32c(NOISE[:length]) == expected, length
        assert crc32c_portable(NOISE[:length]) == expected, length


def test_every_alignment(functions: ModuleType) -> None:
    for shift in range(1, 17):
        buffer = memoryview(bytes(shift) + NOISE[:300])
        for length in (1, 7, 8, 63, 64, 191, 192, 193, 200, 300):
            piece = buffer[shift : shift + length]
            assert functions.crc32c(piece) == EXPECTED[length], (shift, length)


@each("length", [3071, 3072, 3073, 6144, 6500, 16_387, 65_536, 70_000])
def test_lengths_where_a_quicker_way_sets_in(functions: ModuleType, length: int) -> None:
    assert functions.crc32c(NOISE[:length]) == bit_by_bit(NOISE[:length])


@given(data=st.binary(max_size=2000), cut=st.integers(0, 2000), value=st.integers(0, 2**32 - 1))
def test_in_pieces_equals_whole(functions: ModuleType, data: bytes, cut: int, value: int) -> None:
    in_pieces = functions.crc32c(data[cut:], functions.crc32c(data[:cut], value))
    assert in_pieces == functions.crc32c(data, value) == crc32c_portable(data, value)


@given(data=st.binary(max_size=300), seed=st.integers(0, 2**32 - 1))
def test_as_another_implementation_has_it(functions: ModuleType, data: bytes, seed: int) -> None:
    assert functions.murmur3_32(data, seed) == mmh3.hash(data, seed, signed=False)
    assert functions.murmur3_32(data) == mmh3.hash(data, signed=False)


# --- ids as text: what is written can be read, and nothing else can ---


DIGITS = b"0123456789abcdefABCDEF"


@given(id=st.integers(0, (1 << 64) - 1))
def test_round_trip(functions: ModuleType, id: int) -> None:
    text = functions.id_to_hex(id)
    assert text == b"%016x" % id == id_to_hex_portable(id)
    assert functions.hex_to_id(text) == functions.hex_to_id(text.upper()) == id
    assert hex_to_id_portable(text) == hex_to_id_portable(text.upper()) == id


@each("index", range(16))
def test_every_byte_that_is_no_digit_is_refused_at_every_place(
    functions: ModuleType, index: int
) -> None:
    for byte in range(256):
        text = bytearray(b"0" * 16)
        text[index] = byte
        expected = int(chr(byte), 16) << 4 * (15 - index) if byte in DIGITS else -1
        assert functions.hex_to_id(bytes(text)) == expected, byte
        assert hex_to_id_portable(bytes(text)) == expected, byte


@pytest.mark.parametrize("length", [*range(16), 17, 32])
def test_only_16_digits_are_an_id(functions: ModuleType, length: int) -> None:
    assert functions.hex_to_id(b"0" * length) == -1
