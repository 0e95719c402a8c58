"""An HTTP server on a real socket, with an application that answers when it is told to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from penstock.net.exchange import BodyRule, Request, Response
from penstock.net.http import HttpConnection
from penstock.net.incoming import BodyRoom

BODY_MAX = 100
PATIENCE_S = 40  # for a loaded machine
SILENCE_S = 0.05  # how long is listened for what must not come
TOO_BIG = Response(413, b"too big", "text/plain", closes=True)


class App:
    """/later waits for `release`; everything else answers with what it got."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.waiting: list[Callable[[], None]] = []
        self.answers: list[Any] = []

    def body_rule(self, method: str, path: str) -> BodyRule:
        return BodyRule(BODY_MAX, TOO_BIG, together=path.startswith("/together"))

    def serve(self, request: Request, answer: Callable[[Response], None]) -> None:
        self.requests.append(request)
        self.answers.append(answer)
        response = Response(200, f"{request.method} {request.target} ".encode() + request.body)
        if request.path in ("/later", "/together/later"):
            self.waiting.append(lambda: answer(response))
        elif request.path == "/close":
            answer(response._replace(closes=True))
        else:
            answer(response)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)).decode()
        status, *lines = head.rstrip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        body = await self.reader.readexactly(int(headers.get("Content-Length", 0)))
        return int(status.split()[1]), headers, body

    async def body(self, request: bytes = b"") -> bytes:
        if request:
            self.writer.write(request)
        return (await self.response())[2]

    async def rest(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), PATIENCE_S)


class Server:
    def __init__(self) -> None:
        self.app = App()
        self.connections: set[HttpConnection] = set()
        self.room = BodyRoom()
        self.port = 0

    async def release(self) -> None:
        """Let the request to /later be answered, once it is here."""
        await until(lambda: bool(self.app.waiting))
        self.app.waiting.pop()()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(
        lambda: HttpConnection(server.app, server.connections, server.room), "127.0.0.1", 0
    )
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for connection in list(server.connections):
            connection.abort()
        await until(lambda: not server.connections)
        for answer in server.app.answers:
            if answer.response is None:
                answer(Response(200))
    assert server.room.held_bytes == 0
