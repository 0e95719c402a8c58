"""The client library over TLS and compression, and with real nsqlookupds, against real daemons."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cases import each
from penstock.client import Consumer, Producer

from .certificates import Certificates
from .daemon import Daemon
from .lookupd import Lookupd, eventually, nsqd

END_S_MAX = 90.0
BODIES = {b"%d " % number + b"x" * (number % 3000) for number in range(3000)}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Daemon]:
    path = tmp_path_factory.mktemp("secured") / "data"
    with Daemon(path, "--durability=os", *certificates.flags) as daemon:
        yield daemon


async def take_all(consumer: Consumer, wanted: set[bytes]) -> None:
    seen = []
    async with asyncio.timeout(END_S_MAX):
        async for message in consumer:
            seen.append(message.body)
            message.fin()
            if len(seen) == len(wanted):
                break
    assert set(seen) == wanted


@each("secure", [False, True])
@each("form", ["", "snappy", "deflate"])
def test_upgraded(secured: Daemon, certificates: Certificates, secure: bool, form: str) -> None:
    address = f"127.0.0.1:{secured.tcp_port}"
    topic = f"{form}.{secure}"
    options: dict[str, Any] = {"tls": certificates.client() if secure else None}
    if form:
        options[form] = True

    async def story() -> None:
        async with Producer(address, **options) as producer:
            await producer.pub_many(topic, BODIES)
        async with Consumer(topic, "c", address, max_in_flight=500, **options) as consumer:
            running = asyncio.create_task(take_all(consumer, BODIES))
            (client,) = secured.channel_stats(topic, "c")["clients"]
            assert [client["tls"], client["snappy"], client["deflate"]] == [
                secure,
                form == "snappy",
                form == "deflate",
            ]
            await running
        found = secured.channel_stats(topic, "c")
        assert (found["depth"], found["in_flight_count"]) == (0, 0)

    asyncio.run(story())


def test_nsqds_come_and_go(tmp_path: Path) -> None:
    with ExitStack() as stack:
        lookupd = stack.enter_context(Lookupd(tmp_path / "lookupd"))
        first = stack.enter_context(nsqd(tmp_path / "first", lookupd.address))
        first.post("/topic/create?topic=t")
        eventually(lambda: lookupd.knows("t", first))
        second = nsqd(tmp_path / "second", lookupd.address)
        stack.callback(second.kill)

        async def connected(consumer: Consumer, *daemons: Daemon) -> None:
            wanted = {f"127.0.0.1:{daemon.tcp_port}" for daemon in daemons}
            async with asyncio.timeout(END_S_MAX):
                while set(consumer.addresses) != wanted:
                    await asyncio.sleep(0.01)

        async def story() -> None:
            where = f"127.0.0.1:{lookupd.http_port}"
            options: dict[str, Any] = {"lookup_interval_s": 0.05, "reconnect_delay_s": 0.02}
            async with Consumer("t", "c", lookupds=where, **options) as consumer:
                await connected(consumer, first)
                second.start()
                second.post("/pub?topic=t", b"from the second")
                first.post("/pub?topic=t", b"from the first")
                await take_all(consumer, {b"from the first", b"from the second"})
                await connected(consumer, first, second)
                first.stop()
                await connected(consumer, second)
                second.post("/pub?topic=t", b"still here")
                await take_all(consumer, {b"still here"})

        asyncio.run(story())
