"""The shell of a server that a test runs in its own loop: an address, connections, an end."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self


class Server:
    """`serve` is one connection's life, and closes it; what still runs at the end is cancelled."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.address = ""
        self._tls = tls
        self._tasks: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._life(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())  # also where it never began

    async def _life(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            await self.serve(reader, writer)  # until the client is gone, or the test is over

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(40):
        while not holds():
            await asyncio.sleep(0.001)
