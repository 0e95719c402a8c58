"""Topic and channel names: what is valid, what is ephemeral, and how errors quote them.

A name is 1 to 64 characters of `. a-z A-Z 0-9 _ -`, optionally followed by `#ephemeral`; the
suffix counts towards the 64. Names in error texts are quoted the way Go's `%q` does it, because
clients and tests match these bytes.
"""

from __future__ import annotations

import re

from penstock import limits

EPHEMERAL_SUFFIX = "#ephemeral"

_NAME = re.compile(rb"[.a-zA-Z0-9_-]+(?:#ephemeral)?")
_SHORT_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
_RAW_BYTE_FIRST = 0xDC80  # where `surrogateescape` puts bytes that are not UTF-8
_RAW_BYTE_LAST = 0xDCFF


def is_valid_name(name: bytes) -> bool:
    return len(name) <= limits.NAME_BYTES_MAX and _NAME.fullmatch(name) is not None


def is_ephemeral(name: str) -> bool:
    return name.endswith(EPHEMERAL_SUFFIX)


def quote(name: bytes) -> bytes:
    """`name` between double quotes, escaped as Go's `%q` does."""
    text = name.decode("utf-8", "surrogateescape")
    return b'"' + "".join(map(_quote_character, text)).encode("utf-8") + b'"'


def _quote_character(character: str) -> str:
    short = _SHORT_ESCAPES.get(character)
    if short is not None:
        return short
    code = ord(character)
    if _RAW_BYTE_FIRST <= code <= _RAW_BYTE_LAST:
        return f"\\x{code - 0xDC00:02x}"
    if character.isprintable():
        return character
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"
