"""The engine with real sockets: readiness, slow and silent peers, the ways a connection ends."""

import gc
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.kernel import Event
from penstock.limits import CLOSE_DRAIN_NS, MIB

from .turns import MAGIC, OK, SECOND, Side, bodies, frames, pub, size

PATIENCE_S = 60.0  # a busy machine may take long; a right one does not


class Sockets(Side):
    """An engine with socket pairs. Its clock only moves when a test moves it."""

    def __init__(self, **limits: int) -> None:
        super().__init__(**limits)
        self.peers: list[socket.socket] = []
        self.events: list[tuple[Any, ...]] = []
        self.answer: Callable[[tuple[Any, ...]], None] = lambda event: None

    def close(self) -> None:
        super().close()
        for peer in self.peers:
            peer.close()

    def pair(self, magic: bytes = MAGIC, buffer_bytes: int = 0) -> tuple[Any, socket.socket]:
        ours, peer = socket.socketpair()
        if buffer_bytes:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        ours.setblocking(False)
        peer.setblocking(False)
        self.peers.append(peer)
        conn = self.engine.open(ours.detach())
        peer.sendall(magic)
        return conn, peer

    def subscribed(self, window: Any, rdy: int, **options: int) -> tuple[Any, socket.socket]:
        conn, peer = self.pair(**options)
        conn.subscribe(window)
        conn.rdy = rdy
        return conn, peer

    def ready(self, wait_s: float = 0.0) -> bool:
        return bool(select.select([self.engine.fileno()], [], [], wait_s)[0])

    def hear(self, event: tuple[Any, ...]) -> None:
        super().hear(event)
        self.events.append(event)
        self.answer(event)

    def run(self, until: Callable[[], bool]) -> None:
        """Turns, as the shell takes them, until something is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not until():
            assert time.monotonic() < deadline, "it does not come about"
            if not self.engine.busy:
                self.ready(0.002)
            self.turn()

    def rest(self, turns: int = 10) -> None:
        """Some turns, whether there is something to do or not."""
        left = iter(range(turns))
        self.run(lambda: next(left, None) is None)

    def flood(self, peer: socket.socket, chunk: bytes, bytes_max: int) -> int:
        """Send it over and over, until nothing is taken any more. Returns the bytes that were."""
        pending, sent, quiet = memoryview(chunk), 0, 0
        while quiet < 20:
            try:
                count = peer.send(pending)
                sent, quiet = sent + count, 0
                pending = pending[count:] or memoryview(chunk)
            except BlockingIOError:
                quiet += 1
            self.rest(2)
            assert sent < bytes_max, "it reads for ever"
        return sent

    def of_kind(self, kind: Event) -> list[tuple[Any, ...]]:
        return [event for event in self.events if event[0] == kind]


@pytest.fixture
def side() -> Iterator[Sockets]:
    side = Sockets()
    yield side
    side.validate()
    side.close()


class Inbox:
    """What a peer has read so far."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self.data = b""
        self.ended = False

    def read(self, count_max: int = 1 << 20) -> bytes:
        try:
            data = self.peer.recv(count_max)
        except BlockingIOError:
            return self.data
        self.ended = self.ended or not data
        self.data += data
        return self.data

    def has(self, count: int) -> Callable[[], bool]:
        return lambda: len(self.read()) >= count

    def end(self) -> bool:
        self.read()
        return self.ended


def test_wake_makes_it_readable_from_any_thread(side: Sockets) -> None:
    thread = threading.Thread(target=side.engine.wake)
    thread.start()
    thread.join()
    assert side.ready(PATIENCE_S)
    side.turn()
    assert not side.ready()


# --- slow and silent peers ---


def test_a_slow_reader_gets_every_byte_in_order(side: Sockets) -> None:
    tail = side.tail(memory=64 * MIB)
    window = side.window(tail)
    conn, consumer = side.subscribed(window, rdy=60, buffer_bytes=8_192)
    sent = [b"%d:" % number + os.urandom(20_000) for number in range(60)]
    side.publish(tail, *sent)
    data = b""
    total = 60 * 34 + sum(map(len, sent))

    def take_a_little() -> bool:
        nonlocal data
        try:
            data += consumer.recv(7_001)
        except BlockingIOError:
            return False
        return len(data) >= total

    side.run(take_a_little)
    assert bodies(data) == sent
    assert conn.unsent == 0


def test_a_consumer_that_does_not_read_is_bounded_and_holds_up_nobody_else(side: Sockets) -> None:
    tail = side.tail(memory=64 * MIB)
    window = side.window(tail)
    silent, _ = side.subscribed(window, rdy=2_500, buffer_bytes=8_192)
    _, reader = side.subscribed(window, rdy=2_500)
    inbox = Inbox(reader)
    for _ in range(20):
        side.publish(tail, *[b"x" * 100_000] * 10)
        side.rest(3)
        assert silent.unsent <= 1 * MIB
    assert silent.in_flight < 100
    side.run(lambda: inbox.read() is not None and bool(window.depth == 0))
    side.run(inbox.has((200 - silent.in_flight) * 100_034))


