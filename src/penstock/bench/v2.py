"""NSQ's protocol, as far as the benchmark speaks it: greeting, subscribing, units of publishing."""

from __future__ import annotations

import http.client
import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

from penstock.bench.dialect import (
    HANDSHAKE_SECONDS_MAX,
    HOST,
    DaemonFailed,
    Ports,
    Unit,
    body,
    connect,
    read_exactly,
)

HEARTBEAT = b"_heartbeat_"
IDENTIFY = {"client_id": "bench", "hostname": "bench", "user_agent": "penstock-bench"}


def framed(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def read_answer(sock: socket.socket) -> bytes:
    """The next response; heartbeats are passed over, an error frame raises."""
    while True:
        size, kind = struct.unpack(">II", read_exactly(sock, 8))
        data = read_exactly(sock, size - 4)
        if kind == 1:
            raise DaemonFailed(f"the daemon answered: {data.decode('utf-8', 'replace')}")
        if kind == 0 and data != HEARTBEAT:
            return data


class V2:
    nats = False
    batches = True

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def greet(self) -> socket.socket:
        sock = connect(self._ports.tcp)
        try:
            sock.sendall(b"  V2IDENTIFY\n" + framed(json.dumps(IDENTIFY).encode()))
            answer = read_answer(sock)
            if answer != b"OK":
                raise DaemonFailed(f"IDENTIFY was answered by {answer!r}")
        except BaseException:
            sock.close()
            raise
        return sock

    def subscribe(self, topic: str, channel: str) -> socket.socket:
        sock = self.greet()
        try:
            sock.sendall(f"SUB {topic} {channel}\n".encode())
            answer = read_answer(sock)
            if answer != b"OK":
                raise DaemonFailed(f"SUB was answered by {answer!r}")
        except BaseException:
            sock.close()
            raise
        return sock

    def prepare(self, topic: str, channels: Sequence[str]) -> None:
        for channel in channels:
            self.subscribe(topic, channel).close()

    def unit(self, topic: str, body_bytes: int, batch: int, serial: int) -> Unit:
        message = framed(body(body_bytes))
        if batch == 1:
            head = f"PUB {topic}\n".encode()
            return Unit(head + message, 1, len(head) + 4, len(message))
        content = struct.pack(">I", batch) + message * batch
        head = f"MPUB {topic}\n".encode()
        return Unit(head + framed(content), batch, len(head) + 12, len(message))

    def publisher(self, serial: int) -> socket.socket:
        return self.greet()

    def consumer(self, topic: str, channel: str, credit: int) -> tuple[socket.socket, bytes]:
        return self.subscribe(topic, channel), f"RDY {credit}\n".encode()

    def frame_bytes(self, body_bytes: int) -> int:
        return 30 + body_bytes

    def stored(self, topic: str) -> int:
        stats = self._get(f"/stats?format=json&topic={topic}")
        for found in stats.get("topics") or []:
            if found["topic_name"] == topic:
                channels = found.get("channels") or []
                depths = [c["depth"] + c["in_flight_count"] for c in channels[:1]]
                return int(found["depth"]) + int(sum(depths))
        return 0

    def _get(self, path: str) -> dict[str, Any]:
        link = http.client.HTTPConnection(HOST, self._ports.http, timeout=HANDSHAKE_SECONDS_MAX)
        try:
            link.request("GET", path)
            response = link.getresponse()
            text = response.read()
            if response.status != 200:
                raise DaemonFailed(f"GET {path} was answered by {response.status} {text!r}")
            found: dict[str, Any] = json.loads(text)
            return found
        finally:
            link.close()
