"""Bulk reading in a thread: what is found in a file, sent from it and read."""

import errno
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from penstock import kernel
from penstock.kernel import BulkResult, BulkStatus

WAIT_S = 30.0
NEVER_NS = 10**15
DONE, CORRUPT, FAILED = BulkStatus


Opened = Callable[[bytes], int]
Pair = tuple[socket.socket, socket.socket]


class Thread:
    """A Bulk at work."""

    def __init__(self, stall_ns: int = NEVER_NS, sends_max: int = 4):
        self.bulk = kernel.Bulk(sends_max, stall_ns, 0)
        self._thread = threading.Thread(target=self.bulk.run)
        self._thread.start()
        self._results: list[BulkResult] = []

    def result(self) -> BulkResult:
        while not self._results:
            assert select.select([self.bulk.fileno()], [], [], WAIT_S)[0], "nothing came back"
            self._results += self.bulk.finished()
        return self._results.pop(0)

    def end(self) -> None:
        self.bulk.end()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


Start = Callable[..., Thread]


@pytest.fixture
def start() -> Iterator[Start]:
    threads: list[Thread] = []

    def make(**options: int) -> Thread:
        threads.append(Thread(**options))
        return threads[-1]

    yield make
    for thread in threads:
        thread.end()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    descriptors: list[int] = []

    def make(data: bytes) -> int:
        path = tmp_path / str(len(descriptors))
        path.write_bytes(data)
        descriptors.append(os.open(path, os.O_RDONLY))
        return descriptors[-1]

    yield make
    for fd in descriptors:
        os.close(fd)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """The sending end, which does not block, and the receiving one."""
    sender, receiver = socket.socketpair()
    sender.setblocking(False)
    receiver.settimeout(WAIT_S)
    with sender, receiver:
        yield sender, receiver


# --- check ---


def batches(first: int = 100, body_bytes: int = 50) -> list[bytes]:
    """Five of two messages each."""
    bodies = [b"x" * body_bytes] * 2
    return [kernel.encode_batch(bodies, first + 2 * n, n << 22, 0) for n in range(5)]


def check(thread: Thread, fd: int, end: int, **changed: int) -> BulkResult:
    asked: dict[str, Any] = {
        "position": 0, "expected": 100, "end": end, "limit": -1,
        "from_offset": 100, "to_offset": 1 << 62, "bytes_max": 1 << 40,
    }  # fmt: skip
    thread.bulk.check(7, fd, **(asked | changed))
    return thread.result()


found = attrgetter("token", "status", "start", "end", "base_offset", "next_offset")


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ({}, 0, 5),
        ({"from_offset": 103}, 1, 5),
        ({"from_offset": 104, "to_offset": 106}, 2, 3),
        ({"from_offset": 105, "to_offset": 107}, 2, 4),
        ({"bytes_max": 1}, 0, 1),
        ({"bytes_max": 3 * 184 - 1}, 0, 2),
        ({"bytes_max": 3 * 184}, 0, 3),
        ({"limit": 106}, 0, 3),
        ({"end": 2 * 184}, 0, 2),
        ({"position": 184, "expected": 102, "from_offset": 102}, 1, 5),
    ],
)
def test_a_range_of_intact_batches(
    start: Start, opened: Opened, asked: dict[str, int], first: int, last: int
) -> None:
    written = batches()
    length = len(written[0])
    assert length == 184
    fd = opened(b"".join(written) + bytes(1000))
    result = check(start(), fd, **({"end": 5 * length} | asked))
    offsets = 100 + 2 * first, 100 + 2 * last
    assert found(result) == (7, DONE, first * length, last * length, *offsets)


def test_batches_larger_than_the_window(start: Start, opened: Opened) -> None:
    written = batches(body_bytes=300_000)
    whole = b"".join(written)
    result = check(start(), opened(whole), len(whole), from_offset=104)
    assert found(result) == (7, DONE, 2 * len(written[0]), len(whole), 104, 110)


@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize("how", ["a body", "a length", "the offset", "cut off", "not there"])
def test_a_range_ends_before_a_corrupt_batch(
    start: Start, opened: Opened, number: int, how: str
) -> None:
    written = batches()
    length = len(written[0])
    data = bytearray(b"".join(written))
    at = number * length
    if how == "the offset":
        data[at : at + length] = kernel.encode_batch([b"y" * 50] * 2, 7, 0, 0)
    elif how in ("cut off", "not there"):
        del data[at + (40 if how == "cut off" else 0) :]
    else:
        data[at + (8 if how == "a length" else 100)] ^= 0x40
    thread = start()
    fd = opened(bytes(data))
    before = (DONE, 0, at, 100, 100 + 2 * number) if number else (CORRUPT, 0, 0, -1, 100)
    assert found(check(thread, fd, 5 * length)) == (7, *before)
    beyond = check(thread, fd, 5 * length, from_offset=100 + 2 * number)
    assert (beyond.status, beyond.start, beyond.next_offset) == (CORRUPT, at, 100 + 2 * number)


# --- send and read ---


def receive(receiver: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        data += receiver.recv(1 << 16)
    return bytes(data)


def test_a_head_and_a_part_of_a_file_are_sent(start: Start, opened: Opened, pair: Pair) -> None:
    """Far more than a socket holds, and two at a time."""
    data = bytes(range(251)) * 40_000
    thread, (sender, receiver), fd = start(), pair, opened(data)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as client:
            accepted, _ = listener.accept()
            with accepted:
                accepted.setblocking(False)
                thread.bulk.send(1, accepted.fileno(), b"one:", fd, 1000, len(data) - 1000)
                thread.bulk.send(2, sender.fileno(), b"two:", fd, 0, 5_000_000)
                assert receive(receiver, 5_000_004) == b"two:" + data[:5_000_000]
                assert receive(client, len(data) - 996) == b"one:" + data[1000:]
                results = sorted(thread.result() for _ in range(2))
    assert [(r.token, r.status, r.end) for r in results] == [
        (1, DONE, len(data)),
        (2, DONE, 5_000_000),
    ]


def test_sends_that_fail(start: Start, opened: Opened, pair: Pair) -> None:
    thread, (sender, receiver), fd = start(sends_max=1), pair, opened(bytes(4_000_000))
    thread.bulk.send(1, sender.fileno(), b"", opened(b"short"), 0, 6)
    result = thread.result()
    assert (result.token, result.status, result.error) == (1, FAILED, errno.EIO)
    thread.bulk.send(2, sender.fileno(), b"", fd, 0, 4_000_000)
    thread.bulk.send(3, sender.fileno(), b"", fd, 0, 4_000_000)
    result = thread.result()
    assert (result.token, result.status, result.error) == (3, FAILED, errno.ENOMEM)
    receiver.close()
    result = thread.result()
    assert (result.token, result.status) == (2, FAILED)
    assert result.error in (errno.EPIPE, errno.ECONNRESET)


def test_a_stalled_receiver_times_out(start: Start, opened: Opened, pair: Pair) -> None:
    thread = start(stall_ns=1)
    thread.bulk.send(1, pair[0].fileno(), b"", opened(bytes(4_000_000)), 0, 4_000_000)
    assert (thread.result().error) == errno.ETIMEDOUT


def test_a_part_of_a_file_is_read(start: Start, opened: Opened) -> None:
    thread, fd = start(), opened(b"0123456789")
    thread.bulk.read(1, fd, 3, 4)
    thread.bulk.read(2, fd, 8, 4)
    first, second = thread.result(), thread.result()
    assert (first.token, first.status, first.data) == (1, DONE, b"3456")
    assert (second.token, second.status, second.error) == (2, FAILED, errno.EIO)
