"""Bulk data for readers of the log, moved in a thread: checked, sent and read from its file.

`bulk_interface` says what it promises. The thread shares Python's lock with the loop here, so its
priority stays as it is: one that waits for a core with the lock in its hand would hold up all.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.kernel.batch_interface import BatchCheck
from penstock.kernel.bulk_interface import BulkResult, BulkStatus
from penstock.kernel.layout import HEADER_BYTES
from penstock.kernel.pure.batch import check_batch, decode_header

WINDOW_BYTES = 256 << 10
SLICE_BYTES = 256 << 10
STALL_LOOK_MS = 1000


class _Range(NamedTuple):
    """What `check` is to find."""

    file_fd: int
    end: int
    limit: int
    from_offset: int
    to_offset: int
    bytes_max: int


@dataclass
class _Check:
    token: int
    asked: _Range
    position: int
    expected: int
    start: int = -1
    base_offset: int = -1
    window: bytes = field(default=b"", repr=False)
    window_at: int = 0

    def run(self) -> BulkResult:
        try:
            sound = self._walk()
        except OSError as error:
            return _failed(self.token, error)
        empty = self.start < 0
        return BulkResult(
            self.token,
            BulkStatus.HURT if empty and not sound else BulkStatus.DONE,
            0,
            self.position if empty else self.start,
            self.position,
            self.base_offset,
            self.expected,
            b"",
        )

    def _walk(self) -> bool:
        """False where what should come next is hurt."""
        asked, total = self.asked, 0
        while self.position < asked.end and self.expected != asked.limit:
            length = self._sound_bytes()
            if not length:
                return False
            header = decode_header(self.window, self.position - self.window_at)
            if header.base_offset != self.expected:
                return False
            begun = self.start >= 0
            if begun and (
                header.base_offset >= asked.to_offset or total + length > asked.bytes_max
            ):
                return True
            if not begun and header.base_offset + header.count > asked.from_offset:
                self.start, self.base_offset = self.position, header.base_offset
            if self.start >= 0:
                total += length
            self.expected += header.count
            self.position += length
        return True

    def _sound_bytes(self) -> int:
        """The length of the sound batch at `position`; 0 when there is none."""
        needed = 0
        while True:
            left = self.asked.end - self.position
            at = self.position - self.window_at
            kept = len(self.window) - at
            if kept >= HEADER_BYTES:
                status, needed = check_batch(self.window, at)
                if status != BatchCheck.SHORT:
                    return needed if status == BatchCheck.SOUND else 0
            if needed > left or kept >= left:
                return 0
            room = min(max(needed, WINDOW_BYTES), left)
            self.window = os.pread(self.asked.file_fd, room, self.position)
            self.window_at = self.position
            if len(self.window) <= kept:
                return 0


@dataclass
class _Read:
    token: int
    file_fd: int
    position: int
    length: int

    def run(self) -> BulkResult:
        try:
            data = os.pread(self.file_fd, self.length, self.position)
        except OSError as error:
            return _failed(self.token, error)
        if len(data) < self.length:
            return _failed(self.token, OSError(errno.EIO, "the file is shorter"))
        end = self.position + self.length
        return BulkResult(self.token, BulkStatus.DONE, 0, self.position, end, 0, 0, data)


@dataclass
class _Send:
    token: int
    socket_fd: int
    head: bytes
    file_fd: int
    position: int
    end: int
    moved_s: float
    waits: bool = False

    def step(self) -> BulkResult | None:
        """One slice. None when there is more to do."""
        try:
            self._move()
        except BlockingIOError:
            self.waits = True
            return None
        except OSError as error:
            return _failed(self.token, error)
        self.moved_s = time.monotonic()
        if self.head or self.position < self.end:
            return None
        return BulkResult(self.token, BulkStatus.DONE, 0, 0, self.end, 0, 0, b"")

    def _move(self) -> None:
        if self.head:
            with socket.socket(fileno=os.dup(self.socket_fd)) as sock:
                self.head = self.head[sock.send(self.head) :]
        elif self.position < self.end:
            count = min(self.end - self.position, SLICE_BYTES)
            moved = os.sendfile(self.socket_fd, self.file_fd, self.position, count)
            if not moved:
                raise OSError(errno.EIO, "the file is shorter")
            self.position += moved


def _failed(token: int, error: OSError) -> BulkResult:
    number = error.errno or errno.EIO
    return BulkResult(token, BulkStatus.FAILED, number, 0, 0, 0, 0, b"")


class Bulk:
    def __init__(self, sends_max: int, stall_ns: int, nice: int) -> None:
        self._sends_max = sends_max
        self._stall_s = stall_ns / 1e9
        self._jobs: deque[_Check | _Read | _Send | None] = deque()
        self._done: deque[BulkResult] = deque()
        self._sends: list[_Send] = []
        self._woken, self._wake = _pipe()  # the thread, by the loop
        self._ready, self._tell = _pipe()  # the loop, by the thread

    def __del__(self) -> None:
        for fd in (self._woken, self._wake, self._ready, self._tell):
            os.close(fd)

    # --- the loop's side ---

    def fileno(self) -> int:
        return self._ready

    def check(
        self,
        token: int,
        file_fd: int,
        position: int,
        expected: int,
        end: int,
        limit: int,
        from_offset: int,
        to_offset: int,
        bytes_max: int,
    ) -> None:
        asked = _Range(file_fd, end, limit, from_offset, to_offset, bytes_max)
        self._give(_Check(token, asked, position, expected))

    def send(
        self, token: int, socket_fd: int, head: bytes, file_fd: int, position: int, length: int
    ) -> None:
        end = position + length
        self._give(_Send(token, socket_fd, head, file_fd, position, end, time.monotonic()))

    def read(self, token: int, file_fd: int, position: int, length: int) -> None:
        self._give(_Read(token, file_fd, position, length))

    def _give(self, job: _Check | _Read | _Send | None) -> None:
        self._jobs.append(job)
        _ring(self._wake)

    def finished(self) -> list[BulkResult]:
        _hush(self._ready)
        found = []
        while self._done:
            found.append(self._done.popleft())
        return found

    def end(self) -> None:
        self._give(None)

    # --- the thread's side ---

    def run(self) -> None:
        while self._take():
            self._wait()
            kept = []
            for send in self._sends:
                result = None if send.waits else send.step()
                if send.waits and time.monotonic() - send.moved_s > self._stall_s:
                    result = _failed(send.token, OSError(errno.ETIMEDOUT, "no progress"))
                if result is None:
                    kept.append(send)
                else:
                    self._finish(result)
            self._sends = kept

    def _wait(self) -> None:
        """Until there is a job, or a socket has room; not at all while one has."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        by_fd = {send.socket_fd: send for send in self._sends if send.waits}
        for fd in by_fd:
            poll.register(fd, select.POLLOUT)
        moving = len(by_fd) < len(self._sends)
        for fd, _ in poll.poll(0 if moving else STALL_LOOK_MS if by_fd else None):
            if fd in by_fd:
                by_fd[fd].waits = False
        _hush(self._woken)

    def _take(self) -> bool:
        """False when it is time to end."""
        while self._jobs:
            job = self._jobs.popleft()
            if job is None:
                return False
            if not isinstance(job, _Send):
                self._finish(job.run())
            elif len(self._sends) == self._sends_max:
                self._finish(_failed(job.token, OSError(errno.ENOMEM, "too many sends")))
            else:
                self._sends.append(job)
        return True

    def _finish(self, result: BulkResult) -> None:
        self._done.append(result)
        _ring(self._tell)


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for fd in ends:
        os.set_blocking(fd, False)
    return ends


def _ring(fd: int) -> None:
    try:
        os.write(fd, b"\0")
    except BlockingIOError:
        return  # it is full: whoever listens will hear


def _hush(fd: int) -> None:
    try:
        os.read(fd, 4096)
    except BlockingIOError:
        return
