"""A TCP proxy that takes a client's bytes to nsqd, and loses some of the answers."""

from __future__ import annotations

import asyncio
import random
from types import TracebackType
from typing import Any, Self


class Cutter:
    """`port` is looked up for each connection, so nsqd may come back on another one."""

    def __init__(self, daemon: Any, rng: random.Random, share: float) -> None:
        self._daemon = daemon
        self._rng = rng
        self.share = share  # of the answers that are lost
        self.lost = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            port = self._daemon.http_port
            back, out = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        forth = asyncio.ensure_future(self._forth(reader, out))
        try:
            while data := await back.read(1 << 16):
                if self._rng.random() < self.share:
                    self.lost += 1
                    break
                writer.write(data)
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass  # either side is gone, or the test is over: so is the other
        finally:
            forth.cancel()
            out.transport.abort()
            writer.transport.abort()

    async def _forth(self, reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                out.write(data)
                await out.drain()
            out.transport.abort()
        except OSError:
            out.transport.abort()
