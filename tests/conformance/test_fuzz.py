"""Hostile clients, slow clients and silent clients: nsqd stays alive, prompt, small and intact.

Each siege lasts a few seconds; PENSTOCK_FUZZ_SECONDS makes them longer. A round that fails prints
its seed.
"""

import random
import signal
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.daemon import Daemon
from e2e.lookupd import Lookupd, eventually
from e2e.v2client import V2Client
from penstock.wire.compression import SnappyEncoder

from . import hostile
from .siege import (
    ANSWER_S_MAX,
    FUZZ_S,
    PATIENCE_S,
    Watch,
    ask_lookupd,
    besiege,
    check_frames,
    check_http,
    check_sized,
    one_round,
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    path = tmp_path_factory.mktemp("fuzz") / "data"
    flags = ("--durability=os", "--max-req-timeout=2s", "--retain-bytes=1")
    with Daemon(path, *flags) as running:
        yield running
        assert running.stop() == 0  # and it still stops in good order


@pytest.fixture(scope="module")
def lookupd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lookupd]:
    with Lookupd(tmp_path_factory.mktemp("fuzz") / "lookupd") as running:
        yield running
        assert running.stop() == 0


def ids_of(daemon: Daemon) -> list[bytes]:
    """Some ids that are in flight somewhere, for others to lay hands on."""
    with V2Client(daemon.tcp_port) as client:
        client.mpub("a", [b"m"] * 5)
        client.sub("a", "x")
        client.rdy(5)
        return [client.messages(1)[0].id for _ in range(5)]


def compressed(rng: random.Random, data: bytes, name: bytes) -> bytes:
    """As a client would send it, in several pieces; some of it damaged."""
    if name == b"snappy":
        encoder = SnappyEncoder()
        stream = b"".join(encoder.encode(piece) for piece in hostile.pieces(rng, data))
    else:
        deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
        stream = b"".join(
            deflate.compress(piece) + deflate.flush(zlib.Z_SYNC_FLUSH)
            for piece in hostile.pieces(rng, data)
        )
    return hostile.damaged(rng, stream) if rng.random() < 0.5 else stream


Script = Callable[[random.Random, list[bytes]], list[bytes]]


def commands(rng: random.Random, ids: list[bytes]) -> list[bytes]:
    return hostile.pieces(rng, hostile.conversation(rng, ids))


def upgrade(name: bytes) -> bytes:
    body = b'{"feature_negotiation":true,"%b":true}' % name
    return b"  V2IDENTIFY\n" + hostile.sized(body)


def not_upgraded(rng: random.Random, ids: list[bytes]) -> list[bytes]:
    """TLS or compression is negotiated, and then something else is sent."""
    stream = upgrade(rng.choice([b"snappy", b"deflate", b"tls_v1"]))
    junk = rng.choice([rng.randbytes(rng.randrange(3000)), b"\xff\x06\x00\x00sNaPpY" * 3])
    return hostile.pieces(rng, stream + junk + hostile.conversation(rng, [], True))


def upgraded(rng: random.Random, ids: list[bytes]) -> list[bytes]:
    """Damaged inside the compression and outside."""
    name = rng.choice([b"snappy", b"deflate"])
    text = hostile.conversation(rng, ids)[4:]  # without the magic
    return [upgrade(name), *hostile.pieces(rng, compressed(rng, text, name))]


def raw(*starts: bytes) -> Script:
    return lambda rng, ids: hostile.pieces(
        rng, rng.choice(starts) + rng.randbytes(rng.randrange(1, 40_000))
    )


def anything(received: bytes) -> None:
    """Whatever is heard is right."""


SIEGES: dict[str, tuple[Script, str, Callable[[bytes], None]]] = {
    "commands": (commands, "tcp_port", check_frames),
    "no upgrade": (not_upgraded, "tcp_port", anything),
    "upgraded": (upgraded, "tcp_port", anything),
    "raw": (raw(b"", b"  V2", b"  V2IDENTIFY\n", b"  V2PUB a\n", b"  V2MPUB a\n"), "tcp_port",
            check_frames),
    "HTTP": (lambda rng, ids: hostile.pieces(rng, hostile.browsing(rng)), "http_port", check_http),
    "raw HTTP": (raw(b"", b"GET ", b"POST /pub?topic=a HTTP/1.1\r\n", b"\x16\x03\x01"),
                 "http_port", check_http),
}  # fmt: skip
LOOKUPD_SIEGES: dict[str, tuple[Script, str, Callable[[bytes], None]]] = {
    "registrations": (lambda rng, ids: hostile.pieces(rng, hostile.gossip(rng)), "tcp_port",
                      check_sized),
    "raw": (raw(b"", b"  V1", b"  V1IDENTIFY\n", b"  V1REGISTER "), "tcp_port", anything),
    "HTTP": (lambda rng, ids: hostile.pieces(rng, hostile.browsing(rng, hostile.LOOKUPD_TARGETS)),
             "http_port", check_http),
}  # fmt: skip


