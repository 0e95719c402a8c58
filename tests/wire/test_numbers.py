from __future__ import annotations

from cases import each
from penstock.wire.numbers import NUMBER_MAX, parse_number


@each(
    ("text", "number"),
    [
        (b"", 0),
        (b"0", 0),
        (b"007", 7),
        (b"2500", 2500),
        (b"0" * 30 + b"1", 1),
        (b"18446744073709551615", NUMBER_MAX),
        (b"18446744073709551616", NUMBER_MAX),
        (b"9" * 10_000, NUMBER_MAX),
    ],
)
def test_digits_are_a_number(text: bytes, number: int) -> None:
    assert parse_number(text) == number


@each("text", [b"-1", b"+1", b" 1", b"1 ", b"0x1", b"1.0", b"1e3", b"1_0", b"\xb2", "٣".encode()])
def test_anything_else_is_not(text: bytes) -> None:
    assert parse_number(text) is None
