"""The loop's side of bulk reading: jobs in line, what is given up, and bodies in slices."""

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

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


def test_a_body_in_slices(file_fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BULK_SLICE_BYTES", 300)
    released: list[None] = []

    async def main() -> list[bytes | OSError]:
        loop = asyncio.get_running_loop()
        bulk = BulkThread(loop)
        body = FileBody(bulk, file_fd, 100, 700, lambda: released.append(None))
        found: list[bytes | OSError] = []
        while not found or found[-1]:
            slice_ = loop.create_future()
            body.read(slice_.set_result)
            found.append(await slice_)
        bulk.close()
        return found

    assert asyncio.run(main()) == [DATA[100:400], DATA[400:700], DATA[700:800], b""]
    assert released == [None]


async def test_a_cancelled_body_reads_no_more(file_fd: int) -> None:
    released: list[None] = []
    bulk_errors: list[bytes | OSError] = []
    bulk = BulkThread(asyncio.get_running_loop())
    body = FileBody(bulk, file_fd, 0, 10, lambda: released.append(None))
    body.cancel()
    body.read(bulk_errors.append)
    bulk.close()
    assert isinstance(bulk_errors[0], OSError)
    assert released == [None]
