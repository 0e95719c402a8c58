"""A registry on a clock that is set by hand, and clients that are fed bytes."""

import json
import struct
from typing import Any

from penstock.nsqlookupd.protocol import Client
from penstock.nsqlookupd.registry import Peer, Registry
from sim.clock import FakeClock

S = 1_000_000_000
INACTIVE_NS = 300 * S
TOMBSTONE_NS = 45 * S
WALL_NS = 1_700_000_000 * S

ABOUT = {
    "tcp_port": 4160,
    "http_port": 4161,
    "version": "1.0",
    "hostname": "h",
    "broadcast_address": "b",
}
ABOUT_JSON = (
    b'{"broadcast_address":"b","hostname":"h","http_port":4161,"tcp_port":4160,"version":"1.0"}'
)
NSQD = {
    "broadcast_address": "node",
    "hostname": "host",
    "tcp_port": 4150,
    "http_port": 4151,
    "version": "1.3.0",
    "topology_zone": "z",
    "topology_region": "r",
}


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def identify(document: Any = NSQD) -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return b"IDENTIFY\n" + sized(body)


def answers(data: bytes) -> list[bytes]:
    """Split what a connection was sent."""
    found = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        assert len(data) >= 4 + size
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found


class World:
    def __init__(self) -> None:
        self.clock = FakeClock(WALL_NS)
        self.registry = Registry(self.clock, INACTIVE_NS, TOMBSTONE_NS)

    def client(self, remote: str = "1.2.3.4:5") -> Client:
        return Client(self.registry, remote, dict(ABOUT))

    def identified(self, remote: str = "1.2.3.4:5", **changed: Any) -> Client:
        client = self.client(remote)
        assert answers(client.feed(b"  V1" + identify(NSQD | changed))) == [ABOUT_JSON]
        return client


def peer(number: int = 0) -> Peer:
    return Peer(f"10.0.0.1:{number}", f"node{number}", "host", 4150, 4151, "1.3.0")
