"""The loop's side of bulk reading: the kernel's thread checks and reads ranges of log files, and
sends them to sockets, while the loop continues.

A range is sent straight from its file (`sendfile`) where the socket takes plain bytes and has
nothing else to say. Elsewhere (TLS, or an answer before it is still on its way) the thread reads
slices that the transport writes. Either way the loop waits for no disk and copies nothing large.
"""

import asyncio
import errno
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from penstock import limits
from penstock.kernel import Bulk, BulkResult, BulkStatus

Done = Callable[[BulkResult], None]


class BulkThread:
    """The thread is started by the first job. At most so many jobs are out; more wait in line."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._bulk: Bulk | None = None
        self._thread: threading.Thread | None = None
        self._serial = 0
        self._out: dict[int, Done] = {}
        self._line: deque[tuple[Callable[[Bulk, int], None], Done]] = deque()
        self._closed = False

    def give(self, start: Callable[[Bulk, int], None], done: Done) -> None:
        """`start` begins a job of the kernel's (`kernel/bulk.pyi`), with this number."""
        self._serial += 1
        if self._closed:
            self._loop.call_soon(done, _cancelled(self._serial))
        elif len(self._out) >= limits.BULK_JOBS_MAX:
            self._line.append((start, done))
        else:
            self._out[self._serial] = done
            start(self._started(), self._serial)

    def _started(self) -> Bulk:
        if self._bulk is None:
            self._bulk = Bulk(limits.BULK_JOBS_MAX, limits.BULK_STALL_NS, limits.BULK_NICE)
            self._loop.add_reader(self._bulk.fileno(), self._on_finished)
            self._thread = threading.Thread(target=self._bulk.run, name="bulk", daemon=True)
            self._thread.start()
        return self._bulk

    def _on_finished(self) -> None:
        for result in self._started().finished():
            self._out.pop(result.token)(result)
        while self._line and len(self._out) < limits.BULK_JOBS_MAX:
            self.give(*self._line.popleft())

    def close(self) -> None:
        """Unfinished jobs are cancelled."""
        if self._closed:
            return
        self._closed = True
        if self._bulk is not None and self._thread is not None:
            self._loop.remove_reader(self._bulk.fileno())
            self._bulk.end()
            self._thread.join()
            for result in self._bulk.finished():
                self._out.pop(result.token)(result)
        for token, done in list(self._out.items()):
            done(_cancelled(token))
        for _, done in self._line:
            done(_cancelled(0))
        self._out.clear()
        self._line.clear()


def _cancelled(token: int) -> BulkResult:
    return BulkResult(token, BulkStatus.FAILED, errno.ECANCELED, 0, 0, 0, 0, b"")


@dataclass(eq=False)
class FileBody:
    """A part of a file as the body of an answer. `release` is called once, after its last use."""

    _bulk: BulkThread
    _file_fd: int
    _position: int
    length: int
    release: Callable[[], None]
    _socket_fd: int = -1  # while the kernel's thread sends to it
    _paused: bool = False  # the transport has enough to write
    _reading: bool = False
    _cancelled: bool = False
    _in_slices: bool = False
    _moved: bool = True  # since `is_stuck` was last asked

    def send(
        self, transport: asyncio.Transport, head: bytes, done: Callable[[OSError | None], None]
    ) -> None:
        """Send it over a connection that nobody else writes to meanwhile. `done` is called once,
        with an error or None; never within this call."""
        self._transport, self._done = transport, done
        self._left = self.length
        sock = transport.get_extra_info("socket")
        is_plain = transport.get_extra_info("sslcontext") is None and sock is not None
        if is_plain and not transport.get_write_buffer_size():
            # It stays, and stays this socket, when its owner closes his.
            self._socket_fd = os.dup(sock.fileno())
            what = self._socket_fd, head, self._file_fd, self._position, self.length
            self._bulk.give(lambda bulk, token: bulk.send(token, *what), self._sent)
        else:
            self._in_slices = True
            transport.write(head)
            self._read()

    def is_stuck(self) -> bool:
        """Has the client read nothing since the last call? The sending thread watches output that
        comes straight from the file."""
        moved, self._moved = self._moved, False
        return self._in_slices and not moved

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._read()

    def cancel(self) -> None:
        """The connection is gone: it ends soon, and with an error."""
        self._cancelled = True
        if self._socket_fd >= 0:
            with socket.socket(fileno=os.dup(self._socket_fd)) as sock, suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self.resume()

    def _read(self) -> None:
        if self._reading or self._paused:
            return
        if self._cancelled:
            self._finish(OSError(errno.ECANCELED, "the connection is gone"))
            return
        self._reading = True
        where = self._file_fd, self._position, min(self._left, limits.BULK_SLICE_BYTES)
        self._bulk.give(lambda bulk, token: bulk.read(token, *where), self._write)

    def _write(self, result: BulkResult) -> None:
        self._reading = False
        error = _error(result)
        if error is not None:
            self._finish(error)
            return
        self._position += len(result.data)
        self._left -= len(result.data)
        if not self._cancelled:
            self._moved = True
            self._transport.write(result.data)
        if self._left or self._cancelled:
            self._read()
        else:
            self._finish(None)

    def _sent(self, result: BulkResult) -> None:
        fd, self._socket_fd = self._socket_fd, -1
        os.close(fd)
        self._finish(_error(result))

    def _finish(self, error: OSError | None) -> None:
        self.release()
        self._done(error)


def _error(result: BulkResult) -> OSError | None:
    if result.status == BulkStatus.DONE:
        return None
    return OSError(result.error, os.strerror(result.error))
