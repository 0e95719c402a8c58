"""The raw V2 client over TLS, snappy and deflate. Compression is the test's own, not ours."""

import ssl
import zlib
from typing import Any

import cramjam

from .v2client import Closed, V2Client

SNAPPY_MAGIC = b"\xff\x06\x00\x00sNaPpY"


class Upgraded(V2Client):
    """`Upgraded(port, context, snappy=True)`: connected, identified, and past every OK."""

    def __init__(
        self,
        port: int,
        context: ssl.SSLContext | None = None,
        snappy: bool = False,
        deflate: bool = False,
        **identify: Any,
    ) -> None:
        super().__init__(port)
        self._snappy = False
        self._inflate: Any = None
        self._deflate: Any = None
        self._encoded = b""
        try:
            self._negotiate(context, snappy, deflate, identify)
        except BaseException:
            self.close()
            raise

    def _negotiate(
        self, context: ssl.SSLContext | None, snappy: bool, deflate: bool, identify: dict[str, Any]
    ) -> None:
        self.answer = self.identify(
            tls_v1=context is not None, snappy=snappy, deflate=deflate, **identify
        )
        if context is not None:
            self.secure(context)
            self.ok()
        if snappy:
            self._snappy = True
            self._decode(0)
            self.ok()
        elif deflate:
            self._inflate = zlib.decompressobj(-15)
            self._deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
            self._decode(0)
            self.ok()

    def secure(self, context: ssl.SSLContext) -> None:
        self.socket.settimeout(self.timeout_s)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def encoded(self, data: bytes) -> bytes:
        if self._snappy:
            return bytes(cramjam.snappy.compress(data))  # an identifier each time, as pynsq
        if self._deflate is not None:
            return bytes(self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH))
        return data

    def send(self, data: bytes) -> None:
        super().send(self.encoded(data) if hasattr(self, "_deflate") else data)

    def send_raw(self, data: bytes) -> None:
        """Below the compression."""
        super().send(data)

    def _receive(self, timeout_s: float) -> bool:
        have = len(self._buffer)
        if not super()._receive(timeout_s):
            return False
        self._decode(have)
        return True

    def _decode(self, start: int) -> None:
        """What stands in the buffer from `start` on is still encoded."""
        data = bytes(self._buffer[start:])
        if self._snappy:
            self._encoded += data
            self._buffer[start:] = self._decoded_chunks()
        elif self._inflate is not None:
            self._buffer[start:] = self._inflate.decompress(data)

    def _decoded_chunks(self) -> bytes:
        """Whole chunks only: the other implementation takes whole streams."""
        end = 0
        while len(self._encoded) >= end + 4:
            size = int.from_bytes(self._encoded[end + 1 : end + 4], "little")
            if len(self._encoded) < end + 4 + size:
                break
            end += 4 + size
        chunks, self._encoded = self._encoded[:end], self._encoded[end:]
        if not chunks:
            return b""
        if not chunks.startswith(SNAPPY_MAGIC):
            chunks = SNAPPY_MAGIC + chunks
        return bytes(cramjam.snappy.decompress(chunks))

    def is_closed(self) -> bool:
        """Wait for the end of the stream, dropping what comes before it."""
        try:
            while self.frame() is not None:
                pass
        except (Closed, OSError):
            return True
        return False
