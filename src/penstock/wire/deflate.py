"""Deflate as a stream: raw RFC 1951, no header and no checksum, flushed after each write.

Each piece that a writer sends ends on a byte (a sync flush), so a reader can decode all of it at
once. Neither side ever ends the stream; a final block is followed by nothing.

A few bytes of deflate may stand for megabytes, so a reader asks for a bounded number of bytes, and
zlib stops there.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from penstock import limits
from penstock.errors import StreamBroken

if TYPE_CHECKING:
    from typing_extensions import Buffer

_RAW_WINDOW_BITS = -15


class DeflateEncoder:
    """Each call gives bytes that a reader can decode wholly."""

    def __init__(self, level: int) -> None:
        self._stream = zlib.compressobj(level, zlib.DEFLATED, _RAW_WINDOW_BITS)

    def encode(self, data: bytes) -> bytes:
        if not data:
            return b""
        return self._stream.compress(data) + self._stream.flush(zlib.Z_SYNC_FLUSH)


class DeflateDecoder:
    """`feed` what arrived, then `read` until it gives nothing.

    Holds what was fed and not yet used, and zlib's window of 32 KiB.
    """

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_RAW_WINDOW_BITS)
        self._input = bytearray()
        self._at = 0  # what stands before it in the input is used up
        self._piece: bytes | memoryview = b""  # in zlib's hands
        self._may_hold = False  # the output was full: there may be more in zlib

    def feed(self, data: Buffer) -> None:
        if self._at:
            del self._input[: self._at]
            self._at = 0
        self._input += data

    def read(self, bytes_max: int) -> bytes:
        """At most so many plain bytes; b"" when more input is needed. Raises StreamBroken."""
        parts: list[bytes] = []
        room = bytes_max
        while room > 0 and self._next_piece():
            if self._stream.eof:
                raise StreamBroken("deflate", "bytes behind the final block")
            try:
                part = self._stream.decompress(self._piece, room)
            except zlib.error as error:
                raise StreamBroken("deflate", str(error)) from error
            self._piece = self._stream.unconsumed_tail or self._stream.unused_data
            self._may_hold = len(part) == room
            room -= len(part)
            parts.append(part)
        return b"".join(parts)

    def read_into(self, view: memoryview) -> int:
        """The same into `view`, whose whole length may be used."""
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def _next_piece(self) -> bool:
        """Is there something to decompress?"""
        if self._piece or (self._may_hold and not self._stream.eof):
            return True
        piece = bytes(memoryview(self._input)[self._at : self._at + limits.INFLATE_BYTES])
        self._piece = piece
        self._at += len(piece)
        return bool(piece)
