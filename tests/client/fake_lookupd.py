"""A nsqlookupd that answers what the test tells it to."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any, Self


class FakeLookupd:
    def __init__(self) -> None:
        self.nodes: list[str] = []
        self.port_key = "tcp_port"
        self.old_form = False
        self.status = 200
        self.asked: list[str] = []
        self.address = ""
        self._tasks: set[asyncio.Task[Any]] = set()

    async def rounds(self, count: int) -> None:
        """Wait until it was asked `count` times more, and the last answer is out."""
        target = len(self.asked) + count + 1
        async with asyncio.timeout(40):
            while len(self.asked) < target:
                await asyncio.sleep(0.005)

    def _document(self) -> dict[str, Any]:
        if self.status != 200:
            return {"message": "TOPIC_NOT_FOUND" if self.status == 404 else "BROKEN"}
        producers = []
        for node in self.nodes:
            host, _, port = node.rpartition(":")
            producers.append({"broadcast_address": host, self.port_key: int(port)})
        document = {"channels": [], "producers": producers}
        return {"status_code": 200, "data": document} if self.old_form else document

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.asked.append(head.split(b" ")[1].decode())
                body = json.dumps(self._document()).encode()
                line = f"HTTP/1.1 {self.status} X\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(line.encode() + body)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

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
        await asyncio.gather(*self._tasks)
        await self._server.wait_closed()
