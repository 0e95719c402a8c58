"""Messages that bring their headers, from a real nsqd."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cases import each
from penstock.client import Consumer, Producer
from penstock.client.framing import FrameBroken
from penstock.client.subscription import split_envelope, split_headers
from penstock.nsqd.daemon import Daemon
from penstock.nsqd.options import read_options


def pub_ext(topic: bytes, headers: dict[str, str], body: bytes) -> bytes:
    text = json.dumps(headers).encode()
    data = len(text).to_bytes(2, "big") + text + body
    return b"PUB_EXT " + topic + b"\n" + len(data).to_bytes(4, "big") + data


async def publish(address: str, *said: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(address)
    writer.write(b"  V2" + b"".join(said))
    for _ in said:
        assert (await reader.readexactly(10))[8:] == b"OK"
    writer.close()


async def started(path: Path) -> Daemon:
    path.mkdir()
    arguments = [
        f"--data-path={path}",
        f"--tcp-address={path}/tcp",
        f"--http-address={path}/http",
        "--durability=os",
    ]
    daemon = Daemon(read_options(arguments, {}))
    await daemon.start()
    daemon.broker.topic("with", 2, extended=True)
    daemon.broker.topic("without")
    return daemon


async def test_headers_and_keys_arrive(tmp_path: Path) -> None:
    daemon = await started(tmp_path / "data")
    address = f"{tmp_path}/data/tcp"
    red = {"type": 1, "filter_ext_key": "color", "filter_data": "red"}
    options: dict[str, Any] = {"headers": True, "ext_filter": red}
    async with asyncio.timeout(30), Consumer("with", "c", address, **options) as consumer:
        await publish(
            address,
            pub_ext(b"with", {"key": "k1", "color": "red"}, b"one"),
            pub_ext(b"with", {"key": "k2", "color": "blue"}, b"two"),
            pub_ext(b"with", {"color": "red"}, b"three"),
        )
        found = [await anext(consumer) for _ in range(2)]
        for message in found:
            await message.fin()
    told = sorted((one.body, one.key, one.headers) for one in found)
    assert told == [
        (b"one", "k1", {"key": "k1", "color": "red"}),
        (b"three", None, {"color": "red"}),
    ]
    await daemon.stop()


async def test_a_message_says_where_it_comes_from(tmp_path: Path) -> None:
    async def seen(
        topic: str, channel: str, address: str, count: int, options: dict[str, Any]
    ) -> set[Any]:
        async with asyncio.timeout(30), Consumer(topic, channel, address, **options) as consumer:
            found = [await anext(consumer) for _ in range(count)]
            for message in found:
                await message.fin()
        return {
            (one.body, one.topic, one.partition, one.key, one.headers.get("color", ""))
            for one in found
        }

    daemon = await started(tmp_path / "data")
    address = f"{tmp_path}/data/tcp"
    for channel in ("plain", "placed", "enveloped"):
        daemon.broker.topics["with"].channel_of_consumer(channel)
        daemon.broker.topics["without"].channel_of_consumer(channel)
    async with asyncio.timeout(30), Producer(address) as producer:
        await producer.pub("with", b"one", partition=1)
        await producer.pub("with", b"two", partition=0, headers={"color": "red"})
        await producer.pub("without", b"three", key="k")
    every = {"envelope": True}
    assert await seen("with", "enveloped", address, 2, every) == {
        (b"one", "with", 1, None, ""),
        (b"two", "with", 0, None, "red"),
    }
    assert await seen("with", "placed", address, 1, {"partition": 1}) == {
        (b"one", "with", 1, None, "")
    }
    assert await seen("without", "enveloped", address, 1, every) == {
        (b"three", "without", 0, "k", "")
    }
    assert await seen("without", "plain", address, 1, {}) == {(b"three", "without", None, None, "")}
    await daemon.stop()


@each("rest", [b"", b"\x00", b"\x00\x01", b"\x00\x01\x02", b"\0\0\x01\0\x02k"])
def test_what_is_no_envelope(rest: bytes) -> None:
    with pytest.raises(FrameBroken):
        split_envelope(rest)


@each("rest", [b"", b"\x01x", b"\x04", b"\x04\x00", b"\x04\x00\x05{}"])
def test_what_nsqd_does_not_send(rest: bytes) -> None:
    with pytest.raises(FrameBroken):
        split_headers(rest)
