"""Connections whose bytes somebody else moves, and the two gates in front of the hot verbs."""

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.kernel import Event, Verb

from .turns import MAGIC, OK, Side, frames, mpub, pub


@pytest.fixture
def peer(side: Side) -> Iterator[socket.socket]:
    """The other end of a socket whose near end is the engine's connection `conn`."""
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    side.engine.open(ours.detach())
    with peer:
        yield peer


# --- taking the socket away ---


def halted(side: Side, peer: socket.socket, more: bytes) -> Any:
    peer.sendall(MAGIC + b"IDENTIFY\n" + more)
    (event,) = side.settle()
    assert event[0] == Event.LINE
    return event[1]


def test_a_connection_outlives_its_socket(side: Side, peer: socket.socket, tail: Any) -> None:
    conn = halted(side, peer, b"what follows")
    conn.reply(0, b"OK")
    fd, unread = side.engine.detach(conn)
    with socket.socket(fileno=fd) as sock:
        assert unread == b"what follows"
        assert side.dirty_detached() == [conn]
        assert frames(conn.take_output()) == [OK]
        peer.sendall(b"not for the engine")
        assert side.settle() == []
        assert sock.recv(100) == b"not for the engine"
        conn.resume()
        assert side.fed(conn, pub(b"t", b"one")) == []
        assert frames(conn.take_output()) == [OK]
        assert tail.committed_end == 1
        conn.close()
        assert [event[0] for event in side.settle()] == [Event.CLOSED]
        sock.send(b"still open")
    assert peer.recv(100) == b"still open"


def test_output_that_did_not_go_out_is_found(side: Side, peer: socket.socket) -> None:
    conn = halted(side, peer, b"")
    conn.reply(0, bytes(4 << 20))
    side.settle()
    assert conn.unsent > 0
    fd, _ = side.engine.detach(conn)
    rest = conn.take_output()
    os.close(fd)
    received = b""
    while data := peer.recv(1 << 20):
        received += data
    assert frames(received + rest) == [(0, bytes(4 << 20))]


# --- what the shell is told ---


def test_output_is_reported_once(side: Side, conn: Any) -> None:
    side.settle()
    side.dirty_detached()
    conn.reply(0, b"OK")
    side.settle()
    assert side.dirty_detached() == [conn]
    assert side.dirty_detached() == []
    assert frames(conn.take_output()) == [OK]
    side.settle()
    assert side.dirty_detached() == []


def test_a_halt_stops_reading_and_a_resume_starts_it(side: Side, conn: Any) -> None:
    side.settle()
    assert conn.reading
    (event,) = side.fed(conn, b"SUB a b\n" + bytes(300 << 10))
    assert event[0] == Event.LINE
    assert not conn.reading
    side.dirty_detached()
    conn.close_after_flush()
    assert not conn.ended
    side.settle()
    assert conn.ended
    assert side.dirty_detached() == [conn]


def test_a_client_that_takes_no_answers_is_not_read(side: Side, conn: Any) -> None:
    conn.reply(0, bytes(2 << 20))
    side.settle()
    assert not conn.reading
    conn.take_output()
    assert conn.reading


def test_output_taken_from_a_consumer_makes_the_engine_busy(side: Side) -> None:
    tail = side.tail(memory=1 << 22)
    conn = side.consumer(side.window(tail), rdy=2500)
    side.publish(tail, *[bytes(1000)] * 2000)
    side.settle()
    assert not side.engine.busy
    assert conn.take_output()
    assert side.engine.busy


# --- allowed: a topic at a time ---


@pytest.mark.parametrize(
    ("verb", "command"), [(Verb.PUB, pub(b"t", b"x")), (Verb.MPUB, mpub(b"t", [b"x"]))]
)
def test_leave_is_asked_for_each_topic_once(
    side: Side, verb: Verb, command: bytes, tail: Any, conn: Any
) -> None:
    conn.allowed = set()
    assert side.fed(conn, command) == [(Event.TOPIC, conn, verb, b"t")]
    conn.allowed.add(b"t")
    conn.resume()
    assert side.settle() == []
    assert side.fed(conn, command) == []
    assert tail.committed_end == 2
    conn.allowed.discard(b"t")
    assert side.fed(conn, command) == [(Event.TOPIC, conn, verb, b"t")]
    conn.allowed = None
    conn.resume()
    assert side.settle() == []
    assert tail.committed_end == 3
