"""A scripted nsqd in the test's own loop: the greeting with TLS, compression and AUTH as NSQ does
it, then whatever the test makes of each command. It has no queue and no rules of its own."""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
from collections.abc import Callable
from typing import Any, Self

from penstock.wire.compression import DeflateDecoder, DeflateEncoder, SnappyDecoder, SnappyEncoder
from penstock.wire.frames import FrameType, encode_frame

GRANTED: dict[str, Any] = {
    "max_rdy_count": 2500,
    "version": "1.3.0",
    "max_msg_timeout": 900000,
    "msg_timeout": 60000,
    "tls_v1": False,
    "deflate": False,
    "deflate_level": 6,
    "max_deflate_level": 6,
    "snappy": False,
    "sample_rate": 0,
    "auth_required": False,
    "output_buffer_size": 16384,
    "output_buffer_timeout": 250,
    "topology_region": "",
    "topology_zone": "",
}
PUBLISHES = (b"PUB", b"DPUB", b"MPUB", b"PUB_EXT", b"MPUB_EXT", b"PUB_TRACE", b"MPUB_TRACE")
WITH_BODY = (b"IDENTIFY", b"AUTH", *PUBLISHES)


def message(number: int, body: bytes, attempts: int = 1) -> bytes:
    data = struct.pack(">qH16s", 1_700_000_000_000_000_000, attempts, b"%016x" % number)
    return encode_frame(FrameType.MESSAGE, data + body)


def ok() -> bytes:
    return encode_frame(FrameType.RESPONSE, b"OK")


def error(data: bytes) -> bytes:
    return encode_frame(FrameType.ERROR, data)


class Peer(asyncio.Protocol):
    """One connection, from the server's side. `said` holds (line, body) of each command."""

    def __init__(self, server: FakeNsqd) -> None:
        self.server = server
        self.received: list[tuple[bytes, bytes]] = []
        self.asked: dict[str, Any] = {}
        self.closed = asyncio.get_running_loop().create_future()
        self._buffer = bytearray()
        self._greeted = False
        self._codec: tuple[Any, Any] | None = None
        self._pending: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        if self not in self.server.peers:
            self.server.peers.append(self)

    def connection_lost(self, reason: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._codec is not None:
            self._codec[1].feed(data)
            data = b"".join(iter(lambda: self._codec and self._codec[1].read(65536), b""))
        self._buffer += data
        self._take_commands()

    def _take_commands(self) -> None:
        if not self._greeted and len(self._buffer) >= 4:
            assert self._buffer[:4] == b"  V2"
            del self._buffer[:4]
            self._greeted = True
        while b"\n" in self._buffer:
            line, _, rest = bytes(self._buffer).partition(b"\n")
            body = b""
            if line.split(b" ")[0] in WITH_BODY:
                if len(rest) < 4 or len(rest) < 4 + int.from_bytes(rest[:4]):
                    return
                size = int.from_bytes(rest[:4])
                body, rest = rest[4 : 4 + size], rest[4 + size :]
            self._buffer = bytearray(rest)
            self.received.append((line, body))
            self._answer(line, body)

    def _answer(self, line: bytes, body: bytes) -> None:
        if line == b"IDENTIFY":
            self.asked = json.loads(body)
            self._greet()
        else:
            self.server.on_command(self, line, body)

    def _greet(self) -> None:
        granted = {**GRANTED, **self.server.granted}
        for feature in ("tls_v1", "snappy", "deflate"):
            granted[feature] = bool(granted[feature] and self.asked[feature])
        self.send(encode_frame(FrameType.RESPONSE, json.dumps(granted).encode()))
        if granted["tls_v1"]:
            self._pending = asyncio.get_running_loop().create_task(self._secure(granted))
        else:
            self._compress(granted)

    async def _secure(self, granted: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        self.transport = await loop.start_tls(
            self.transport,
            self,
            self.server.tls,
            server_side=True,  # type: ignore[arg-type]
        )
        self.send(ok())
        self._compress(granted)

    def _compress(self, granted: dict[str, Any]) -> None:
        if granted["snappy"]:
            self._codec = (SnappyEncoder(), SnappyDecoder())
        elif granted["deflate"]:
            self._codec = (DeflateEncoder(6), DeflateDecoder())
        else:
            return
        self.send(ok())

    def send(self, data: bytes) -> None:
        self.transport.write(data if self._codec is None else self._codec[0].encode(data))

    def hang_up(self) -> None:
        self.transport.close()

    def lines(self) -> list[bytes]:
        return [line for line, _ in self.received if line != b"IDENTIFY"]


OnCommand = Callable[[Peer, bytes, bytes], None]


def say_ok(peer: Peer, line: bytes, body: bytes) -> None:
    """Answer what needs an answer, and send nothing else."""
    name = line.split(b" ")[0]
    if name == b"SUB" or (name in PUBLISHES and not name.endswith(b"_TRACE")):
        peer.send(ok())
    elif name == b"AUTH":
        peer.send(encode_frame(FrameType.RESPONSE, b'{"identity":"","permission_count":1}'))
    elif name == b"CLS":
        peer.send(encode_frame(FrameType.RESPONSE, b"CLOSE_WAIT"))


class FakeNsqd:
    def __init__(
        self, on_command: OnCommand = say_ok, tls: ssl.SSLContext | None = None, **granted: Any
    ) -> None:
        self.on_command = on_command
        self.tls = tls
        self.granted = granted
        self.peers: list[Peer] = []
        self.address = ""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Peer(self), "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for peer in self.peers:
            peer.transport.abort()
            await peer.closed
        await self._server.wait_closed()
