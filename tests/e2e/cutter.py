"""A TCP proxy that takes a client's bytes to nsqd, and loses some of the answers."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from client.server import Server


class Cutter(Server):
    """`port` is looked up for each connection, so nsqd may come back on another one."""

    def __init__(self, daemon: Any, rng: random.Random, share: float) -> None:
        super().__init__()
        self._daemon = daemon
        self._rng = rng
        self.share = share  # of the answers that are lost
        self.lost = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, out = await asyncio.open_connection("127.0.0.1", self._daemon.http_port)
        except OSError:
            return
        forth = asyncio.ensure_future(self._forth(reader, out))
        try:
            while data := await back.read(1 << 16):
                if self._rng.random() < self.share:
                    self.lost += 1
                    break
                writer.write(data)
                await writer.drain()
        except OSError:
            return  # either side is gone: so is the other
        finally:
            forth.cancel()
            out.transport.abort()

    async def _forth(self, reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                out.write(data)
                await out.drain()
            out.transport.abort()
        except OSError:
            out.transport.abort()
