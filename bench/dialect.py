"""What the benchmark must know of a daemon's protocol, apart from the bytes of its hot path."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bench.shape import PLAIN, Shape

HANDSHAKE_SECONDS_MAX = 20.0
HOST = "127.0.0.1"


class DaemonFailed(Exception):
    """The daemon did not start, did not answer, or answered with an error."""


class Ports(NamedTuple):
    tcp: int
    http: int


@dataclass(frozen=True, slots=True)
class Unit:
    """One publish as bytes, sent over and over; where its bodies lie, for stamping. `data` may hold
    several of one size, which are sent in turn."""

    data: bytes
    messages: int
    stamp_first: int
    stamp_stride: int
    count: int = 1


class Dialect(Protocol):
    nats: bool  # which of the generator's two dialects
    batches: bool  # can several messages be published by one command?

    def prepare(self, topic: str, channels: Sequence[str], shape: Shape = PLAIN) -> None:
        """Make the topic and its channels before anything is published."""
        ...

    def unit(
        self, topic: str, body_bytes: int, batch: int, serial: int, shape: Shape = PLAIN
    ) -> Unit: ...
    def publisher(self, serial: int) -> socket.socket:
        """A connection that may publish; `serial` tells it from others of the same run."""
        ...

    def consumer(
        self, topic: str, channel: str, credit: int, shape: Shape = PLAIN
    ) -> tuple[socket.socket, bytes]:
        """A subscribed connection, and the bytes that open the tap."""
        ...

    def frame_bytes(self, body_bytes: int, shape: Shape = PLAIN) -> int:
        """The size that the generator expects of every message."""
        ...

    def stored(self, topic: str) -> int:
        """Messages that the daemon says it holds for the topic's first channel."""
        ...


def body(body_bytes: int) -> bytes:
    """A message body: eight zero bytes for the time stamp, then bytes that do not compress away."""
    return bytes(8) + bytes((i * 151 + 89) % 251 + 1 for i in range(body_bytes - 8))


def connect(port: int) -> socket.socket:
    sock = socket.create_connection((HOST, port), timeout=HANDSHAKE_SECONDS_MAX)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def read_exactly(sock: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        chunk = sock.recv(count - len(found))
        if not chunk:
            raise DaemonFailed("the daemon closed a connection during the greeting")
        found += chunk
    return bytes(found)
