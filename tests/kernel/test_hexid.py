"""Ids as text: what is written can be read, and nothing else can."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock.kernel._codec import hex_to_id_portable, id_to_hex_portable

DIGITS = b"0123456789abcdefABCDEF"


@given(id=st.integers(0, (1 << 64) - 1))
def test_round_trip(functions: ModuleType, id: int) -> None:
    text = functions.id_to_hex(id)
    assert text == b"%016x" % id == id_to_hex_portable(id)
    assert functions.hex_to_id(text) == functions.hex_to_id(text.upper()) == id
    assert hex_to_id_portable(text) == hex_to_id_portable(text.upper()) == id


@each("place", range(16))
def test_every_byte_that_is_no_digit_is_refused_at_every_place(
    functions: ModuleType, place: int
) -> None:
    for byte in range(256):
        text = bytearray(b"0" * 16)
        text[place] = byte
        expected = int(chr(byte), 16) << 4 * (15 - place) if byte in DIGITS else -1
        assert functions.hex_to_id(bytes(text)) == expected, byte
        assert hex_to_id_portable(bytes(text)) == expected, byte


@pytest.mark.parametrize("length", [*range(16), 17, 32])
def test_only_16_digits_are_an_id(functions: ModuleType, length: int) -> None:
    assert functions.hex_to_id(b"0" * length) == -1