def test_a_publisher_that_does_not_read_its_answers_is_not_read_from(side: Sockets) -> None:
    tail = side.tail(memory=0)
    conn, peer = side.pair(buffer_bytes=8_192)
    sent = side.flood(peer, pub(b"t", b"x") * 2_000, 20 * MIB)
    assert conn.unsent <= 2 * MIB
    inbox = Inbox(peer)
    command_bytes = len(pub(b"t", b"x"))
    side.run(lambda: len(inbox.read()) == 10 * (sent // command_bytes))
    assert frames(inbox.data) == [OK] * tail.committed_end


@pytest.mark.parametrize("command", [b"HALT\n", b"FIN 0123456789abcdef\n", b"NOP\n", b"RDY 1\n"])
def test_a_halted_connection_is_not_read_without_bound(side: Sockets, command: bytes) -> None:
    """Nor one that is resumed, and halts again at the next of its commands."""
    _, peer = side.subscribed(side.window(side.tail()), rdy=1)
    side.flood(peer, command * 10_000, 8 * MIB)
    assert not side.ready()  # what is not wanted does not keep the loop awake
    side.answer = lambda event: event[1].resume()
    side.answer(side.events[0])
    side.flood(peer, command * 10_000, 8 * MIB)


# --- the ways it ends ---


@pytest.mark.parametrize("how", ["half closed", "hung up", "hung up and halted"])
def test_a_peer_that_has_ended_does_not_keep_the_loop_awake(
    side: Sockets, how: str, tail: Any
) -> None:
    _, peer = side.pair()
    peer.sendall(b"HALT\n" if how.endswith("halted") else pub(b"t", b"a"))
    peer.shutdown(socket.SHUT_WR) if how == "half closed" else peer.close()
    for _ in range(5):
        side.poll()
        if tail.open_count:
            side.seal(tail)
        side.flush()
    assert not side.ready()
    assert not side.engine.busy
    if how == "half closed":  # it waits for an answer, however long that takes
        tail.commit_to(tail.written_end)
        inbox = Inbox(peer)
        side.run(inbox.end)
        assert frames(inbox.data) == [OK]


def test_a_peer_that_went_away_while_it_was_sent_to_is_reported(side: Sockets) -> None:
    tail = side.tail(memory=8 * MIB)
    window = side.window(tail)
    conn, peer = side.subscribed(window, rdy=100, buffer_bytes=8_192)
    side.publish(tail, *[b"x" * 50_000] * 20)
    side.rest(3)
    assert conn.unsent > 0
    peer.close()
    side.run(lambda: bool(side.of_kind(Event.CLOSED)))
    assert window.consumers == 0
    assert window.in_flight > 0  # until they time out
    side.pass_time(60 * SECOND)
    side.tick()
    assert window.depth == 20


def test_the_error_comes_before_the_close(side: Sockets) -> None:
    """A client that is still sending a body that is too big must see why it is refused, not a
    reset."""
    side.tail()
    conn, peer = side.pair()

    def refuse(event: tuple[Any, ...]) -> None:
        if event[0] == Event.BAD_PUB:
            conn.reply(1, b"E_BAD_MESSAGE PUB message too big")
            conn.close_after_flush()

    side.answer = refuse
    body = b"x" * (3 * MIB)
    pending = memoryview(b"PUB t\n" + size(len(body)) + body)
    while pending:
        try:
            pending = pending[peer.send(pending) :]
        except BlockingIOError:
            side.rest(1)
    inbox = Inbox(peer)
    side.run(inbox.end)
    assert frames(inbox.data) == [(1, b"E_BAD_MESSAGE PUB message too big")]
    assert side.of_kind(Event.CLOSED) == []  # it waits for the other side
    peer.close()
    side.run(lambda: bool(side.of_kind(Event.CLOSED)))
    assert [event[1] for event in side.of_kind(Event.CLOSED)] == [conn]


def test_a_refused_client_that_stays_is_closed_in_time(side: Sockets) -> None:
    conn, peer = side.pair()
    side.rest(2)
    conn.reply(1, b"E_INVALID")
    conn.close_after_flush()
    inbox = Inbox(peer)
    side.run(inbox.end)
    assert side.mono_ns < side.engine.deadline_ns <= side.mono_ns + CLOSE_DRAIN_NS
    side.pass_time(CLOSE_DRAIN_NS - 1)
    side.rest(3)
    assert side.events == []
    side.pass_time(1)
    side.rest(3)
    assert [event[:2] for event in side.events] == [(Event.CLOSED, conn)]
    assert side.engine.deadline_ns == 0


def test_a_refused_client_that_keeps_sending_is_cut_off(side: Sockets) -> None:
    conn, peer = side.pair()
    peer.sendall(b"BAD\n")
    side.run(lambda: bool(side.events))
    conn.close_after_flush()
    sent = 0
    chunk = b"x" * MIB
    while not side.of_kind(Event.CLOSED):
        assert sent < 40 * MIB, "it reads for ever"
        try:
            sent += peer.send(chunk)
        except BlockingIOError:
            side.rest(1)
        except OSError:
            break
    side.run(lambda: bool(side.of_kind(Event.CLOSED)))
    assert sent > 8 * MIB


def test_closing_the_engine_closes_every_descriptor() -> None:
    gc.collect()  # what other tests have left
    before = set(os.listdir("/proc/self/fd"))
    side = Sockets()
    for _ in range(5):
        side.pair()
    side.rest(3)
    side.close()
    side.engine.close()  # a second time is no harm
    assert set(os.listdir("/proc/self/fd")) <= before
