"""Messages that bring their headers, from a real nsqd."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Consumer
from penstock.client.framing import FrameBroken
from penstock.client.headed import split_headers
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


def test_headers_and_keys_arrive(tmp_path: Path) -> None:
    async def story() -> None:
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

    asyncio.run(story())


def test_who_does_not_ask_gets_none(tmp_path: Path) -> None:
    async def story() -> None:
        daemon = await started(tmp_path / "data")
        address = f"{tmp_path}/data/tcp"
        async with asyncio.timeout(30), Consumer("with", "c", address) as consumer:
            await publish(address, pub_ext(b"with", {"key": "k"}, b"one"))
            message = await anext(consumer)
            assert (message.body, message.headers, message.key) == (b"one", {}, None)
            await message.fin()
        await daemon.stop()

    asyncio.run(story())


@pytest.mark.parametrize("rest", [b"", b"\x01x", b"\x04", b"\x04\x00", b"\x04\x00\x05{}"])
def test_what_nsqd_does_not_send(rest: bytes) -> None:
    with pytest.raises(FrameBroken):
        split_headers(rest)
