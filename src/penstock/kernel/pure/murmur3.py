"""MurmurHash3, the x86 variant with 32 bits: which partition a key belongs to.

Clients that choose a partition for themselves compute the same hash, so its value is part of the
protocol and not only of this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

_ALL_ONES = 0xFFFFFFFF
_WORD_BYTES = 4


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _ALL_ONES


def _mixed(word: int) -> int:
    return _turned(word * 0xCC9E2D51 & _ALL_ONES, 15) * 0x1B873593 & _ALL_ONES


def murmur3_32(data: Buffer, seed: int = 0) -> int:
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
