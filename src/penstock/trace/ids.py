"""Trace ids as people write them: a decimal number of 64 bits, or the 32 hex digits of a trace of
the W3C, whose last 64 bits are what messages and events have of it (`kernel/traceparent.py`).
"""

from __future__ import annotations

import re

RULE = "1 to 2^64 - 1, or the 32 hex digits of a W3C trace id"
W3C_DIGITS = 32
_MAX = (1 << 64) - 1
_decimal = re.compile(r"[0-9]{1,20}").fullmatch
_w3c = re.compile(r"[0-9a-fA-F]{16}([0-9a-fA-F]{16})").fullmatch


def read_trace_id(text: str) -> int:
    """0: it is none."""
    found = _w3c(text)
    if found is not None:
        return int(found[1], 16)
    number = int(text) if _decimal(text) else 0
    return number if number <= _MAX else 0
