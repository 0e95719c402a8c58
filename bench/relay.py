"""TLS and compression for a load generator that has neither: a relay in a process of its own.

    generator --plain V2--> relay --TLS, snappy or deflate--> daemon

It answers the generator's greeting itself, after it has greeted the daemon with the features that
were asked for, and then passes bytes. Its own work stands on the generator's core, so the daemon's
processor time per message is the figure to look at, not the rate.

One thread per connection, which reads what is ready and writes it whole: the generator keeps a
bounded number of commands open, so neither side can be stuck in front of the other.
"""

import argparse
import json
import select
import socket
import ssl
import sys
import threading
from collections.abc import Sequence
from typing import Any

from bench.dialect import HOST, connect, read_exactly
from penstock.limits import LINK_BYTES
from penstock.net.tls import Tls
from penstock.wire.compression import DeflateDecoder, DeflateEncoder, SnappyDecoder, SnappyEncoder
from penstock.wire.frames import HEADER_BYTES, MAGIC_V2, encode_frame, with_size
from penstock.wire.identify import Decoder, Encoder

_GREETING = MAGIC_V2 + b"IDENTIFY\n"
_OK = encode_frame(0, b"OK")


class Upstream:
    """The encoded side."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.tls: Tls | None = None
        self.encoder: Encoder | None = None
        self.decoder: Decoder | None = None
        self._view = memoryview(bytearray(LINK_BYTES))

    def send(self, data: bytes) -> None:
        if self.encoder is not None:
            data = self.encoder.encode(data)
        if self.tls is not None:
            data = self.tls.encode(data)
        self.sock.sendall(data)

    def receive(self) -> bytes | None:
        """What one read brought, decoded; None at the end."""
        data: bytes | memoryview = self.sock.recv(LINK_BYTES)
        if not data:
            return None
        if self.tls is not None:
            self.tls.feed(data)
            data = self._view[: self.tls.read_into(self._view)]
        if self.decoder is None:
            return bytes(data)
        self.decoder.feed(data)
        parts = []
        while part := self.decoder.read(LINK_BYTES):
            parts.append(part)
        return b"".join(parts)

    def expect_ok(self, data: bytes = b"") -> bytes:
        """Read the daemon's OK, of which `data` has come already; what came behind it."""
        while len(data) < len(_OK):
            more = self.receive()
            if more is None:
                raise ConnectionError("the daemon hung up during the upgrade")
            data += more
        if not data.startswith(_OK):
            raise ConnectionError(f"the daemon answered {data!r}")
        return data[len(_OK) :]

    def compress(self, encoder: Encoder, decoder: Decoder, early: bytes) -> None:
        self.encoder, self.decoder = encoder, decoder
        decoder.feed(early)
        self.expect_ok(decoder.read(LINK_BYTES))

    def secure(self, context: ssl.SSLContext) -> None:
        self.tls = Tls(context, server_side=False)
        while not self.tls.shake():
            self.sock.sendall(self.tls.output())
            self.tls.feed(self.sock.recv(LINK_BYTES))
        self.sock.sendall(self.tls.output())


def greet(port: int, identify: dict[str, Any], context: ssl.SSLContext | None) -> Upstream:
    upstream = Upstream(connect(port))
    sock = upstream.sock
    sock.settimeout(None)
    sock.sendall(_GREETING + with_size(json.dumps(identify).encode()))
    size = int.from_bytes(read_exactly(sock, 4), "big")
    answer = json.loads(read_exactly(sock, size)[HEADER_BYTES - 4 :])
    early = b""
    if context is not None:
        upstream.secure(context)
        early = upstream.expect_ok()
    if answer["snappy"]:
        upstream.compress(SnappyEncoder(), SnappyDecoder(), early)
    elif answer["deflate"]:
        upstream.compress(DeflateEncoder(answer["deflate_level"]), DeflateDecoder(), early)
    return upstream


def serve(client: socket.socket, port: int, wanted: argparse.Namespace) -> None:
    with client:
        if read_exactly(client, len(_GREETING)) != _GREETING:
            return
        identify = json.loads(read_exactly(client, int.from_bytes(read_exactly(client, 4), "big")))
        context = ssl.create_default_context(cafile=wanted.ca) if wanted.ca else None
        if context is not None:
            context.check_hostname = False
        identify |= {"feature_negotiation": True, "tls_v1": context is not None}
        identify |= {"snappy": wanted.snappy, "deflate": wanted.deflate}
        upstream = greet(port, identify, context)
        with upstream.sock:
            client.sendall(_OK)
            pass_bytes(client, upstream)


def pass_bytes(client: socket.socket, upstream: Upstream) -> None:
    while True:
        ready, _, _ = select.select([client, upstream.sock], [], [])
        if upstream.sock in ready:
            data = upstream.receive()
            if data is None:
                return
            client.sendall(data)
        if client in ready:
            data = client.recv(LINK_BYTES)
            if not data:
                return
            upstream.send(data)


def guarded(client: socket.socket, port: int, wanted: argparse.Namespace) -> None:
    try:
        serve(client, port, wanted)
    except (OSError, ValueError) as error:  # the generator sees that it has hung up
        print(f"relay: {error}", file=sys.stderr)


def relay_main(argv: Sequence[str]) -> None:
    p = argparse.ArgumentParser(prog="bench.relay")
    p.add_argument("listen", type=int)
    p.add_argument("port", type=int)
    p.add_argument("--ca")
    p.add_argument("--snappy", action="store_true")
    p.add_argument("--deflate", action="store_true")
    wanted = p.parse_args(argv)
    with socket.create_server((HOST, wanted.listen)) as listener:
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            arguments = (client, wanted.port, wanted)
            threading.Thread(target=guarded, args=arguments, daemon=True).start()


if __name__ == "__main__":
    relay_main(sys.argv[1:])
