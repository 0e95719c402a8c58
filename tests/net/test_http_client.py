"""Connections of the HTTP client against a server that answers what it is told to."""

import asyncio
import socket
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from typing import Any

import pytest
import trustme

from cases import each
from e2e.ports import kept_port
from net.scripted import HANG_UP, OK_JSON, Server, answer
from penstock.errors import FetchFailed
from penstock.net import http_client
from penstock.net.fetch import Fetcher
from penstock.net.http_client import HttpClient
from penstock.net.outgoing import HttpAnswer, HttpFailed, Outgoing

OK = answer("200 OK", b"")


@asynccontextmanager
async def client(
    tls: ssl.SSLContext | None = None, connect_s: float = 40, bytes_max: int = 1 << 20,
    keeps_connections: bool = True,
) -> AsyncIterator[HttpClient]:  # fmt: skip
    made = HttpClient(tls, connect_s, bytes_max, keeps_connections)
    async with asyncio.timeout(40):
        yield made
        made.close()
        await asyncio.sleep(0)


@asynccontextmanager
async def asking(
    *replies: bytes | None, **options: Any
) -> AsyncIterator[tuple[HttpClient, Server]]:
    async with Server(*replies) as server, client(**options) as asks:
        yield asks, server


async def ask(asks: HttpClient, url: str, method: str = "GET", body: bytes = b"") -> HttpAnswer:
    return await asks.exchange(Outgoing(method, url, body, {}))


async def failure(asks: HttpClient, url: str, method: str = "GET") -> tuple[str, bool]:
    """The reason, and whether somebody may have seen the request."""
    outgoing = Outgoing(method, url, b"", {})
    with pytest.raises(HttpFailed) as caught:
        await asks.exchange(outgoing)
    return caught.value.reason, outgoing.sent


# --- answers ---

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n"


@each(
    ("method", "reply", "status", "body"),
    [
        ("GET", answer("200 OK", b"abc"), 200, b"abc"),
        ("POST", answer("500 Oh", b"abc"), 500, b"abc"),
        ("GET", CHUNKED + b"\r\n", 200, b"abcde"),
        ("GET", CHUNKED + b"a: 2\r\nLocation: /x\r\n\r\n", 200, b"abcde"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, b""),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, b""),
        ("GET", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"
         + answer("200 OK", b"abc"), 200, b"abc"),
    ],
)  # fmt: skip
async def test_the_connection_is_kept_after(
    method: str, reply: bytes, status: int, body: bytes
) -> None:
    async with asking(reply, OK_JSON, OK) as (asks, server):
        found = await ask(asks, server.url, method)
        assert (found.status, found.body) == (status, body)
        assert not {"link", "location"} & found.headers.keys()
        assert (await ask(asks, server.url)).body == b'{"a":1}'
        assert server.connections == 1


