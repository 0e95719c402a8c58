"""Checksum and hash of bytes, and message ids as text."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

# crc32c: the Castagnoli checksum, reflected, as in iSCSI, ext4 and Kafka.
#
# `value` and the result are finished checksums, so `crc32c(b, crc32c(a)) == crc32c(a + b)`.
#
# A byte is too small a step for Python, so long inputs are folded first. A checksum is the
# remainder of a polynomial division, and remainders add up by xor: a byte that is taken away and
# put back n places further on, multiplied by x^(8n) and reduced, leaves the checksum as it was.
# Reduced, it is 4 bytes wide. `bytes.translate` multiplies a whole row of bytes at the speed of C,
# once for each of the 4 bytes, and xor on large integers adds the rows to what follows. Each fold
# about halves the input; the last few bytes go through the usual table.

POLYNOMIAL = 0x82F63B78  # reflected: bit 31 is x^0
_ALL_ONES = 0xFFFFFFFF
_FOLD_BYTES_MIN = 32  # a row below this costs more than the plain table saves
_FOLD_BYTES_MAX = 1 << 20  # bounds the tables that are kept, and the integers


def _byte_table() -> list[int]:
    table = []
    for register in range(256):
        for _ in range(8):
            register = register >> 1 ^ (POLYNOMIAL if register & 1 else 0)
        table.append(register)
    return table


_TABLE = _byte_table()


def crc32c(data: Buffer, value: int = 0) -> int:
    """The checksum `value` continued over `data`."""
    if not 0 <= value <= _ALL_ONES:
        raise OverflowError(f"a crc32c has 32 bits: {value}")
    register = value ^ _ALL_ONES
    rest = memoryview(data).cast("B")
    while len(rest) >= _room(_FOLD_BYTES_MIN):
        # the register belongs to the first 4 bytes; then it is spent
        head = int.from_bytes(rest[:4], "little") ^ register
        rest = memoryview(_fold(head.to_bytes(4, "little"), rest))
        register = 0
    for byte in rest:
        register = _TABLE[(register ^ byte) & 255] ^ register >> 8
    return register ^ _ALL_ONES


def _fold(head: bytes, rest: memoryview) -> bytes:
    """Shorter bytes with the same remainder: the first row moved on into the bytes that follow.

    `head` stands for the first 4 bytes of `rest`.
    """
    row_bytes = _FOLD_BYTES_MIN
    while row_bytes < _FOLD_BYTES_MAX and _room(2 * row_bytes) <= len(rest):
        row_bytes *= 2
    row = head + bytes(rest[4:row_bytes])
    folded = int.from_bytes(rest[row_bytes:], "little")
    for index, table in enumerate(_move_tables(row_bytes)):
        folded ^= int.from_bytes(row.translate(table), "little") << 8 * index
    return folded.to_bytes(len(rest) - row_bytes, "little")


def _room(row_bytes: int) -> int:
    """The room of a fold: the row, as much again, and the last byte's product is 3 bytes longer."""
    return 2 * row_bytes + 3


@cache
def _move_tables(distance_bytes: int) -> tuple[bytes, ...]:
    """A table for each of the 4 bytes that a byte becomes `distance_bytes` (2^n) further on."""
    factor = 1 << 23  # x^8: one byte further
    for _ in range(distance_bytes.bit_length() - 1):
        factor = _multiply(factor, factor)
    products = [_multiply(byte, factor) for byte in range(256)]
    return tuple(bytes(product >> shift & 255 for product in products) for shift in (0, 8, 16, 24))


def _multiply(a: int, b: int) -> int:
    """The product of two reduced polynomials, reduced."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (POLYNOMIAL if b & 1 else 0)
    return product


# MurmurHash3, the x86 variant with 32 bits: which partition a key belongs to.
#
# Clients that choose a partition for themselves compute the same hash, so its value is part of the
# protocol and not only of this process.

_WORD_BYTES = 4


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _ALL_ONES


def _mixed(word: int) -> int:
    return _turned(word * 0xCC9E2D51 & _ALL_ONES, 15) * 0x1B873593 & _ALL_ONES


def murmur3_32(data: Buffer, seed: int = 0) -> int:
    """A key's index among the partitions of a topic."""
    if not 0 <= seed <= _ALL_ONES:
        raise OverflowError(f"a seed has 32 bits: {seed}")
    content = bytes(data)
    whole = len(content) - len(content) % _WORD_BYTES
    value = seed
    for at in range(0, whole, _WORD_BYTES):
        word = int.from_bytes(content[at : at + _WORD_BYTES], "little")
        value = (_turned(value ^ _mixed(word), 13) * 5 + 0xE6546B64) & _ALL_ONES
    value ^= _mixed(int.from_bytes(content[whole:], "little")) ^ len(content) & _ALL_ONES
    value = (value ^ value >> 16) * 0x85EBCA6B & _ALL_ONES
    value = (value ^ value >> 13) * 0xC2B2AE35 & _ALL_ONES
    return value ^ value >> 16


# Message ids as text: 16 hex digits, most significant first.
#
# Written in lower case, read in either case. A text that is not exactly 16 hex digits is no id; the
# answer is then -1, because a client may send anything and that is not an error of ours.

TEXT_BYTES = 16
_DIGITS = b"0123456789abcdefABCDEF"


def id_to_hex(id: int) -> bytes:
    if not 0 <= id < 1 << 64:
        raise OverflowError(f"an id has 64 bits: {id}")
    return b"%016x" % id


def hex_to_id(text: bytes) -> int:
    """The id, or -1 when `text` is not 16 hex digits."""
    # int() alone would take signs, underscores and blanks as well
    if len(text) != TEXT_BYTES or text.translate(None, _DIGITS):
        return -1
    return int(text, 16)
