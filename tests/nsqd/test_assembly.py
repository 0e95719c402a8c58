"""A node from its ports, without a daemon around it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.in_process import World
from penstock import kernel
from penstock.errors import FetchFailed
from penstock.limits import SECOND
from penstock.net.fetch import Fetcher
from penstock.nsqd.assembly import Node, Ports
from penstock.nsqd.options import read_options
from sim.clock import FakeClock
from sim.loop import FakeLoop
from sim.threads import Threads

Make = Callable[[str], World]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[World] = []

    def begin(name: str) -> World:
        options = read_options(["-data-path=."], {})
        made.append(World(tmp_path / name, kernel, options))
        return made[-1]

    yield begin
    for world in made:
        world.stop()


class NoDisk:
    def __getattr__(self, name: str) -> Any:
        pytest.fail(f"{name} was called")


def test_the_assembly_starts_nothing_and_touches_no_file() -> None:
    clock = FakeClock()
    loop: Any = FakeLoop(clock)
    disk: Any = NoDisk()
    wakes: list[Callable[[], None]] = []

    def new_pool(wake: Callable[[], None]) -> Threads:
        wakes.append(wake)
        return Threads()

    threads = set(threading.enumerate())
    ports = Ports(
        loop=loop,
        clock=clock,
        disk=disk,
        new_engine=kernel.Engine,
        seed=7,
        new_pool=new_pool,
        fetcher=Fetcher(),
        each_second=lambda: pytest.fail("housekeeping was begun"),
        on_fault=pytest.fail,
    )
    node = Node(ports, read_options(["-data-path=/not/there"], {}))
    loop.pass_ns(60 * SECOND, lambda: pytest.fail("a timer was set"))
    assert set(threading.enumerate()) <= threads  # one of an earlier test may end meanwhile
    assert wakes == [node.engine.wake]
    node.close()


def test_a_deleted_channel_drops_its_consumers(make: Make) -> None:
    world = make("one")
    consumer, other = world.connect(), world.connect()
    world.say(consumer, b"SUB t gone\n")
    world.say(other, b"SUB t stays\n")
    world.broker.topics["t"].delete_channel("gone")
    assert consumer.is_open
    world.loop.run_ready()  # the node asked for a turn by itself
    assert (consumer.is_open, other.is_open) == (False, True)


class AuthServers:
    """All of them let everybody do everything, and answer when the loop comes round again."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def get_json(self, url: str) -> Any:
        self.asked.append(url.partition("/auth")[0])
        await asyncio.sleep(0)
        if len(self.asked) == 1:
            raise FetchFailed(url, "timed out")
        every = {"permissions": ["publish"], "topic": ".*", "channels": [".*"]}
        return {"ttl": 3600, "authorizations": [every]}


def servers_asked(path: Path, seed: int) -> list[str]:
    flags = [f"-auth-http-address={name}:1" for name in "abc"]
    servers = AuthServers()
    options = read_options(["-data-path=.", *flags], {})
    world = World(path / f"{seed}", kernel, options, seed=seed, fetcher=servers)
    client = world.connect()
    world.say(client, b"AUTH\n\0\0\0\1s")
    world.say(client, b"PUB t\n\0\0\0\1x")
    assert (client.errors, client.responses[-1]) == ([], b"OK")
    world.stop()
    return servers.asked


def test_the_seed_chooses_the_auth_server(tmp_path: Path) -> None:
    """The loop of the host has no part in it: none is running here."""
    once, again = ([servers_asked(tmp_path / name, n) for n in range(12)] for name in ("a", "b"))
    assert once == again
    assert {first for first, _ in once} == {f"http://{name}:1" for name in "abc"}
