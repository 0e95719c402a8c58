"""Snappy and deflate as streams.

**Snappy** is the framing format, over raw blocks.

    [type u8] [length u24, little-endian] [length bytes]

    ff   stream identifier, `sNaPpY`: the first chunk, and again wherever a writer starts anew
         (pynsq makes a new encoder for each command)
    00   compressed: [masked crc32c of the plain bytes, u32 little-endian] [snappy block]
    01   plain: [masked crc32c] [bytes]
    80-fe  to be skipped (fe is padding)
    02-7f  reserved: a reader must give up

A chunk holds at most 64 KiB of plain bytes, so a reader needs no more memory than that, whatever
was announced. A checksum that does not fit ends the stream: its bytes are never passed on.

Raw blocks come from a compiled library, the checksum from the kernel.

**Deflate** is raw RFC 1951, no header and no checksum, flushed after each write. Each piece that a
writer sends ends on a byte (a sync flush), so a reader can decode all of it at once. Neither side
ever ends the stream; a final block is followed by nothing.

A few bytes of deflate may stand for megabytes, so a reader asks for a bounded number of bytes, and
zlib stops there.
"""

from __future__ import annotations

import struct
import zlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import cramjam

from penstock import limits
from penstock.errors import StreamBroken
from penstock.kernel import crc32c

if TYPE_CHECKING:
    from typing_extensions import Buffer


IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"

_COMPRESSED, _PLAIN, _IDENTIFIER = 0x00, 0x01, 0xFF
_SKIPPABLE_FIRST = 0x80
_HEAD_BYTES = 4
_CRC_BYTES = 4
_NAME = IDENTIFIER[_HEAD_BYTES:]
_CHUNK = limits.SNAPPY_CHUNK_BYTES_MAX
# What a block of 64 KiB can grow to at worst (the format's own formula), and its checksum.
_BLOCK_BYTES_MAX = 32 + _CHUNK + _CHUNK // 6
_CHUNK_HEAD = struct.Struct("<II")  # type and length in one number; masked checksum
_compress = cramjam.snappy.compress_raw
_decompress = cramjam.snappy.decompress_raw
_decompress_into = cramjam.snappy.decompress_raw_into
_plain_bytes = cramjam.snappy.decompress_raw_len


