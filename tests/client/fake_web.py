"""The HTTP side of an nsqd that answers publishes as the test says."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

from .server import Server


class Asked(NamedTuple):
    path: str
    parameters: dict[str, str]
    body: bytes

    @property
    def stamp(self) -> tuple[int, int]:
        """Epoch and sequence."""
        return int(self.parameters["producer_epoch"]), int(self.parameters["sequence"])


class Reply(NamedTuple):
    status: int = 200
    body: bytes = b"OK"
    headers: bytes = b""


OK = Reply()
REPEATED = Reply(headers=b"X-Penstock-Repeated: true\r\n")
DRAINING = Reply(503, b'{"message":"FAILED draining","taken":false}')
FAILED = Reply(503, b'{"message":"FAILED /data: fsync"}')
KNOWN = Reply(body=b'{"topics":{}}')
SILENCE = None  # for ever
CUT = Reply(0)

Replies = Callable[[Asked], Reply | None]


class FakeWeb(Server):
    """`publishes` are those that came, in order. Whether it is Penstock: `known`."""

    def __init__(
        self, reply: Replies = lambda _: OK, known: Reply = KNOWN, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(tls)
        self.reply = reply
        self.known = known
        self.publishes: list[Asked] = []
        self.questions = 0

    @classmethod
    def scripted(cls, *replies: Reply | None) -> Self:
        """The given ones, then OK."""
        left = list(replies)
        return cls(lambda _: left.pop(0) if left else OK)

    @property
    def stamps(self) -> list[tuple[int, int]]:
        return [asked.stamp for asked in self.publishes]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            reply = await self._answer(await self._read(reader))
            if reply is CUT:
                return
            head = f"HTTP/1.1 {reply.status} X\r\nContent-Length: {len(reply.body)}\r\n"
            writer.write(head.encode() + reply.headers + b"\r\n" + reply.body)

    async def _read(self, reader: asyncio.StreamReader) -> Asked:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target = urlsplit(head.split(" ")[1])
        size = 0
        for line in head.split("\r\n"):
            name, _, value = line.partition(":")
            size = int(value) if name.lower() == "content-length" else size
        parameters = {name: values[0] for name, values in parse_qs(target.query).items()}
        return Asked(target.path, parameters, await reader.readexactly(size))

    async def _answer(self, asked: Asked) -> Reply:
        if asked.path == "/log/positions":
            self.questions += 1
            return self.known
        self.publishes.append(asked)
        reply = self.reply(asked)
        if reply is None:
            await asyncio.get_running_loop().create_future()
            raise RuntimeError("silence ends by being cancelled only")
        return reply