@each(
    ("method", "reply", "body"),
    [
        ("GET", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
        ("GET", b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
        ("GET", OK_JSON + OK_JSON, b'{"a":1}'),
        ("GET", OK_JSON + b"garbage", b'{"a":1}'),
        ("HEAD", OK_JSON, b""),
    ],
)
async def test_the_connection_is_not_kept_after(method: str, reply: bytes, body: bytes) -> None:
    async with asking(reply, answer("200 OK", b"next"), OK) as (asks, server):
        assert (await ask(asks, server.url, method)).body == body
        assert (await ask(asks, server.url)).body == b"next"
        assert server.connections == 2


async def test_an_answer_may_end_with_its_connection() -> None:
    async with asking(b"HTTP/1.1 200 OK\r\nX-A: b\r\n\r\nabc") as (asks, server):
        found = await ask(asks, server.url)
        assert found == (200, b"abc", {"x-a": "b"})


@each(
    ("reply", "reason"),
    [
        (HANG_UP, "the connection was closed without an answer"),
        (answer("200 OK", b"abc")[:-1], "the connection was closed before the answer was whole"),
        (CHUNKED, "the connection was closed before the answer was whole"),
        (b"HTTP/1.1 200 OK\r\nA: b", "the connection was closed before the answer was whole"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "the connection was closed before the answer was whole"),
        (b"garbage\r\n\r\n", "the answer is not HTTP"),
        (b"HTTP/1.1 101 Switch\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
         "the answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
         "the answer is not HTTP"),
        (answer("200 OK", b"x" * 101), "the answer has more than 100 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 101, "the answer has more than 100 bytes"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000,
         "the answer has too long a head, or too many chunks"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 100_000,
         "the answer has too long a head, or too many chunks"),
    ],
)  # fmt: skip
async def test_invalid_answers(reply: bytes, reason: str) -> None:
    async with asking(reply, bytes_max=100) as (asks, server):
        assert await failure(asks, server.url) == (reason, True)
        assert len(server.requests) == 1


async def test_an_answer_that_is_too_long_is_forgotten_at_once() -> None:
    """Python's collector, which finds it else, comes late."""
    replies = [answer("200 OK", b"x" * (8 << 20))] * 6
    async with asking(*replies, bytes_max=7 << 20) as (asks, server):
        tracemalloc.start()
        for _ in replies:
            await failure(asks, server.url)
        held_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert held_bytes < 20 << 20


# --- connections that were kept ---


@each("method", ["GET", "HEAD"])
async def test_safe_requests_are_retried_once(method: str) -> None:
    async with asking(OK, HANG_UP, OK, HANG_UP, HANG_UP, OK) as (asks, server):
        await ask(asks, server.url)
        assert (await ask(asks, server.url, method)).status == 200
        assert (len(server.requests), server.connections) == (3, 2)
        await failure(asks, server.url, method)
        assert len(server.requests) == 5


@each(("method", "reply"), [("POST", HANG_UP), ("PUT", HANG_UP), ("GET", b"HTTP/1.1 2")])
async def test_unsafe_requests_are_not_retried(method: str, reply: bytes) -> None:
    async with asking(OK, reply) as (asks, server):
        await ask(asks, server.url)
        reason, sent = await failure(asks, server.url, method)
        assert (reason[:25], sent) == ("the connection was closed", True)
        assert server.connections == 1


async def test_an_unsolicited_answer_ends_the_connection() -> None:
    async with asking(OK, OK, OK) as (asks, server):
        await ask(asks, server.url)
        assert server.writer is not None
        server.writer.write(OK)
        await server.ended.wait()
        assert (await ask(asks, server.url, "POST")).status == 200


async def test_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "_IDLE_SECONDS", 0.05)
    async with asking(OK, OK) as (asks, server):
        await ask(asks, server.url)
        await server.ended.wait()


async def test_no_connection_is_kept_where_none_is_wanted() -> None:
    async with asking(OK, OK, OK, keeps_connections=False) as (asks, server):
        for _ in range(2):
            await ask(asks, server.url)
        assert server.connections == 2
        assert all(b"\r\nConnection: close\r\n" in one for one in server.requests)


# --- many, and requests that end early ---


async def test_many_at_once() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await asyncio.sleep(0)
                writer.write(answer("200 OK", head.split()[1]))

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, client() as asks:
        for _ in range(3):
            paths = [f"/{number}" for number in range(100)]
            found = await asyncio.gather(*(ask(asks, url + path) for path in paths))
            assert [one.body.decode() for one in found] == paths
            assert len(asks._open) == 100


async def test_a_request_that_is_given_up_ends_its_connection() -> None:
    async with asking(None, OK) as (asks, server):
        task = asyncio.create_task(ask(asks, server.url))
        while not server.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        await server.ended.wait()
        assert (await ask(asks, server.url)).status == 200


async def test_requests_fail_at_the_close() -> None:
    async with asking(None) as (asks, server):
        task = asyncio.create_task(failure(asks, server.url))
        while not server.requests:
            await asyncio.sleep(0.01)
        asks.close()
        assert await task == ("the connection was closed without an answer", True)


async def test_an_answer_before_the_request_was_whole() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(answer("413 Too Large", b""))
        await ended.wait()
        writer.close()

    ended = asyncio.Event()
    server = await asyncio.start_server(refuse, "127.0.0.1", 0, limit=1)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, client() as asks:
        assert (await ask(asks, url, "POST", bytes(20 << 20))).status == 413
        assert not asks._idle
        ended.set()


# --- connecting ---


@contextmanager
def unanswered() -> Iterator[tuple[str, int]]:
    """An address where connections are not refused, and not made either: its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        with socket.create_connection(address), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(address)
            yield address


async def test_no_server() -> None:
    with unanswered() as (host, port):
        async with client(connect_s=0.1) as asks:
            assert await failure(asks, f"http://{host}:{port}") == ("timed out", False)


async def test_an_invalid_host_name() -> None:
    async with client() as asks:
        reason, sent = await failure(asks, "http://a..b/")
        assert (reason.partition(": ")[0], sent) == ("cannot connect to a..b:80", False)


async def test_the_address_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One refuses, one says nothing, and one answers."""
    with unanswered() as silent:
        async with asking(OK) as (asks, server):
            given = [("127.0.0.1", kept_port()), silent, ("127.0.0.1", server.port)]

            async def found(*_: Any) -> list[Any]:
                return [(socket.AF_INET, address) for address in given]

            monkeypatch.setattr(http_client, "_addresses", found)
            assert (await ask(asks, "http://name/")).status == 200
            given.pop()
            given[1] = ("127.0.0.1", kept_port())
            expected = ("cannot connect to other:80: Connection refused", False)
            assert await failure(asks, "http://other/") == expected


async def test_families_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    six, four = socket.AF_INET6, socket.AF_INET
    given = [(six, 0, 0, "", ("a", 1)), (six, 0, 0, "", ("b", 1)), (four, 0, 0, "", ("c", 1))]

    async def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        return given

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    found = await http_client._addresses("name", 1)
    assert [address[0] for _, address in found] == ["a", "c", "b"]


async def test_ipv6() -> None:
    async with client() as asks:
        port = kept_port()
        reason, sent = await failure(asks, f"http://[::1]:{port}/")
        assert (reason.rpartition(": ")[0], sent) == (f"cannot connect to [::1]:{port}", False)
        try:
            server = await Server(OK, host="::1").__aenter__()
        except OSError:
            pytest.skip("this machine has no IPv6")
        assert (await ask(asks, server.url)).status == 200
        assert f"Host: [::1]:{server.port}\r\n".encode() in server.requests[0]
        await server.__aexit__()


# --- TLS ---


async def test_tls_checks_who_answers() -> None:
    authority = trustme.CA()
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(served)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with Server(OK, OK, OK, tls=served) as server:
        named = f"https://localhost:{server.port}/"
        async with client(tls=trusting) as asks:
            for _ in range(2):
                assert (await ask(asks, named)).status == 200
            assert len(asks._open) == 1
            reason, sent = await failure(asks, server.url)
            assert reason.startswith(f"cannot connect to 127.0.0.1:{server.port}: ")
            assert "IP address mismatch" in reason
            assert not sent
        fetcher = Fetcher(keeps_connections=False)
        with pytest.raises(FetchFailed, match="certificate verify failed") as caught:
            await fetcher.request("GET", named)
        assert not caught.value.sent
        fetcher.tls = trusting
        assert (await fetcher.request("GET", named)).status == 200
        await fetcher.close()
