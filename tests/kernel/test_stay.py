"""Publishers that wait for each answer: the engine waits for them, stores and answers by itself."""

import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import limits
from penstock.kernel import Event, LogEnd, decode_bodies

from .test_tail import TornFile, log_end
from .turns import MAGIC, OK, WALL_NS, Side, frames, pub

ROUNDS = 20


class Loop:
    """An outer loop, as far as the engine knows it: it watches the engine and a descriptor."""

    def __init__(self, side: Side) -> None:
        self.other = os.eventfd(0, os.EFD_NONBLOCK)
        self._epoll = select.epoll()
        self._epoll.register(side.engine.fileno(), select.EPOLLIN)
        self._epoll.register(self.other, select.EPOLLIN)
        side.engine.watch_outside(self._epoll.fileno())

    def close(self) -> None:
        self._epoll.close()
        os.close(self.other)


@pytest.fixture
def loop(side: Side) -> Iterator[Loop]:
    loop = Loop(side)
    yield loop
    loop.close()


@pytest.fixture
def client(side: Side, loop: Loop) -> Iterator[socket.socket]:
    near, far = socket.socketpair()
    near.setblocking(False)
    side.engine.open(near.detach())
    far.sendall(MAGIC)
    far.settimeout(40)
    assert side.settle() == []
    yield far
    far.close()


@pytest.fixture
def end(tmp_path: Path) -> Iterator[LogEnd]:
    with (tmp_path / "log").open("w+b") as opened:
        yield _end(TornFile(opened.fileno()))


def _end(file: Any) -> LogEnd:
    return log_end(file, 0, 1 << 20, epoch=3, age_end_ns=1 << 62)


def _stored(end: LogEnd) -> list[bytes]:
    data = os.pread(end.file.fd, end.position, 0)
    found, at = [], 0
    while at < len(data):
        bodies = decode_bodies(data, at)
        found += bodies
        at += (-(-(40 + len(bodies[0])) // 8)) * 8
    return found


def test_publishes_are_stored_and_answered_one_after_the_other(
    side: Side, client: socket.socket, end: LogEnd, tail: Any
) -> None:
    answers: list[bytes] = []

    def publish() -> None:
        for number in range(ROUNDS):
            client.sendall(pub(b"t", b"body %02d" % number))
            answers.append(client.recv(100))

    publisher = threading.Thread(target=publish)
    publisher.start()
    began_ns = time.monotonic_ns()
    while len(answers) < ROUNDS and time.monotonic_ns() - began_ns < 40 * limits.SECOND:
        assert side.engine.stay(tail, end) == []
    publisher.join()
    assert [frames(answer) for answer in answers] == [[OK]] * ROUNDS
    assert _stored(end) == [b"body %02d" % number for number in range(ROUNDS)]
    assert (tail.committed_end, tail.written_end, tail.open_count) == (ROUNDS, ROUNDS, 0)
    assert end.last_timestamp_ns >= WALL_NS
    assert end.last_id > end.last_timestamp_ns >> 20


def test_an_event_of_the_outer_loop_ends_the_stay_and_delays_the_next(
    side: Side, loop: Loop, client: socket.socket, end: LogEnd, tail: Any
) -> None:
    side.poll()
    assert side.engine.staying
    os.eventfd_write(loop.other, 1)
    assert side.engine.stay(tail, end) == []
    assert not side.engine.staying


def test_a_wake_up_is_left_to_the_next_turn(side: Side, client: socket.socket, end: LogEnd) -> None:
    tail = side.tail()
    side.engine.wake()
    client.sendall(pub(b"t", b"body"))
    assert side.engine.stay(tail, end) == []
    assert (tail.open_count, end.position) == (0, 0)
    assert side.settle() == []
    assert side.written[b"t"] != []


def test_other_commands_come_out_as_events(side: Side, client: socket.socket, end: LogEnd) -> None:
    tail = side.tail()
    client.sendall(pub(b"t", b"body") + b"NOP\n" + b"SUB t c\n")
    events = side.engine.stay(tail, end)
    assert [event[0] for event in events + side.settle()] == [Event.LINE]
    assert frames(client.recv(100)) == [OK]


def test_publishes_to_another_topic_wait_for_the_turn(
    side: Side, client: socket.socket, end: LogEnd
) -> None:
    tail, other = side.tail(), side.tail(b"u")
    client.sendall(pub(b"t", b"body") + pub(b"u", b"body"))
    assert side.engine.stay(tail, end) == []
    assert (tail.open_count, other.open_count, end.position) == (1, 1, 0)
    side.settle()
    assert frames(client.recv(100)) == [OK, OK]


def test_a_write_that_fails_leaves_the_publish_open(side: Side, client: socket.socket) -> None:
    tail = side.tail()
    client.sendall(pub(b"t", b"body"))
    end = _end(TornFile(-1, error=True))
    with pytest.raises(OSError, match="full"):
        side.engine.stay(tail, end)
    assert (tail.open_count, end.position) == (1, 0)


def test_no_stay_without_a_descriptor_of_the_loop(side: Side) -> None:
    side.poll()
    side.poll()
    assert not side.engine.staying
