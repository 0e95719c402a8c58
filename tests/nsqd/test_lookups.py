"""Connections to nsqlookupds that come, go, hang and lie. The clock runs faster than in life."""

import asyncio
import json
import logging
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from cases import each, within
from penstock import limits
from penstock.broker.context import TopicChange
from penstock.broker.topics.settings import TopicSettings
from penstock.errors import ConfigError, PeerFault
from penstock.nsqd.dialogue import Dialogue, all_commands, commands_of, read_info
from penstock.nsqd.lookups import Lookups

MS = limits.MS
IDENTITY = {"broadcast_address": "b", "tcp_port": 1}
INFO = b'{"broadcast_address":"lookup","http_port":4161}'
OK = b"OK"
# Who answers has the time that a loaded machine needs; who does not is given up soon.
QUICK = {"CONNECT_NS": 30_000, "ANSWER_NS": 30_000, "PING_NS": 50, "RETRY_NS_MIN": 5,
         "RETRY_NS_MAX": 20}  # fmt: skip
IMPATIENT = QUICK | {"ANSWER_NS": 1_000}


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class FakeLookupd:
    """Keeps what it is told. `reply` says what it answers, None: nothing."""

    def __init__(self) -> None:
        self.received: list[list[str]] = []  # by connection
        self.reply: Callable[[str], bytes | None] = self.well
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @staticmethod
    def well(command: str) -> bytes | None:
        return sized(INFO if command == "IDENTIFY" else OK)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self.hang_up()
            await self._server.wait_closed()
            self._server = None

    def hang_up(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        received: list[str] = []
        self.received.append(received)
        try:
            assert await reader.readexactly(4) == b"  V1"
            while True:
                command = (await reader.readuntil(b"\n")).decode().rstrip()
                if command == "IDENTIFY":
                    size = struct.unpack(">i", await reader.readexactly(4))[0]
                    assert json.loads(await reader.readexactly(size)) == IDENTITY
                received.append(command)
                reply = self.reply(command)
                if reply is not None:
                    writer.write(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


class Named:
    def __init__(
        self, name: str, channels: Iterable[str] = (), partitions: int = 1, extended: bool = False
    ) -> None:
        self.name = name
        self.partition_count = partitions
        self.leaders = [SimpleNamespace(number=number) for number in range(partitions)]
        self.extended = extended
        self.channels = dict.fromkeys(channels)
        self.settings = TopicSettings()
        self.replicated = False

    def leads(self, number: int) -> bool:
        return number in {one.number for one in self.leaders}


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.002)


class World:
    def __init__(self) -> None:
        self.lookupd = FakeLookupd()
        self.topics = {"t": Named("t", ["c", "d"]), "u": Named("u")}
        topics: Any = self.topics.values  # stand-ins
        self.lookups = Lookups(topics, Random(1))

    def changed(self, change: TopicChange, topic: str, channel: str = "") -> None:
        self.lookups.on_topic_changed(
            change,
            Named(topic),  # type: ignore[arg-type]
            Named(channel) if channel else None,  # type: ignore[arg-type]
        )

    async def connected(self) -> None:
        self.lookups.set_addresses([self.lookupd.address])
        self.lookups.start(IDENTITY)
        await self.registered(1)

    async def registered(self, count: int) -> None:
        """Until the `count`th connection has registered everything."""
        wanted = {"REGISTER t c", "REGISTER t d", "REGISTER u"}
        received = self.lookupd.received
        await until(lambda: len(received) >= count and wanted <= set(received[count - 1]))


@asynccontextmanager
async def a_world(timing_ms: dict[str, int] = QUICK) -> AsyncIterator[World]:
    world = World()
    await world.lookupd.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, ms in timing_ms.items():
            patch.setattr(limits, f"LOOKUP_{name}", ms * MS)
        try:
            yield world
        finally:
            await world.lookups.stop()
            await world.lookupd.stop()


@within(a_world)
async def test_everything_is_registered_and_changes_follow(world: World) -> None:
    await world.connected()
    received = world.lookupd.received[0]
    assert received == ["IDENTIFY", "REGISTER t c", "REGISTER t d", "REGISTER u"]
    assert world.lookups.http_addresses() == ["lookup:4161"]
    world.changed(TopicChange.TOPIC_CREATED, "v")
    world.changed(TopicChange.CHANNEL_CREATED, "v", "c#ephemeral")
    world.changed(TopicChange.CHANNEL_DELETED, "v", "c#ephemeral")
    world.changed(TopicChange.TOPIC_DELETED, "v")
    await until(lambda: len(received) >= 8)
    assert [line for line in received[4:] if line != "PING"] == [
        "REGISTER v",
        "REGISTER v c#ephemeral",
        "UNREGISTER v c#ephemeral",
        "UNREGISTER v",
    ]


def test_a_change_in_the_moment_in_which_an_nsqlookupd_is_gone() -> None:
    """On the loop of the daemons: its transports refuse what comes once they are closed."""

    async def story() -> None:
        loop, faults = asyncio.get_running_loop(), list[Any]()
        loop.set_exception_handler(lambda _, context: faults.append(context))
        async with a_world() as world:
            await world.connected()

            def change_again() -> None:
                world.changed(TopicChange.TOPIC_CREATED, "v")
                if world.lookups.http_addresses() and not faults:
                    loop.call_soon(change_again)

            change_again()
            await asyncio.sleep(0.01)
            world.lookupd.hang_up()  # with bytes unread: a reset
            await until(lambda: bool(faults) or not world.lookups.http_addresses())
        assert faults == []

    uvloop.run(story())


@within(a_world)
async def test_a_start_waits_for_nsqlookupds_but_not_long(world: World) -> None:
    await world.lookups.settled(10_000 * MS)  # nobody is there to wait for
    world.lookups.set_addresses([world.lookupd.address, "127.0.0.1:1"])
    world.lookups.start(IDENTITY)
    await world.lookups.settled(10_000 * MS)
    assert world.lookups.http_addresses() == ["lookup:4161"]
    world.lookupd.reply = lambda command: None
    world.lookups.set_addresses([])
    world.lookups.set_addresses([world.lookupd.address])
    await world.lookups.settled(10 * MS)
    assert world.lookups.http_addresses() == []


@within(partial(a_world, IMPATIENT))
async def test_a_silent_nsqlookupd_is_disconnected(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.nsqd")
    await world.connected()
    world.lookupd.reply = lambda command: None
    await until(lambda: len(world.lookupd.received) >= 2)
    world.lookupd.reply = world.lookupd.well
    await until(lambda: "REGISTER u" in world.lookupd.received[-1])
    assert "PING - no answer" in caplog.text


@each("garbage", [b"\x7f\xff\xff\xff" + b"x" * 100_000, sized(OK) * 10])
@within(a_world)
async def test_garbage_is_harmless(world: World, garbage: bytes) -> None:
    world.lookupd.reply = lambda command: garbage
    world.lookups.set_addresses([world.lookupd.address])
    world.lookups.start(IDENTITY)
    await until(lambda: len(world.lookupd.received) >= 3)
    assert world.lookups.http_addresses() == []
    world.changed(TopicChange.TOPIC_CREATED, "v")
    world.lookupd.reply = world.lookupd.well
    await until(lambda: "REGISTER u" in world.lookupd.received[-1])


@within(a_world)
async def test_two_lookupds_and_a_list_that_changes(world: World) -> None:
    other = FakeLookupd()
    await other.start()
    try:
        await world.connected()
        world.lookups.set_addresses([world.lookupd.address, other.address])
        assert list(world.lookups.peers) == [world.lookupd.address, other.address]
        await until(lambda: bool(other.received) and "REGISTER u" in other.received[0])
        assert len(world.lookups.http_addresses()) == 2
        world.changed(TopicChange.TOPIC_CREATED, "v")
        for received in (other.received, world.lookupd.received):
            await until(lambda received=received: "REGISTER v" in received[0])  # type: ignore[misc]
        world.lookups.set_addresses([other.address])
        await until(lambda: not world.lookupd._writers)
        for wrong in ("127.0.0.1:notaport", "no-port"):
            with pytest.raises(ConfigError):
                world.lookups.set_addresses([wrong])
        assert list(world.lookups.peers) == [other.address]
        assert (len(other.received), len(world.lookupd.received)) == (1, 1)
    finally:
        await world.lookups.stop()
        await other.stop()


@within(partial(a_world, IMPATIENT))
async def test_an_nsqlookupd_that_answered_is_not_overdue(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.connected()
    # Pings are 50 ms apart: so many take twice the time that an answer may take.
    await until(lambda: world.lookupd.received[0].count("PING") >= 40)
    assert len(world.lookupd.received) == 1
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_internal_topics_are_not_registered() -> None:
    topics = [Named(name) for name in ("_trace", "_pipelines", "_mine")]
    for partitions, document in ((False, "REGISTER _mine"), (True, "REGISTER _mine 0")):
        assert list(all_commands(topics, partitions)) == [document]  # type: ignore[arg-type]


@within(a_world)
async def test_an_nsqlookupd_of_penstock_gets_partitions(world: World) -> None:
    world.lookupd.reply = lambda command: sized(
        INFO[:-1] + b',"partitions":true}' if command == "IDENTIFY" else OK
    )
    world.topics["s"] = Named("s", ["7"], 3, extended=True)
    world.lookups.set_addresses([world.lookupd.address])
    world.lookups.start(IDENTITY)
    received = world.lookupd.received
    await until(lambda: bool(received) and len(received[0]) >= 9)
    assert [line for line in received[0] if line != "PING"] == [
        "IDENTIFY",
        "REGISTER t 0 c",
        "REGISTER t 0 d",
        "REGISTER u 0",
        "REGISTER s 0",
        "REGISTER s 1",
        "REGISTER s 2",
        "REGISTER s 0 7",
        "META s partition_num=3 extend_support=true",
    ]
    world.changed(TopicChange.TOPIC_CREATED, "v")
    world.changed(TopicChange.CHANNEL_CREATED, "v", "5")
    world.changed(TopicChange.CHANNEL_DELETED, "v", "5")
    world.changed(TopicChange.TOPIC_DELETED, "v")
    message = "REGISTER v 0", "REGISTER v 0 5", "UNREGISTER v 0 5", "UNREGISTER v"
    await until(lambda: [one for one in received[0] if one != "PING"][9:] == list(message))


def test_only_partitions_led_here_are_registered() -> None:
    topic = Named("t", ["c"], partitions=2)
    topic.replicated = True

    def document() -> list[str]:
        return commands_of(TopicChange.TOPIC_RESHAPED, cast(Any, topic), None, False)

    assert document() == ["REGISTER t c"]
    topic.leaders = topic.leaders[1:]
    named = commands_of(TopicChange.TOPIC_RESHAPED, cast(Any, topic), None, True)
    assert named[:3] == ["UNREGISTER t 0", "REGISTER t 1", "REGISTER t 1 c"]
    topic.leaders = []
    assert document() == ["UNREGISTER t"]
    assert list(all_commands([cast(Any, topic)], False)) == []


# --- nsqd's side of the lookup protocol, byte by byte ---


INFO_DIALOGUE = b'{"broadcast_address":"lookup","http_port":4161,"tcp_port":4160,"version":"1.3.0"}'


def introduced() -> Dialogue:
    dialogue = Dialogue(IDENTITY)
    dialogue.begin()
    dialogue.feed(sized(INFO_DIALOGUE))
    return dialogue


def test_commands_are_answered_in_order_however_the_bytes_come() -> None:
    dialogue = introduced()
    assert dialogue.command("REGISTER t c") == b"REGISTER t c\n"
    dialogue.command("PING")
    answered = [one for byte in sized(b"OK") * 2 for one in dialogue.feed(bytes((byte,)))]
    assert answered == ["REGISTER t c", "PING"]
    assert not dialogue.owed


@each(
    ("answer", "address"),
    [
        (INFO_DIALOGUE, "lookup:4161"),
        (b'{"broadcast_address":"::1","http_port":1}', "[::1]:1"),
        (b'{"broadcast_address":"","http_port":1}', ""),
        (b'{"broadcast_address":"a/b","http_port":1}', ""),
        (b'{"broadcast_address":"a@b","http_port":1}', ""),
        (b'{"broadcast_address":"a\\nb","http_port":1}', ""),
        (b'{"broadcast_address":1,"http_port":1}', ""),
        (b'{"broadcast_address":"a","http_port":-1}', ""),
        (b'{"broadcast_address":"a","http_port":65536}', ""),
        (b'{"broadcast_address":"a","http_port":true}', ""),
        (b"{}", ""),
    ],
)
def test_where_its_http_api_is(answer: bytes, address: str) -> None:
    assert read_info(answer).http_address == address


@each(
    ("answer", "reason"),
    [
        (b"E_INVALID", "lookupd returned E_INVALID"),
        (b"E_BAD_BODY IDENTIFY missing fields", "lookupd returned E_BAD_BODY IDENTIFY"),
        (b"OK", "parsing response - OK"),
        (b"[]", r"parsing response - \[\]"),
        (b"[1,2", r"parsing response - \[1,2"),
        (b"", "parsing response - $"),
        (b"\xff\x00\n" * 200, r"parsing response - \\ufffd\\x00\\n.*\.\.\.$"),
        (b"[" * 60_000, r"parsing response - \["),
    ],
)
def test_a_bad_answer_to_identify(answer: bytes, reason: str) -> None:
    dialogue = Dialogue(IDENTITY)
    dialogue.begin()
    with pytest.raises(PeerFault, match=reason):
        dialogue.feed(sized(answer))


@each(
    ("data", "reason"),
    [
        (sized(b"E_INVALID x"), "PING - E_INVALID x"),
        (sized(b""), "PING - $"),
        (sized(b"OK") * 2, "an answer to nothing: OK"),
        (b"HTTP/1.1 400 Bad Request\r\n", "this is no nsqlookupd"),
        (b"\x7f\xff\xff\xffx", "an answer of 2147483647 bytes"),
        (b"\xff\xff\xff\xff", "an answer of -1 bytes"),
        (struct.pack(">i", limits.LOOKUP_ANSWER_BYTES_MAX + 1), "an answer of 65537 bytes"),
    ],
)
def test_other_bad_answers(data: bytes, reason: str) -> None:
    dialogue = introduced()
    dialogue.command("PING")
    with pytest.raises(PeerFault, match=reason):
        dialogue.feed(data)


@given(st.lists(st.binary(max_size=30)))
def test_random_bytes_are_answers_or_a_fault(parts: list[bytes]) -> None:
    dialogue = Dialogue(IDENTITY)
    dialogue.begin()
    for part in parts:
        try:
            dialogue.feed(part)
        except PeerFault:
            return
        assert len(dialogue._buffer) <= limits.LOOKUP_ANSWER_BYTES_MAX + 4
