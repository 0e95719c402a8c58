"""Decimal numbers in command lines: digits only, and nothing at all means zero.

NSQ takes no sign, blank or prefix in RDY, REQ and DPUB. Its own parser lets a 64-bit number
overflow silently; here a number that is too large stays at the largest one, which every range
check refuses and every clamp clamps.
"""

from __future__ import annotations

NUMBER_MAX = (1 << 64) - 1

_DIGITS_MAX = 20  # of NUMBER_MAX; longer numbers need no conversion to be known as too large


def parse_number(text: bytes) -> int | None:
    """The number, or None when `text` holds anything but digits."""
    if not text:
        return 0
    if not text.isdigit():
        return None
    significant = text.lstrip(b"0")
    if len(significant) > _DIGITS_MAX:
        return NUMBER_MAX
    return min(int(significant or b"0"), NUMBER_MAX)
