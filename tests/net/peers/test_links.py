"""Links over real sockets: nodes that come, go, hang, and are not who they seem."""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trustme
import uvloop

from penstock.broker.ports import PeerLane
from penstock.limits import MS, PEER_BULK_BYTES_MAX, PEER_LIVE_BYTES_MAX, SECOND
from penstock.log.epochs import NO_BATCH
from penstock.net.peers.handshake import (
    GREETING_BYTES,
    Greeting,
    HandshakeKind,
    Own,
    Reason,
    decode,
)
from penstock.net.peers.links import PeerAddress, PeerLinks
from penstock.replication.chunks import of_append
from penstock.replication.effects import Refuse
from penstock.replication.frames import AppendFrame, Target, encode

LOOP_FACTORY = uvloop.new_event_loop  # the daemons have that
CLUSTER = 0xC1
SECRETS = (b"a secret of ours",)
TARGET = Target(0x77, 3)
ANSWER_S = 10.0


SILENCE_NS = 2 * SECOND


class Node:
    """Links, and what became known through them."""

    def __init__(self, number: int, incarnation: int, tls: Any = (None, None), **own: Any) -> None:
        known = {"secrets": SECRETS, **own}
        self.number, self.incarnation = number, incarnation
        self.story: list[tuple[Any, ...]] = []
        self.faults: list[Exception] = []
        self.silent = False
        self.frame_s = 0.0
        self.links = PeerLinks(
            Own(number, incarnation, CLUSTER)._replace(**known), self, self.faults.append, *tls,
            silence_ns=SILENCE_NS,
        )  # fmt: skip
        self.port = 0

    async def start(self, port: int = 0) -> None:
        self.port = await self.links.listen("127.0.0.1", port)

    @property
    def address(self) -> PeerAddress:
        return PeerAddress("127.0.0.1", self.port, self.incarnation)

    # --- events ---

    def linked(self, node: int, incarnation: int) -> None:
        self.story.append(("linked", node, incarnation))

    def unlinked(self, node: int) -> None:
        self.story.append(("unlinked", node))

    def received(self, node: int, target: Target, frame: Any) -> None:
        assert target == TARGET
        time.sleep(self.frame_s)
        if isinstance(frame, AppendFrame):  # its batches are valid until more is read
            frame = frame._replace(batches=bytes(frame.batches))
        self.story.append((node, frame))

    def refused(self, node: int, incarnation: int) -> None:
        self.story.append(("refused", node, incarnation))

    # --- what tests do ---

    def send(self, node: int, *sessions: int, lane: PeerLane = PeerLane.LIVE) -> None:
        frames = [one for session in sessions for one in encode(TARGET, Refuse(session, 1))]
        self.links.send(node, lane, frames)

    def tick(self) -> None:
        self.links.tick(time.monotonic_ns())
        if not self.silent:
            for node in self.links.links:  # a heartbeat
                self.links.send(node, PeerLane.LIVE, encode(TARGET, Refuse(0, 0)))

    def events(self) -> list[tuple[Any, ...]]:
        """What was heard, but for heartbeats."""
        return [one for one in self.story if not (len(one) == 2 and one[1] == Refuse(0, 0))]


class World:
    def __init__(self, *nodes: Node) -> None:
        self.nodes = list(nodes)

    def introduce(self) -> None:
        addresses = {node.number: node.address for node in self.nodes}
        for node in self.nodes:
            node.links.know(addresses, addresses)

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(ANSWER_S):
            while not holds():
                for node in self.nodes:
                    node.tick()
                await asyncio.sleep(0.02)

    def are_linked(self) -> bool:
        wanted = len(self.nodes) - 1
        whole = [sum(link.is_whole for link in n.links.links.values()) for n in self.nodes]
        return whole == [wanted] * len(self.nodes)


@asynccontextmanager
async def world_of(*nodes: Node) -> AsyncIterator[World]:
    for node in nodes:
        await node.start()
    world = World(*nodes)
    world.introduce()
    try:
        yield world
    finally:
        for node in nodes:
            await node.links.close()
        await asyncio.sleep(0.05)
    assert [node.faults for node in nodes] == [[] for _ in nodes]


@asynccontextmanager
async def two_linked() -> AsyncIterator[tuple[World, Node, Node]]:
    one, two = Node(1, 11), Node(2, 22)
    async with world_of(one, two) as world:
        await world.until(world.are_linked)
        yield world, one, two


