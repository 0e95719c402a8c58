"""Servers that answer what they are told to, and keep what they were asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import closing

from penstock.errors import FetchFailed
from penstock.net.outgoing import HttpAnswer

OK_JSON = b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}'
HANG_UP = b"HANG UP"


def answer(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status.encode(), len(body), body)


class Server:
    """Says `replies`, one a request, and keeps the requests. None: says nothing. HANG_UP: closes,
    as it does after the last one."""

    def __init__(
        self, *replies: bytes | None, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self.replies = list(replies)
        self.requests: list[bytes] = []
        self.url = ""
        self.port = 0
        self.connections = 0
        self.ended = asyncio.Event()  # a connection has
        self.writer: asyncio.StreamWriter | None = None
        self._host = host
        self._tls = tls

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, self._host, 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http{'s' if self._tls else ''}://{shown}:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writer = writer
        with closing(writer):
            while self.replies:
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                except (asyncio.IncompleteReadError, ConnectionError):
                    break
                size = 0
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        size = int(line.split(b":")[1])
                self.requests.append(head + await reader.readexactly(size))
                reply = self.replies.pop(0)
                if reply == HANG_UP:
                    break
                if reply is None:
                    await reader.read()
                    break
                writer.write(reply)
        self.ended.set()


class Daemons:
    """In the place of a Fetcher: `answers` in the order in which they are asked."""

    def __init__(self, *answers: HttpAnswer | FetchFailed | Callable[[], HttpAnswer]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, bytes, str]] = []

    async def request(
        self, method: str, url: str, body: bytes, headers: object, credentials: str
    ) -> HttpAnswer:
        self.asked.append((f"{method} {url}", body, credentials))
        answer = self.answers.pop(0)
        if isinstance(answer, FetchFailed):
            raise answer
        return answer if isinstance(answer, HttpAnswer) else answer()

    async def close(self) -> None: ...
