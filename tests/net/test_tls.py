"""Both sides of TLS as buffers: what one says the other reads, and a farewell is one."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

from e2e.certificates import Certificates
from penstock.net.tls import Tls


class Client:
    """The standard library's side of it."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def shake(self) -> bool:
        try:
            self.object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True


def pair(path: Path) -> tuple[Tls, Client]:
    certificates = Certificates(path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.cert, certificates.key)
    server, client = Tls(context), Client(certificates.client())
    done = [False, False]
    while not all(done):
        done[0] = done[0] or client.shake()
        server.feed(client.outgoing.read())
        done[1] = done[1] or server.shake()
        client.incoming.write(server.output())
    return server, client


def test_a_farewell_is_seen_and_answered(tmp_path: Path) -> None:
    server, client = pair(tmp_path)
    view = memoryview(bytearray(1000))
    client.object.write(b"last words")
    server.feed(client.outgoing.read())
    assert view[: server.read_into(view)] == b"last words"
    assert not server.ended
    with suppress(ssl.SSLWantReadError):
        client.object.unwrap()
    server.feed(client.outgoing.read())
    assert server.read_into(view) == 0
    assert server.ended
    client.incoming.write(server.close())
    client.object.unwrap()  # would want to read more without the answer


def test_words_and_farewell_in_one_piece(tmp_path: Path) -> None:
    server, client = pair(tmp_path)
    view = memoryview(bytearray(1000))
    client.object.write(b"last words")
    with suppress(ssl.SSLWantReadError):
        client.object.unwrap()
    server.feed(client.outgoing.read())
    assert view[: server.read_into(view)] == b"last words"
    assert server.ended
