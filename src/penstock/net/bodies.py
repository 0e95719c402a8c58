"""How much memory the bodies of requests may take, over all connections of a daemon.

A bound for each connection bounds nothing where connections are many. So bytes are counted as they
come, from the first one of a body until its request is answered; nothing is counted for what a
client only announces. When there is no room, a request is refused rather than left to wait: it is
not known whether those that hold the room will ever be complete.

The last part of the room is for bodies that are small so far. A few clients with large ones can't
keep all others from publishing.
"""

from __future__ import annotations

from penstock import limits


class BodyRoom:
    __slots__ = ("_bytes_max", "held_bytes")

    def __init__(self, bytes_max: int = limits.HTTP_BODIES_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0

    def has(self, count: int, body_bytes: int) -> bool:
        """Is there room for so many more bytes of a body that then has `body_bytes`?"""
        bytes_max = self._bytes_max
        if body_bytes > limits.HTTP_BODY_SMALL_BYTES:
            bytes_max -= bytes_max // 4
        return self.held_bytes + count <= bytes_max

    def take(self, count: int) -> None:
        self.held_bytes += count

    def give(self, count: int) -> None:
        self.held_bytes -= count


def framing_max(body_bytes: int) -> int:
    """How many bytes may come with so much of a chunked body that are none of it."""
    return limits.HTTP_HEADER_BYTES_MAX + limits.HTTP_FRAMING_EACH * body_bytes