@pytest.mark.parametrize("name", SIEGES)
def test_nsqd(daemon: Daemon, name: str) -> None:
    script, port, check = SIEGES[name]
    ids = ids_of(daemon)
    with Watch(daemon):
        assert besiege(getattr(daemon, port), lambda rng: script(rng, ids), check) > 5


@pytest.mark.parametrize("name", LOOKUPD_SIEGES)
def test_nsqlookupd(lookupd: Lookupd, name: str) -> None:
    script, port, check = LOOKUPD_SIEGES[name]
    with Watch(lookupd, ask_lookupd):
        assert besiege(getattr(lookupd, port), lambda rng: script(rng, []), check) > 5


def test_the_checks_find_what_they_are_for() -> None:
    for check, received in (
        (check_frames, b"HTTP/1.1 400 Bad Request\r\n"),
        (check_frames, b"\x00\x00\x00\x06\x00\x00\x00\x03OK"),
        (check_http, b"HTTP/1.1 500 Internal Server Error\r\n"),
        (check_http, b"\x00\x00\x00\x06\x00\x00\x00\x00OK"),
    ):
        with pytest.raises(AssertionError):
            check(received)
    with pytest.raises(ConnectionError):
        one_round(random.Random(1), 1, lambda rng: [], check_frames)


def test_the_watch_finds_a_stall(daemon: Daemon) -> None:
    def stall() -> None:
        daemon.signal(signal.SIGSTOP)
        time.sleep(1.5 * ANSWER_S_MAX)
        daemon.signal(signal.SIGCONT)

    with pytest.raises(AssertionError, match="an answer took"), Watch(daemon):
        stall()


# --- slow and silent ---

SLOW_COUNT = 150
SLOW_STREAMS = (
    b"  V2",
    b"  V2IDENTIFY\n\x00\x00\x00\x10{",
    b"  V2SUB slow c\nRDY 2500\nNOP\n",
    b"  V2MPUB slow\n\x00\x50\x00\x00\x00\x00\x10\x00\x00\x00\x00\x03abc",
)
SLOW_REQUESTS = (
    b"POST /pub?topic=slow HTTP/1.1\r\nContent-Length: 1000000\r\n\r\nabc",
    b"GET /stats HTTP/1.1\r\nHost: localhost\r\nX-Header: aaaaaaaaaaaa",
    b"POST /mpub?topic=slow HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\nabc",
)


def test_clients_that_send_a_byte_at_a_time(daemon: Daemon) -> None:
    """150 of each kind, each with something announced that never comes. Then all hang up."""
    until_s = time.monotonic() + FUZZ_S
    with ExitStack() as on_exit, Watch(daemon):
        slow: list[tuple[socket.socket, bytes]] = []
        for number in range(SLOW_COUNT):
            for port, streams in (
                (daemon.tcp_port, SLOW_STREAMS),
                (daemon.http_port, SLOW_REQUESTS),
            ):
                sock = on_exit.enter_context(
                    socket.create_connection(("127.0.0.1", port), PATIENCE_S)
                )
                slow.append((sock, streams[number % len(streams)]))
        position = 0
        while time.monotonic() < until_s and position < max(map(len, SLOW_STREAMS + SLOW_REQUESTS)):
            for sock, stream in slow:
                sock.sendall(stream[position : position + 1])
            position += 1


def test_connections_that_come_and_go(daemon: Daemon) -> None:
    """Opened and left alone, or reset at once: none is left in the end."""
    with Watch(daemon), ExitStack() as on_exit:
        for number in range(600):
            port = daemon.tcp_port if number % 2 else daemon.http_port
            sock = on_exit.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
            if number % 3 == 0:
                sock.close()
    eventually(lambda: open_sockets(daemon) <= 10, say=lambda: open_sockets(daemon))


def open_sockets(daemon: Daemon) -> int:
    found = 0
    for link in Path(f"/proc/{daemon.pid}/fd").iterdir():
        try:
            found += str(link.readlink()).startswith("socket:")
        except FileNotFoundError:  # closed meanwhile
            continue
    return found
