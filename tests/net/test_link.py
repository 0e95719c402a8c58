"""A link between a socket pair and a real engine, without a daemon: back-pressure, and its ends."""

import asyncio
import logging
import socket
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
import uvloop

from cases import within
from e2e.v2client import take_frames
from penstock import limits
from penstock.kernel import Engine, Event
from penstock.net.link import Links, ServerLink
from penstock.wire.compression import DeflateDecoder, DeflateEncoder
from penstock.wire.frames import encode_frame

PATIENCE_S = 40.0


class World:
    """An engine with one client, whose connection is halted at IDENTIFY and has become a link."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.engine = Engine(1 << 20, 5 << 20, 2500)
        self.links = Links(self.loop, self.engine, self.soon)
        self.events: list[tuple[Any, ...]] = []
        self.answer: Callable[[tuple[Any, ...]], None] = lambda event: None
        ours, self.peer = socket.socketpair()
        ours.setblocking(False)
        self.peer.setblocking(False)
        self.peer.sendall(b"  V2IDENTIFY\n")
        self.conn = self.engine.open(ours.detach())
        self.turn()
        self.link = ServerLink(self.links, self.conn)

    def soon(self) -> None:
        self.loop.call_soon(self.turn)

    def turn(self) -> None:
        for event in self.engine.poll(time.monotonic_ns()):
            self.events.append(event)
            self.answer(event)
        self.events += self.engine.flush(time.monotonic_ns(), time.time_ns())
        conns = self.engine.dirty_detached()
        if conns:
            self.links.serve(conns)
        elif self.links.again:
            self.links.serve([])

    def close(self) -> None:
        self.links.abort()
        self.engine.close()
        self.peer.close()

    @property
    def closed(self) -> bool:
        return any(event[0] == Event.CLOSED for event in self.events)

    async def until(self, done: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline_s, "it does not come about"
            self.turn()
            await asyncio.sleep(0.001)

    def received(self) -> bytes:
        try:
            return self.peer.recv(1 << 20)
        except BlockingIOError:
            return b""


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    with closing(World()) as world:
        yield world


def deflated(link: ServerLink) -> None:
    link.compress(DeflateEncoder(6), DeflateDecoder())
    link.open()


def sync_flushed(data: bytes) -> bytes:
    stream = zlib.compressobj(1, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)


@within(a_world)
async def test_a_halted_connection_is_not_read(world: World) -> None:
    """Its client can send what fits the socket, and no more, however small it is compressed."""
    deflated(world.link)
    stream = sync_flushed(b"FIRST\n" + bytes(64 << 20))
    world.conn.resume()
    sent = 0
    world.events.clear()

    def send() -> bool:
        nonlocal sent
        try:
            sent += world.peer.send(stream[sent : sent + 4096])
        except BlockingIOError:
            return True
        return sent == len(stream)

    await world.until(send)
    await world.until(lambda: bool(world.events))
    assert [event[0] for event in world.events] == [Event.LINE]
    for _ in range(20):
        world.turn()
        await asyncio.sleep(0)
    assert not world.conn.reading
    held = world.link._decoder
    assert isinstance(held, DeflateDecoder)
    assert len(held._input) <= limits.LINK_BYTES


@within(a_world)
async def test_a_halted_connection_goes_on_where_it_stood(world: World) -> None:
    """What it has is looked at before it is given more."""
    deflated(world.link)
    waits = []

    def resume(event: tuple[Any, ...]) -> None:
        world.conn.resume()
        waits.append(not world.conn.reading)

    world.answer = resume
    world.conn.resume()
    world.events.clear()
    names = [b"C%d" % number for number in range(200)]
    world.peer.send(sync_flushed(b"".join(name + bytes(10_000) + b"\n" for name in names)))
    await world.until(lambda: len(waits) == 200)
    assert [event[2][0].strip(b"\0") for event in world.events] == names
    assert any(waits)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_reset_right_behind_the_last_bytes_is_seen(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Both come in one wake-up, and uvloop tells of an error once only."""

    async def story(world: World) -> None:
        deflated(world.link)
        world.conn.resume()
        world.conn.reply(0, b"never read, so that closing is a reset")
        await world.until(lambda: world.conn.unsent == 0)
        world.events.clear()
        world.peer.send(sync_flushed(b"FIRST\n"))
        world.peer.close()
        await world.until(lambda: bool(world.events))
        assert [event[0] for event in world.events] == [Event.LINE]  # it was heard all the same
        world.conn.resume()
        await world.until(lambda: world.closed and not world.links.by_serial)

    async def tell() -> None:
        async with a_world() as world:
            await story(world)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(tell())


@within(a_world)
async def test_output_stays_with_the_kernel_while_the_socket_is_full(world: World) -> None:
    world.link.open()
    noise = bytes(range(256)) * 4096
    for _ in range(8):
        world.conn.reply(0, noise)
        for _ in range(5):
            world.turn()
            await asyncio.sleep(0)
    assert world.conn.unsent > 1 << 20
    received = bytearray()

    def read() -> bool:
        received.extend(world.received())
        return len(received) == 8 * (len(noise) + 8)

    await world.until(read)
    assert [len(frame.data) for frame in take_frames(received)] == [len(noise)] * 8


@within(a_world)
async def test_a_client_that_cannot_be_reached_is_cut(world: World) -> None:
    world.link.open()
    for _ in range(20):
        world.conn.reply(0, bytes(1 << 20))
    await asyncio.sleep(0)
    world.turn()
    world.conn.close()
    await world.until(lambda: world.closed and not world.links.by_serial)
    size = 0
    while data := world.peer.recv(1 << 20):
        size += len(data)
    assert 0 < size < 20 << 20  # what was in the socket is all it gets


@within(a_world)
async def test_the_last_answer_arrives_and_a_talkative_client_is_cut(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DRAIN_BYTES_MAX", 1 << 20)
    deflated(world.link)
    world.conn.reply(1, b"E_INVALID last words")
    world.conn.close_after_flush()
    await world.until(lambda: world.closed)
    words = zlib.decompressobj(-15).decompress(world.received())
    assert words == encode_frame(1, b"E_INVALID last words")
    assert world.links.by_serial  # half closed, and read

    def send() -> bool:
        try:
            world.peer.send(bytes(1 << 16))
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):
            return True
        return False

    await world.until(send)
    assert not world.links.by_serial


@within(a_world)
async def test_a_fault_of_the_program_costs_one_connection(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> bytes:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(DeflateDecoder, "read_into", fail)

    caplog.set_level(logging.ERROR, "penstock.net")
    deflated(world.link)
    world.conn.resume()
    world.peer.send(b"x")
    await world.until(lambda: world.closed and not world.links.by_serial)
    assert "on purpose" in caplog.text
