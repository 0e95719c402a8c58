"""The headers of staged messages: whether consumers can read them.

They are stored as they come, and a consumer's library reads them as JSON, with the message in its
hands: what is no JSON object would fail there for each attempt, and for each channel. So it is
refused here. That is all that is asked of them: PUB_EXT wants texts alone as values, but a table
that is written back may have null there.
"""

from __future__ import annotations

import json
from collections.abc import Generator

from penstock.kernel import parse_headers

_CHECKED_IN_A_ROW = 1_000  # a millisecond of the compiled kernel's
_SHOWN_BYTES = 100
RULE = "headers are a JSON object, in UTF-8"


def first_unreadable(
    data: memoryview, lengths: list[int], indexes: list[int]
) -> Generator[None, None, str]:
    """`data` holds one text after another. What is wrong with the first that is no headers; empty
    where all are. Yields between pieces of some milliseconds."""
    at = 0
    for number, (index, length) in enumerate(zip(indexes, lengths, strict=True)):
        text = data[at : at + length]
        at += length
        if length and parse_headers(text).wrong_at >= 0 and not _is_object(bytes(text)):
            return f"message {index} has {bytes(text[:_SHOWN_BYTES])!r}: {RULE}"
        if number % _CHECKED_IN_A_ROW == _CHECKED_IN_A_ROW - 1:
            yield
    return ""


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text.decode("utf-8")), dict)
    except (ValueError, RecursionError):
        return False
