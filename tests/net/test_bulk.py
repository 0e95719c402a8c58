"""The loop's side of bulk reading: jobs in line, what is given up, and bodies in slices."""

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from penstock import limits
from penstock.kernel import BulkResult, BulkStatus
from penstock.net.bulk import BulkThread, FileBody

DATA = bytes(range(256)) * 4


@pytest.fixture
def file_fd(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


def read(bulk: BulkThread, fd: int, position: int, done: Callable[[BulkResult], None]) -> None:
    bulk.give(lambda kernel, token: kernel.read(token, fd, position, 1), done)


def test_more_jobs_than_may_be_out_wait_in_line(
    file_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BULK_JOBS_MAX", 2)

    async def main() -> list[bytes]:
        bulk = BulkThread(asyncio.get_running_loop())
        found: list[bytes] = []
        all_done = asyncio.Event()

        def done(result: BulkResult) -> None:
            found.append(result.data)
            if len(found) == 10:
                all_done.set()

        for number in range(10):
            read(bulk, file_fd, number, done)
        assert len(bulk._out) == 2
        await all_done.wait()
        bulk.close()
        return found

    assert sorted(asyncio.run(main())) == [bytes([number]) for number in range(10)]


def test_close_cancels_unfinished_jobs(file_fd: int) -> None:
    async def main() -> list[BulkResult]:
        bulk = BulkThread(asyncio.get_running_loop())
        found: list[BulkResult] = []
        for _ in range(limits.BULK_JOBS_MAX + 5):
            read(bulk, file_fd, 0, found.append)
        bulk.close()
        assert len(found) == limits.BULK_JOBS_MAX + 5
        read(bulk, file_fd, 0, found.append)
        assert len(found) == limits.BULK_JOBS_MAX + 5  # never within the call
        await asyncio.sleep(0)
        bulk.close()
        return found

    last = asyncio.run(main())[-1]
    assert (last.status, last.error) == (BulkStatus.FAILED, errno.ECANCELED)


class Transport:
    """Without a socket, so that slices go through it. It pauses the sender after each write."""

    def __init__(self) -> None:
        self.body: FileBody
        self.written: list[bytes] = []

    def get_extra_info(self, name: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self.body.pause()


async def sent(
    bulk: BulkThread, file_fd: int, act: Callable[[FileBody], None]
) -> tuple[list[bytes], OSError | None]:
    """What was written, and how it ended; `act` is done when the sender is paused."""
    transport, released, ended = Transport(), [], asyncio.get_running_loop().create_future()
    body = FileBody(bulk, file_fd, 100, 700, lambda: released.append(None))
    transport.body = body
    body.send(cast(asyncio.Transport, transport), b"head", ended.set_result)
    while not ended.done():
        await asyncio.sleep(0.001)
        if body._paused and not ended.done():
            act(body)
    bulk.close()
    assert released == [None]
    return transport.written, ended.result()


async def test_a_body_in_slices(file_fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BULK_SLICE_BYTES", 300)
    bulk = BulkThread(asyncio.get_running_loop())
    written, error = await sent(bulk, file_fd, FileBody.resume)
    assert (written, error) == ([b"head", DATA[100:400], DATA[400:700], DATA[700:800]], None)


async def test_a_cancelled_body_reads_no_more(file_fd: int) -> None:
    written, error = await sent(BulkThread(asyncio.get_running_loop()), file_fd, FileBody.cancel)
    assert written == [b"head"]
    assert error is not None
    assert error.errno == errno.ECANCELED
