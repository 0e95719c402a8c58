"""One member of a message's headers, which are a JSON object.

Headers are looked at, not checked: what publishes let in is checked by then, and dead letters and
other writers may have members that are no strings. Such a one has no value here. When a name comes
twice the last one counts. Where the text is no JSON object, as far as it has to be read to say so,
there are no members.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANKS = re.compile(rb"[ \t\n\r]*")
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SCALAR = re.compile(rb'[^ \t\n\r,{}\[\]":]+')
_INNER = re.compile(rb'[^"{}\[\]]+')
_ESCAPE = re.compile(rb"\\(u[0-9a-fA-F]{4}|.|\Z)", re.DOTALL)
_SHORT = {
    b'"': b'"',
    b"\\": b"\\",
    b"/": b"/",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
}


class _NoObject(ValueError):
    pass


def find_member(headers: bytes, name: bytes) -> bytes | None:
    """The value as it stands between its quotes, escapes not resolved."""
    found = _find_last(headers, name)
    return None if found is None or not found[1] else found[0]


def is_true(headers: bytes, name: bytes) -> bool:
    """Is this member the boolean `true`, or the text "true"?"""
    found = _find_last(headers, name)
    return found is not None and (resolve(found[0]) if found[1] else found[0]) == b"true"


def _find_last(headers: bytes, name: bytes) -> tuple[bytes, bool] | None:
    """What its value says, and whether that is a string."""
    found = None
    try:
        for raw_name, value, is_string in _members(headers):
            if resolve(raw_name) == name:
                found = value, is_string
    except _NoObject:
        return None
    return found


def resolve(raw: bytes) -> bytes | None:
    """What a string says, in UTF-8; None when an escape says nothing."""
    parts = []
    at = 0
    for escape in _ESCAPE.finditer(raw):
        parts += [raw[at : escape.start()], escape[1]]
        at = escape.end()
    if not parts:
        return raw
    parts.append(raw[at:])
    return _joined(parts)


def _joined(parts: list[bytes]) -> bytes | None:
    """Texts and, at the odd places, what stands behind a backslash."""
    said = bytearray(parts[0])
    high = 0  # the first half of a surrogate pair, which the next escape is to go on with
    for escape, text in zip(parts[1::2], parts[2::2], strict=True):
        unit = int(escape[1:], 16) if escape[:1] == b"u" and len(escape) == 5 else -1
        is_low = 0xDC00 <= unit <= 0xDFFF
        if bool(high) != is_low:
            return None
        if is_low:
            unit, high = 0x10000 + ((high - 0xD800) << 10) + unit - 0xDC00, 0
        if 0xD800 <= unit <= 0xDBFF:
            high = unit
            if text:
                return None
            continue
        if unit < 0 and escape not in _SHORT:
            return None
        said += chr(unit).encode() if unit >= 0 else _SHORT[escape]
        said += text
    return None if high else bytes(said)


def _members(text: bytes) -> Iterator[tuple[bytes, bytes, bool]]:
    at = _expect(text, 0, b"{")
    if _after_blanks(text, at)[1] == b"}":
        return
    while True:
        name = _string(text, _after_blanks(text, at)[0])
        value_at, first = _after_blanks(text, _expect(text, name.end(), b":"))
        if first == b'"':
            value = _string(text, value_at)
            yield name[1], value[1], True
            at = value.end()
        else:
            at = _value_end(text, value_at)
            yield name[1], text[value_at:at], False
        at, after = _after_blanks(text, at)
        if after == b"}":
            return
        at = _expect(text, at, b",")


def _after_blanks(text: bytes, at: int) -> tuple[int, bytes]:
    """Where the next byte stands that is no blank, and that byte."""
    blanks = _BLANKS.match(text, at)
    at = blanks.end() if blanks else at
    return at, text[at : at + 1]


def _expect(text: bytes, at: int, wanted: bytes) -> int:
    at, found = _after_blanks(text, at)
    if found != wanted:
        raise _NoObject
    return at + 1


def _string(text: bytes, at: int) -> re.Match[bytes]:
    found = _STRING.match(text, at)
    if found is None:
        raise _NoObject
    return found


def _value_end(text: bytes, at: int) -> int:
    """Behind a value that is no string. What is nested has only to close as often as it opens."""
    depth = 0
    while True:
        first = text[at : at + 1]
        if first in (b"{", b"["):
            depth, at = depth + 1, at + 1
        elif first in (b"}", b"]") and depth:
            depth, at = depth - 1, at + 1
        elif first == b'"':
            at = _string(text, at).end()
        else:
            inner = (_INNER if depth else _SCALAR).match(text, at)
            if inner is None:
                raise _NoObject
            at = inner.end()
        if not depth:
            return at
