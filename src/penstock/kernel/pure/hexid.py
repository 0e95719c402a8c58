"""Message ids as text: 16 hex digits, most significant first.

Written in lower case, read in either case. A text that is not exactly 16 hex digits is no id; the
answer is then -1, because a client may send anything and that is not an error of ours.
"""

from __future__ import annotations

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
