"""NSQ's protocol, as far as the benchmark speaks it: greeting, subscribing, units of publishing."""

import http.client
import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

from bench.dialect import (
    HANDSHAKE_SECONDS_MAX,
    HOST,
    DaemonFailed,
    Ports,
    Unit,
    body,
    connect,
    read_exactly,
)
from bench.shape import PLAIN, TAG, Shape

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


def ext_unit(topic: str, body_bytes: int, batch: int, shape: Shape) -> Unit:
    """Commands that publish with a JSON object in front of each body."""
    found, first, stride = bytearray(), 0, 0
    for number in range(shape.units(batch)):
        exts = [shape.ext(number * batch + index) for index in range(batch)]
        messages = [framed(struct.pack(">H", len(e)) + e + body(body_bytes)) for e in exts]
        first, stride = 6 + len(exts[0]), len(messages[0])
        if batch == 1:
            head = f"PUB_EXT {topic}\n".encode()
        else:
            size = 4 + sum(map(len, messages))
            head = f"MPUB_EXT {topic}\n".encode() + struct.pack(">II", size, batch)
        first += len(head)
        found += head + b"".join(messages)
    return Unit(bytes(found), batch, first, stride, shape.units(batch))


class V2:
    nats = False
    batches = True

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def greet(self, shape: Shape = PLAIN) -> socket.socket:
        sock = connect(self._ports.tcp)
        asked: dict[str, Any] = dict(IDENTIFY)
        if shape.extended:
            asked["extend_support"] = True
        if shape.tagged:
            asked["desired_tag"] = TAG
        try:
            sock.sendall(b"  V2IDENTIFY\n" + framed(json.dumps(asked).encode()))
            answer = read_answer(sock)
            if answer != b"OK":
                raise DaemonFailed(f"IDENTIFY was answered by {answer!r}")
        except BaseException:
            sock.close()
            raise
        return sock

    def subscribe(self, topic: str, channel: str, shape: Shape = PLAIN) -> socket.socket:
        sock = self.greet(shape)
        try:
            sock.sendall(f"SUB {topic} {channel}\n".encode())
            answer = read_answer(sock)
            if answer != b"OK":
                raise DaemonFailed(f"SUB was answered by {answer!r}")
        except BaseException:
            sock.close()
            raise
        return sock

    def prepare(self, topic: str, channels: Sequence[str], shape: Shape = PLAIN) -> None:
        if not shape.is_plain:
            extend = "true" if shape.extended else "false"
            self._ask(
                "POST",
                f"/topic/create?topic={topic}&partition_num={shape.partitions}&extend={extend}",
            )
        for channel in channels:
            self.subscribe(topic, channel).close()
            if shape.order != "none":
                path = f"/channel/config?topic={topic}&channel={channel}&order={shape.order}"
                self._ask("POST", path)

    def unit(
        self, topic: str, body_bytes: int, batch: int, serial: int, shape: Shape = PLAIN
    ) -> Unit:
        if shape.has_ext:
            return ext_unit(topic, body_bytes, batch, shape)
        message = framed(body(body_bytes))
        if batch == 1:
            head = f"PUB {topic}\n".encode()
            return Unit(head + message, 1, len(head) + 4, len(message))
        content = struct.pack(">I", batch) + message * batch
        head = f"MPUB {topic}\n".encode()
        return Unit(head + framed(content), batch, len(head) + 12, len(message))

    def publisher(self, serial: int) -> socket.socket:
        return self.greet()

    def consumer(
        self, topic: str, channel: str, credit: int, shape: Shape = PLAIN
    ) -> tuple[socket.socket, bytes]:
        return self.subscribe(topic, channel, shape), f"RDY {credit}\n".encode()

    def frame_bytes(self, body_bytes: int, shape: Shape = PLAIN) -> int:
        return 30 + shape.frame_ext_bytes + body_bytes

    def stored(self, topic: str) -> int:
        stats = json.loads(self._ask("GET", f"/stats?format=json&topic={topic}"))
        for found in stats.get("topics") or []:
            if found["topic_name"] == topic:
                channels = found.get("channels") or []
                depths = [c["depth"] + c["in_flight_count"] for c in channels[:1]]
                return int(found["depth"]) + int(sum(depths))
        return 0

    def _ask(self, method: str, path: str) -> bytes:
        link = http.client.HTTPConnection(HOST, self._ports.http, timeout=HANDSHAKE_SECONDS_MAX)
        try:
            link.request(method, path)
            response = link.getresponse()
            text = response.read()
            if response.status != 200:
                raise DaemonFailed(f"{method} {path} was answered by {response.status} {text!r}")
            return text
        finally:
            link.close()