async def test_three_nodes_link_and_frames_come_in_order() -> None:
    one, two, three = Node(1, 11), Node(2, 22), Node(3, 33)
    async with world_of(one, two, three) as world:
        await world.until(world.are_linked)
        assert sorted(one.events()) == [("linked", 2, 22), ("linked", 3, 33)]
        for node in (one, two, three):
            node.story.clear()
        one.send(2, *range(1, 1000))
        three.send(2, 5)
        two.send(1, 7)
        await world.until(lambda: len(two.events()) == 1000 and one.events())
        assert [f.session for n, f in two.events() if n == 1] == list(range(1, 1000))
        assert one.events() == [(2, Refuse(7, 1))]
        assert (3, Refuse(5, 1)) in two.events()


async def test_large_frames_on_the_bulk_lane() -> None:
    async with two_linked() as (world, one, two):
        two.story.clear()
        append = AppendFrame(1, 1, NO_BATCH, 0, os.urandom(6 << 20), 0)
        data = encode(TARGET, append)
        assert one.links.has_room(2)
        one.links.send(2, PeerLane.BULK, data)
        one.links.send(2, PeerLane.BULK, data)
        assert not one.links.has_room(2)
        await world.until(lambda: len(two.events()) == 2)
        assert two.events() == [(1, append), (1, append)]
        assert one.links.has_room(2)
        assert len(append.batches) > PEER_BULK_BYTES_MAX


async def test_the_loop_has_turns_between_frames_that_take_long() -> None:
    async with two_linked() as (world, one, two):
        two.story.clear()
        two.frame_s = 0.005
        one.send(2, *range(1, 61))
        one.send(2, 61)
        counts = set[int]()
        async with asyncio.timeout(ANSWER_S):
            while len(two.events()) < 61:
                await asyncio.sleep(0)
                counts.add(len(two.events()))
        assert len(counts - {0, 61}) >= 3
        assert [frame.session for _, frame in two.events()] == list(range(1, 62))
        one.send(2, 62)  # it reads on
        await world.until(lambda: len(two.events()) == 62)


async def send_and_reuse(world: World, one: Node, two: Node) -> None:
    """Appends whose memory is written over at once, more than the socket takes, and small frames
    between them."""
    two.story.clear()
    appends = [os.urandom(900_000) for _ in range(8)]
    memory = [memoryview(bytearray(450_000)) for _ in range(2)]
    for number, append in enumerate(appends):
        memory[0][:], memory[1][:] = append[:450_000], append[450_000:]
        frame = AppendFrame(number, 1, NO_BATCH, 0, b"", 0)
        encoded = encode(TARGET, frame, of_append(memory, 900_000))
        one.send(2, number)
        one.links.send(2, PeerLane.LIVE, encoded)
    memory[0][:] = bytes(450_000)
    await world.until(lambda: len(two.events()) == 2 * len(appends))
    frames = [frame for _, frame in two.events()]
    assert frames[::2] == [Refuse(number, 1) for number in range(len(appends))]
    assert [(append.session, append.batches) for append in frames[1::2]] == list(enumerate(appends))


async def test_an_append_may_change_in_memory_once_it_is_sent() -> None:
    async with two_linked() as (world, one, two):
        await send_and_reuse(world, one, two)


async def test_a_process_that_ends_is_noticed_by_both_sides() -> None:
    """The one that dials finds it gone, and so does the one that knocks."""
    one, two, three = Node(1, 11), Node(2, 22), Node(3, 33)
    async with world_of(one, two, three) as world:
        await world.until(world.are_linked)
        await two.links.close()
        world.nodes.remove(two)
        await world.until(lambda: ("refused", 2, 22) in one.story)
        await world.until(lambda: ("refused", 2, 22) in three.story)
        assert ("unlinked", 2) in one.story
        assert ("unlinked", 2) in three.story
        again = Node(2, 23)
        await again.start(two.port)
        world.nodes.append(again)
        world.introduce()
        await world.until(world.are_linked)
        assert ("linked", 2, 23) in one.story
        assert ("linked", 2, 23) in three.story
        await again.links.close()


async def test_a_node_that_hangs_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async with two_linked() as (world, one, two):
        two.silent = True
        one.silent = True
        await world.until(lambda: ("unlinked", 2) in one.story)
        assert "silent for 2 s" in caplog.text


