"""crc32c: the Castagnoli checksum, reflected, as in iSCSI, ext4 and Kafka.

`value` and the result are finished checksums, so `crc32c(b, crc32c(a)) == crc32c(a + b)`.

A byte is too small a step for Python, so long inputs are folded first. A checksum is a remainder
of a polynomial division, and remainders add up: moving a byte forward by n places means
multiplying it by x^(8n) and taking the remainder, which is 4 bytes again. `bytes.translate` does
that for a whole row of bytes at the speed of C, one table for each of the 4 result bytes, and xor
on large integers adds the rows up. Each fold halves the input; the last few bytes go through the
usual table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

POLYNOMIAL = 0x82F63B78  # reflected: bit 31 is x^0
_ALL_ONES = 0xFFFFFFFF
_FOLD_BYTES_MIN = 64  # below this the plain table is quicker
_ROW_BYTES_MAX = 1 << 16  # longest row folded at once: bounds the number of tables kept


def _byte_table() -> list[int]:
    table = []
    for register in range(256):
        for _ in range(8):
            register = register >> 1 ^ (POLYNOMIAL if register & 1 else 0)
        table.append(register)
    return table


_TABLE = _byte_table()


def crc32c(data: Buffer, value: int = 0) -> int:
    """The checksum of what `value` covers, followed by `data`."""
    if not 0 <= value <= _ALL_ONES:
        raise OverflowError(f"a crc32c has 32 bits: {value}")
    register = value ^ _ALL_ONES
    for byte in memoryview(data).cast("B"):
        register = _TABLE[(register ^ byte) & 255] ^ register >> 8
    return register ^ _ALL_ONES
