"""The query string of an HTTP request, read as Go's `url.ParseQuery` reads it.

Where a parameter comes twice the first one wins. A malformed percent escape or a semicolon spoils
the whole query.
"""

import re
from urllib.parse import unquote_to_bytes

from penstock.errors import PenstockError

_BAD_ESCAPE = re.compile(rb"%(?![0-9a-fA-F]{2})")


class QueryInvalid(PenstockError):
    pass


def parse_query(query: bytes) -> dict[str, str]:
    """Raises QueryInvalid. Bytes that are not UTF-8 come back by `surrogateescape`."""
    values: dict[str, str] = {}
    for key, value in parse_pairs(query):
        values.setdefault(key, value)
    return values


def parse_pairs(query: bytes) -> list[tuple[str, str]]:
    """The same with all that comes twice, in order."""
    if b";" in query or _BAD_ESCAPE.search(query):
        raise QueryInvalid("a malformed query string")
    pairs = []
    for pair in query.split(b"&"):
        if pair:
            key, _, value = pair.partition(b"=")
            pairs.append((_text(key), _text(value)))
    return pairs


def whole_number(text: str, highest: int) -> int | None:
    """The number that `text` is, in digits alone, or None: no number, or above `highest`."""
    digits = text.lstrip("0") or text[-1:]
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(highest)):
        return None
    number = int(digits)
    return number if number <= highest else None


def _text(escaped: bytes) -> str:
    return unquote_to_bytes(escaped.replace(b"+", b" ")).decode("utf-8", "surrogateescape")