async def test_a_process_that_stood_still_reads_before_it_judges() -> None:
    async with two_linked() as (_, one, two):
        time.sleep(SILENCE_NS / SECOND + 0.5)  # the loop of both
        for _ in range(20):
            one.tick()
            two.tick()
            await asyncio.sleep(0.02)
        assert ("unlinked", 2) not in one.story
        assert ("unlinked", 1) not in two.story


async def test_a_node_that_reads_nothing_is_given_up_before_memory_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with two_linked() as (world, one, two):
        for connection in two.links.links[1].lanes.values():
            connection._transport.pause_reading()  # type: ignore[attr-defined]
        append = AppendFrame(1, 1, NO_BATCH, 0, bytes(8 << 20), 0)
        for _ in range(PEER_LIVE_BYTES_MAX // len(append.batches) + 4):
            one.links.send(2, PeerLane.LIVE, encode(TARGET, append))
        await world.until(lambda: ("unlinked", 2) in one.story)
        assert "bytes wait for it" in caplog.text


async def test_bytes_that_are_no_frame_end_the_link(caplog: pytest.LogCaptureFixture) -> None:
    async with two_linked() as (world, one, two):
        one.links.send(2, PeerLane.LIVE, [(b"\0\0\0\x40" + b"x" * 64,)])
        await world.until(lambda: ("unlinked", 1) in two.story)
        assert "fails its checksum" in caplog.text
        await world.until(world.are_linked)  # and they try again


async def test_a_removed_node_is_disconnected() -> None:
    async with two_linked() as (_, one, two):
        one.links.know({}, {1})
        two.links.know({}, {2})
        assert one.events()[-1] == ("unlinked", 2)
        assert one.links.links == {}
        one.send(2, 1)  # to where there is no link: dropped
        assert not one.links.has_room(2)


async def test_a_node_whose_lease_has_run_out_stays_linked() -> None:
    async with two_linked() as (world, one, two):
        one.links.know({}, {1, 2})
        two.links.know({}, {1, 2})
        one.send(2, 1)
        await world.until(lambda: (1, Refuse(1, 1)) in two.story)
        assert ("unlinked", 2) not in one.story


async def test_an_unknown_node_stays_linked() -> None:
    one, two = Node(1, 11), Node(2, 22)
    async with world_of(one, two) as world:
        two.links.know({}, {2})
        await world.until(world.are_linked)
        two.links.know({}, {2})
        assert world.are_linked()


async def test_silent_and_invalid_clients() -> None:
    one = Node(1, 11)
    async with world_of(one) as world:
        _, silent = await asyncio.open_connection("127.0.0.1", one.port)
        reader, rude = await asyncio.open_connection("127.0.0.1", one.port)
        rude.write(b"GET / HTTP/1.0\r\n\r\n" + bytes(GREETING_BYTES))
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        asking, asked = await asyncio.open_connection("127.0.0.1", one.port)
        asked.write(Greeting(HandshakeKind.GREETING, 1, 0xBAD, 0, 1, 5, 1).encode())
        answer = decode(await asking.readexactly(GREETING_BYTES))
        assert (answer.kind, answer.lane) == (HandshakeKind.REFUSAL, Reason.CLUSTER)
        assert await asking.read() == b""
        await world.until(lambda: not one.links._strangers)  # the silent one is given up
        assert not one.story
        for writer in (silent, rude, asked):
            writer.close()


async def test_over_tls_with_certificates_of_both_sides() -> None:
    authority = trustme.CA()

    def contexts(issuer: trustme.CA) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        certificate = issuer.issue_cert("127.0.0.1")
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for context in (server, client):
            certificate.configure_cert(context)
            authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return server, client

    one, two = Node(1, 11, contexts(authority)), Node(2, 22, contexts(authority))
    async with world_of(one, two) as world:
        await world.until(world.are_linked)
        one.send(2, 5)
        await world.until(lambda: (1, Refuse(5, 1)) in two.story)
        await send_and_reuse(world, one, two)
    one, two = Node(1, 11, contexts(trustme.CA())), Node(2, 22, contexts(authority))
    async with world_of(one, two) as world:
        await world.until(lambda: 2 in one.links.reasons)
        assert two.events() == []


async def test_a_link_is_quick_to_come_back() -> None:
    async with two_linked() as (world, one, two):
        begun = time.monotonic_ns()
        one.links.links[2].lanes[PeerLane.LIVE].close()
        two.links.links[1].end()
        await world.until(lambda: ("unlinked", 2) in one.story)
        await world.until(world.are_linked)
        assert time.monotonic_ns() - begun < 3000 * MS
