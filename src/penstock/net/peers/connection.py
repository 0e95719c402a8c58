"""One connection to another node: a lane, once both have authenticated.

What comes over it is held back until its link is whole (`go_on`): frames on the live lane may
arrive before the other lane is there, and none may be lost or looked at twice. Nothing that came is
handed out after `close`.

An append of the log goes into the socket from the memory that it lies in: a copy for the event
loop, which would write later, costs more than the write. Only what the socket does not take is
copied.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from penstock.errors import PeerFault
from penstock.net.peers.handshake import Dialling, HandshakeState, Listening, PeerRefused

if TYPE_CHECKING:
    from typing_extensions import Buffer

_GREETING_BYTES = 4096
_DIRECT_BYTES_MIN = 65_536  # what is smaller goes out with all else of this turn of the loop
_BUFFERS_MAX = 1024  # of one write, by the kernel's rule


class PeerConnection(asyncio.BufferedProtocol):
    """`on_open`: the handshake is done. From then on bytes go into `space()`, and `on_filled`
    receives their number. `on_end`: it is over, with the reason; never after `close`."""

    def __init__(self, handshake: Dialling | Listening, since_ns: int) -> None:
        self.since_ns = since_ns
        self.on_open: Callable[[], None] = lambda: None
        self.space: Callable[[], memoryview] = lambda: self._greeting
        self.on_filled: Callable[[int], None] = lambda count: None
        self.on_end: Callable[[str], None] = lambda reason: None
        self._handshake = handshake
        self._transport: asyncio.Transport | None = None
        self._socket = -1  # to write to without the event loop; none with TLS
        self._opened: asyncio.Future[None] | None = None
        self._greeting = memoryview(bytearray(_GREETING_BYTES))
        self._held = b""  # came before the link was whole
        self._reads = False
        self._paused = False
        self._closed = False

    # --- the handshake ---

    def wait_open(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Fails with PeerFault."""
        self._opened = loop.create_future()
        return self._opened

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if transport.get_extra_info("sslcontext") is None:
            self._socket = transport.get_extra_info("socket").fileno()
        if self._closed:
            self._transport.abort()
        elif isinstance(self._handshake, Dialling):
            self._transport.write(self._handshake.begin())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.space() if self._reads else self._greeting

    def buffer_updated(self, nbytes: int) -> None:
        if self._closed:
            return
        if self._reads:
            self.on_filled(nbytes)
        elif self._handshake.state is HandshakeState.OPEN:
            self._held += self._greeting[:nbytes]
        else:
            self._shake(bytes(self._greeting[:nbytes]))

    def _shake(self, data: bytes) -> None:
        try:
            out = self._handshake.feed(data)
        except PeerFault as fault:
            if isinstance(fault, PeerRefused) and fault.answer:
                self._write(fault.answer)
                self._close_gently()
            self._fail(fault)
            return
        if out:
            self._write(out)
        if self._handshake.state is HandshakeState.OPEN:
            self._held = self._handshake.rest
            if self._transport is not None:
                self._transport.pause_reading()
            self.on_open()
            if self._opened is not None and not self._opened.done():
                self._opened.set_result(None)

    def go_on(self) -> None:
        """The link is whole: input is passed on, now and later."""
        self._reads, self._paused = True, False
        held, self._held = memoryview(self._held), b""
        while held and not (self._closed or self._paused):
            space = self.space()
            part, held = held[: len(space)], held[len(space) :]
            space[: len(part)] = part
            self.on_filled(len(part))
        if self._paused:
            self._held = bytes(held)
        elif self._transport is not None and not self._closed:
            self._transport.resume_reading()

    def pause(self) -> None:
        """No more input until `go_on`."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    # --- sending ---

    @property
    def waiting_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def write(self, parts: Sequence[Buffer]) -> None:
        """The parts may change when this has returned."""
        transport = self._transport
        if transport is None or self._closed or transport.is_closing():
            return
        size = sum(map(_length_of, parts))
        sent = 0
        if size >= _DIRECT_BYTES_MIN and self._socket >= 0 and not self.waiting_bytes:
            sent = _write_directly(self._socket, parts[:_BUFFERS_MAX])
        if sent < size:
            transport.write(_joined_from(parts, sent))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    # --- the end ---

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(PeerFault(str(error) if error is not None else "it has closed the connection"))

    def _fail(self, fault: PeerFault) -> None:
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(fault)
        if not self._closed:
            self.close()
            self.on_end(str(fault))

    def _close_gently(self) -> None:
        """Output is still sent."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def close(self) -> None:
        self._closed = True
        self._held = b""
        if self._transport is not None:
            self._transport.abort()


_length_of: Callable[[Any], int] = len  # parts are flat bytes


def _write_directly(socket: int, parts: Sequence[Buffer]) -> int:
    """Returns the number of bytes that the socket accepted."""
    try:
        return os.writev(socket, parts)
    except OSError:  # full, or broken: the event loop finds that out, too, and ends the connection
        return 0


def _joined_from(parts: Sequence[Buffer], start: int) -> bytes:
    if not start:
        return b"".join(parts)
    left = []
    for part in parts:
        left.append(memoryview(part)[start:])
        start = max(0, start - _length_of(part))
    return b"".join(left)
