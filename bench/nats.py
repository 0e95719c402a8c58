"""NATS JetStream, as far as the benchmark speaks it: a file-backed stream, push consumers, acks.

A topic is a stream with one subject of the same name. A channel is a push consumer with explicit
acknowledgement; its `max_ack_pending` stands for RDY. NATS has no command that publishes a batch.
"""

import json
import socket
from collections.abc import Sequence
from typing import Any

from bench.dialect import DaemonFailed, Ports, Unit, body, connect
from bench.shape import PLAIN, Shape

CONNECT = {
    "verbose": False,
    "pedantic": False,
    "lang": "python",
    "version": "0",
    "protocol": 1,
    "name": "bench",
}


class Line:
    """A connection for control: requests and their JSON answers."""

    def __init__(self, port: int) -> None:
        self.sock = connect(port)
        self._rest = b""
        try:
            self.read_line()  # INFO
            self.sock.sendall(b"CONNECT " + json.dumps(CONNECT).encode() + b"\r\nPING\r\n")
            while self.read_line() != b"PONG":
                pass
        except BaseException:
            self.sock.close()
            raise

    def read_line(self) -> bytes:
        while b"\r\n" not in self._rest:
            self._more()
        line, _, self._rest = self._rest.partition(b"\r\n")
        if line.startswith(b"-ERR"):
            raise DaemonFailed(f"the daemon answered: {line.decode('utf-8', 'replace')}")
        return line

    def _more(self) -> None:
        chunk = self.sock.recv(65536)
        if not chunk:
            raise DaemonFailed("the daemon closed a connection during the greeting")
        self._rest += chunk

    def ask(self, subject: str, question: dict[str, Any]) -> dict[str, Any]:
        data = json.dumps(question).encode() if question else b""
        head = f"SUB _INBOX.ask 9\r\nUNSUB 9 1\r\nPUB {subject} _INBOX.ask {len(data)}\r\n"
        self.sock.sendall(head.encode() + data + b"\r\n")
        line = self.read_line()
        while not line.startswith((b"MSG ", b"HMSG ")):
            line = self.read_line()
        size = int(line.split()[-1]) + 2
        while len(self._rest) < size:
            self._more()
        answer, self._rest = self._rest[: size - 2], self._rest[size:]
        found: dict[str, Any] = json.loads(answer)
        if "error" in found:
            raise DaemonFailed(f"{subject} was answered by {found['error']}")
        return found

    def close(self) -> None:
        self.sock.close()


class Nats:
    nats = True
    batches = False
    replicas = 1

    def __init__(self, ports: Ports) -> None:
        self._port = ports.tcp

    def greet(self) -> socket.socket:
        return Line(self._port).sock

    def prepare(self, topic: str, channels: Sequence[str], shape: Shape = PLAIN) -> None:
        line = Line(self._port)
        try:
            stream = {
                "name": topic, "subjects": [topic], "storage": "file", "retention": "limits",
                "num_replicas": self.replicas,
            }  # fmt: skip
            line.ask(f"$JS.API.STREAM.CREATE.{topic}", stream)
        finally:
            line.close()

    def unit(
        self, topic: str, body_bytes: int, batch: int, serial: int, shape: Shape = PLAIN
    ) -> Unit:
        head = f"PUB {topic} _INBOX.acks.{serial} {body_bytes}\r\n".encode()
        return Unit(head + body(body_bytes) + b"\r\n", 1, len(head), body_bytes)

    def publisher(self, serial: int) -> socket.socket:
        sock = self.greet()
        sock.sendall(f"SUB _INBOX.acks.{serial} 1\r\n".encode())
        return sock

    def consumer(
        self, topic: str, channel: str, credit: int, shape: Shape = PLAIN
    ) -> tuple[socket.socket, bytes]:
        """The tap of a push consumer is its subscription, so that is the opening."""
        inbox = f"_INBOX.{topic}.{channel}"
        config = {
            "durable_name": channel,
            "deliver_subject": inbox,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": 60_000_000_000,
            "max_ack_pending": credit,
        }
        line = Line(self._port)
        try:
            question = {"stream_name": topic, "config": config}
            line.ask(f"$JS.API.CONSUMER.DURABLE.CREATE.{topic}.{channel}", question)
        except BaseException:
            line.close()
            raise
        return line.sock, f"SUB {inbox} 1\r\n".encode()

    def frame_bytes(self, body_bytes: int, shape: Shape = PLAIN) -> int:
        return body_bytes

    def info(self, topic: str) -> dict[str, Any]:
        line = Line(self._port)
        try:
            return line.ask(f"$JS.API.STREAM.INFO.{topic}", {})
        finally:
            line.close()

    def stored(self, topic: str) -> int:
        return int(self.info(topic)["state"]["messages"])
