"""An answer whose body is in a file: on its way to one connection.

Where the transport is plain and has nothing left to write, the body goes from file to socket
without passing through here. Otherwise slices are read beside the loop and written by the
transport, one after the other, as fast as the client takes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Body(Protocol):
    """See `net/bulk.py`."""

    length: int

    def send(self, socket_fd: int, head: bytes, done: Callable[[OSError | None], None]) -> None: ...
    def read(self, done: Callable[[bytes | OSError], None]) -> None: ...
    def cancel(self) -> None: ...
    def release(self) -> None: ...


class Sending:
    """`done` is called once, with what went wrong or None; never within `start`."""

    def __init__(
        self,
        transport: asyncio.Transport,
        body: Body,
        head: bytes,
        done: Callable[[OSError | None], None],
    ) -> None:
        self._transport = transport
        self._body = body
        self._head = head
        self._done = done
        self._paused = False  # the transport has enough to write
        self._reading = False
        self._in_slices = False
        self._moved = True  # since `is_stuck` was last asked

    def start(self) -> None:
        transport = self._transport
        sock = transport.get_extra_info("socket")
        is_plain = transport.get_extra_info("sslcontext") is None and sock is not None
        if is_plain and not transport.get_write_buffer_size():
            self._body.send(sock.fileno(), self._head, self._done)
        else:
            self._in_slices = True
            transport.write(self._head)
            self._read()

    def is_stuck(self) -> bool:
        """Has the client taken nothing since this was last asked? What goes straight from the file
        is watched by the thread that sends it."""
        moved, self._moved = self._moved, False
        return self._in_slices and not moved

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._read()

    def cancel(self) -> None:
        """The connection is gone. `done` still comes."""
        self._body.cancel()
        self.resume()

    def _read(self) -> None:
        if not self._reading and not self._paused:
            self._reading = True
            self._body.read(self._write)

    def _write(self, found: bytes | OSError) -> None:
        self._reading = False
        if isinstance(found, OSError):
            self._done(found)
        elif not found:
            self._done(None)
        else:
            self._moved = True
            self._transport.write(found)
            self._read()
