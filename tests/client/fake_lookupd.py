"""A nsqlookupd that answers what the test tells it to."""

import asyncio
import json
from typing import Any

from .server import Server, until


class FakeLookupd(Server):
    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[str] = []
        self.of_topic: dict[str, list[str]] = {}  # other nodes than these
        self.port_key = "tcp_port"
        self.old_form = False
        self.status = 200
        self.asked: list[str] = []

    async def rounds(self, count: int) -> None:
        """Wait until it was asked `count` times more, and the last answer is out."""
        target = len(self.asked) + count + 1
        await until(lambda: len(self.asked) >= target)

    def _document(self, topic: str) -> dict[str, Any]:
        if self.status != 200:
            return {"message": "TOPIC_NOT_FOUND" if self.status == 404 else "BROKEN"}
        producers = []
        for node in self.of_topic.get(topic, self.nodes):
            host, _, port = node.rpartition(":")
            producers.append({"broadcast_address": host, self.port_key: int(port)})
        document = {"channels": [], "producers": producers}
        return {"status_code": 200, "data": document} if self.old_form else document

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            self.asked.append(head.split(b" ")[1].decode())
            body = json.dumps(self._document(self.asked[-1].partition("=")[2])).encode()
            line = f"HTTP/1.1 {self.status} X\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(line.encode() + body)
