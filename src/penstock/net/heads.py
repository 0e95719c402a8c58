"""Heads of requests, remembered with what the parser made of them.

A client that keeps its connection sends the same head again and again. Heads are remembered with
what the parser made of them; a request that begins with a known one, and is there as a whole, does
not go through the parser. Same bytes, same meaning: nothing is decided but by the
parser, and by the listener's gate. Only
plain heads are remembered: HTTP/1.1, no `Expect`, no transfer encoding, no offer to upgrade, and no
`traceparent`, which is another one each time.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

from penstock import limits


class Head(NamedTuple):
    """What the parser made of the head of a request."""

    method: str
    path: str
    query: bytes
    fields: bytes
    body_bytes: int
    together: bool


Heads = dict[bytes, Head]
_heads: WeakKeyDictionary[object, Heads] = WeakKeyDictionary()


def heads_of(ruler: object) -> Heads:
    """What one listener has let in, or one application has seen; another may have other rules."""
    return _heads.setdefault(ruler, {})


def remember(heads: Heads, data: bytes, head: Head) -> None:
    """`data` is the head as it came, without the empty line."""
    if len(heads) >= limits.HTTP_HEADS_MAX:
        heads.clear()
    heads[data] = head