def masked_crc32c(data: Buffer) -> int:
    """The checksum in the form of a chunk: a checksum of checksums would be a poor one."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


class SnappyEncoder:
    """Each call gives whole chunks, ready to be sent."""

    def __init__(self) -> None:
        self._started = False

    def encode(self, data: bytes) -> bytes:
        if not data:
            return b""
        parts: list[Buffer] = []
        if not self._started:
            self._started = True
            parts.append(IDENTIFIER)
        if len(data) <= _CHUNK:
            self._add_chunk(parts, data)
        else:
            view = memoryview(data)
            for start in range(0, len(data), _CHUNK):
                self._add_chunk(parts, view[start : start + _CHUNK])
        return b"".join(parts)

    @staticmethod
    def _add_chunk(parts: list[Buffer], data: bytes | memoryview) -> None:
        block = _compress(data)
        kind = _COMPRESSED
        body: Buffer = block
        size = len(block)
        if len(block) >= len(data) - len(data) // 8:  # not worth the reader's work
            kind, body, size = _PLAIN, data, len(data)
        parts.append(_CHUNK_HEAD.pack(kind | size + _CRC_BYTES << 8, masked_crc32c(data)))
        parts.append(body)


class _Decoder(ABC):
    """`feed` the input, then read until nothing comes."""

    def __init__(self) -> None:
        self._input = bytearray()
        self._at = 0  # what stands before it in the input is used up

    def feed(self, data: Buffer) -> None:
        if self._at:
            del self._input[: self._at]
            self._at = 0
        self._input += data

    @abstractmethod
    def read_into(self, view: memoryview) -> int:
        """Plain bytes into `view`, whose whole length may be used; their number, 0 when more input
        is needed. Raises StreamBroken."""

    def read(self, bytes_max: int) -> bytes:
        view = memoryview(bytearray(bytes_max))
        return bytes(view[: self.read_into(view)])


class SnappyDecoder(_Decoder):
    """Holds unused input, and at most one chunk of plain bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._skip_bytes = 0  # of a skippable chunk that has not arrived yet
        self._started = False
        self._rest = memoryview(b"")  # of a chunk that was larger than what was asked for

    def read_into(self, view: memoryview) -> int:
        """A chunk that fits is decoded in place."""
        size = 0
        while size < len(view):
            if self._rest:
                part = self._rest[: len(view) - size]
                view[size : size + len(part)] = part
                self._rest = self._rest[len(part) :]
                size += len(part)
                continue
            chunk = self._next_chunk()
            if chunk is None:
                break
            plain = self._plain(*chunk, view[size:])
            if plain.obj is view.obj:
                size += len(plain)
            else:
                self._rest = plain
        return size

    def _next_chunk(self) -> tuple[int, bytes] | None:
        """Kind and content of the next chunk that holds data; None when it is not all there."""
        while True:
            self._skip()
            available = len(self._input) - self._at - _HEAD_BYTES
            if self._skip_bytes or available < 0:
                return None
            head = int.from_bytes(self._input[self._at : self._at + _HEAD_BYTES], "little")
            kind, size = head & 0xFF, head >> 8
            self._check_head(kind, size)
            if kind >= _SKIPPABLE_FIRST and kind != _IDENTIFIER:
                self._at += _HEAD_BYTES
                self._skip_bytes = size
                continue
            if available < size:
                return None
            start = self._at + _HEAD_BYTES
            self._at = start + size
            body = bytes(memoryview(self._input)[start : start + size])
            if kind == _IDENTIFIER:
                if body != _NAME:
                    raise StreamBroken("snappy", f"the stream identifier is {body!r}")
                self._started = True
                continue
            return kind, body

    def _skip(self) -> None:
        if self._skip_bytes:
            step = min(self._skip_bytes, len(self._input) - self._at)
            self._skip_bytes -= step
            self._at += step

    def _check_head(self, kind: int, size: int) -> None:
        if kind == _IDENTIFIER:
            if size != len(_NAME):
                raise StreamBroken("snappy", f"a stream identifier of {size} bytes")
        elif not self._started:
            raise StreamBroken("snappy", f"it begins with a chunk of type {kind:#04x}")
        elif kind >= _SKIPPABLE_FIRST:
            return
        elif kind not in (_COMPRESSED, _PLAIN):
            raise StreamBroken("snappy", f"a chunk of unknown type {kind:#04x}")
        else:
            most = _CRC_BYTES + (_CHUNK if kind == _PLAIN else _BLOCK_BYTES_MAX)
            if not _CRC_BYTES <= size <= most:
                raise StreamBroken("snappy", f"a chunk of {size} bytes, {most} at most")

    @staticmethod
    def _plain(kind: int, body: bytes, room: memoryview) -> memoryview:
        """The plain bytes of a chunk; they lie in `room` if they were compressed and fit there."""
        data = memoryview(body)[_CRC_BYTES:]
        if kind == _COMPRESSED:
            try:
                size = _plain_bytes(data)
                if size > _CHUNK:
                    raise StreamBroken("snappy", f"a chunk that holds {size} bytes")
                if size <= len(room):
                    _decompress_into(data, room[:size])
                    data = room[:size]
                else:
                    data = memoryview(_decompress(data))
            except cramjam.DecompressionError as error:
                raise StreamBroken("snappy", f"a chunk that cannot be read ({error})") from error
        if masked_crc32c(data) != int.from_bytes(body[:_CRC_BYTES], "little"):
            raise StreamBroken("snappy", "a chunk whose checksum does not fit")
        return data


_RAW_WINDOW_BITS = -15


class DeflateEncoder:
    """Each call gives bytes that a reader can decode wholly."""

    def __init__(self, level: int) -> None:
        self._stream = zlib.compressobj(level, zlib.DEFLATED, _RAW_WINDOW_BITS)

    def encode(self, data: bytes) -> bytes:
        if not data:
            return b""
        return self._stream.compress(data) + self._stream.flush(zlib.Z_SYNC_FLUSH)


class DeflateDecoder(_Decoder):
    """Holds unused input, and zlib's window of 32 KiB."""

    def __init__(self) -> None:
        super().__init__()
        self._stream = zlib.decompressobj(_RAW_WINDOW_BITS)
        self._piece: bytes | memoryview = b""  # in zlib's hands
        self._may_hold = False  # the output was full: there may be more in zlib

    def read_into(self, view: memoryview) -> int:
        size = 0
        while size < len(view) and self._next_piece():
            if self._stream.eof:
                raise StreamBroken("deflate", "bytes behind the final block")
            try:
                part = self._stream.decompress(self._piece, len(view) - size)
            except zlib.error as error:
                raise StreamBroken("deflate", str(error)) from error
            self._piece = self._stream.unconsumed_tail or self._stream.unused_data
            view[size : size + len(part)] = part
            size += len(part)
            self._may_hold = size == len(view)
        return size

    def _next_piece(self) -> bool:
        """Is there anything to decompress?"""
        if self._piece or (self._may_hold and not self._stream.eof):
            return True
        piece = bytes(memoryview(self._input)[self._at : self._at + limits.INFLATE_BYTES])
        self._piece = piece
        self._at += len(piece)
        return bool(piece)
