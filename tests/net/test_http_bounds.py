"""Slow clients, endless ones, and many at once: what the HTTP server grants them."""

import asyncio
import json

import pytest

from cases import each, within
from penstock import limits
from penstock.net import http, incoming
from penstock.net.exchange import Response
from penstock.net.incoming import BodyRoom, RequestHead, heads_of, remember
from penstock.net.query import QueryInvalid, parse_query, whole_number

from .httpserver import Server, serving, until


@within(serving)
async def test_a_head_has_its_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "_HEAD_SECONDS", 0.3)
    async with server.client() as silent, server.client() as late, server.client() as kept:
        assert await kept.body(b"GET / HTTP/1.1\r\n\r\n") == b"GET / "
        late.writer.write(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\nHost:")
        assert await late.body() == b"GET /a "
        assert (await late.rest()).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert await silent.rest() == b""
        assert await kept.body(b"GET / HTTP/1.1\r\n\r\n") == b"GET / "  # it may be idle longer


@within(serving)
async def test_pipelined_requests_leave_others_their_turn(server: Server) -> None:
    async with server.client() as many, server.client() as other:
        many.writer.write(b"GET /a HTTP/1.1\r\n\r\n" * 1000)
        assert await other.body(b"GET /b HTTP/1.1\r\n\r\n") == b"GET /b "
        assert len(server.app.requests) < 1000


@pytest.mark.parametrize(
    ("begin", "drops"),
    [
        (b"\r\nX:", b"x" * 40),
        (b"\r\nContent-Length: 99\r\n\r\n", b"x" * 40),
        (b"\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 7),
        (b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: x\r\n", b"More: x\r\n" * 5),
    ],
    ids=["a head", "a body", "chunks", "trailers"],
)
@within(serving)
async def test_a_trickling_request_times_out(
    server: Server, monkeypatch: pytest.MonkeyPatch, begin: bytes, drops: bytes
) -> None:
    """Each byte comes in time for all that counts silence."""
    monkeypatch.setattr(incoming, "_HEAD_SECONDS", 0.2)
    monkeypatch.setattr(incoming, "_BODY_SECONDS", 0.3)
    async with server.client() as client:
        client.writer.write(b"POST / HTTP/1.1" + begin)

        async def trickle() -> None:
            for byte in drops:
                await asyncio.sleep(0.05)
                client.writer.write(bytes([byte]))

        trickling = asyncio.create_task(trickle())
        answer = await client.reader.readuntil(b"\r\n")
        assert answer == b"HTTP/1.1 408 Request Timeout\r\n"
        trickling.cancel()
    assert server.app.requests == []


@within(serving)
async def test_a_body_that_comes_fast_enough_has_all_the_time_it_needs(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "_HEAD_SECONDS", 0.1)
    monkeypatch.setattr(incoming, "_BODY_SECONDS", 0.2)
    monkeypatch.setattr(limits, "HTTP_RATE_BYTES_MIN", 20)
    async with server.client() as client:
        client.writer.write(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n")
        for _ in range(10):
            await asyncio.sleep(0.03)
            client.writer.write(b"xxxxx"[:1])
        assert await client.body() == b"POST / " + b"x" * 10


CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@each("begun", [
    b"GET / HTTP/1.1\r\n", CHUNKED + b"1;name=", CHUNKED + b"0\r\n", CHUNKED + b"0\r\nLong:",
    CHUNKED + b"1\r\nx\r\n0\r\n",
])  # fmt: skip
@within(serving)
async def test_headers_trailers_and_extensions_are_bounded(server: Server, begun: bytes) -> None:
    """Headers, trailers, one long trailer, a chunk's extension."""
    line = b"X-Header: " + b"x" * 1000 + b"\r\n"
    if begun.endswith((b"=", b":")):
        line = b"y" * 1000
    async with server.client() as client:
        client.writer.write(begun)
        for _ in range(limits.HTTP_HEADER_BYTES_MAX // len(line) + 300):
            client.writer.write(line)
            await asyncio.sleep(0)
        assert (await client.rest()).startswith(b"HTTP/1.1 431 ")


@within(serving)
async def test_draining_after_the_last_answer_is_bounded(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DRAIN_BYTES_MAX", 1 << 20)
    async with server.client() as client:
        client.writer.write(b"junk\r\n\r\n" + bytes(64 << 20))
        assert (await client.reader.readline()).startswith(b"HTTP/1.1 400 ")
        (connection,) = server.connections
        await until(lambda: connection._read_paused)
        assert connection._drained_bytes < 2 << 20
        await until(lambda: not server.connections)


@within(serving)
async def test_trailers_do_not_change_the_request(server: Server) -> None:
    async with server.client() as client:
        body = b"".join(b"1;a=b\r\n%c\r\n" % byte for byte in b"abcdefgh" * 12)
        end = b"0\r\nExpect: 100-continue\r\nX: y\r\n\r\n"
        for _ in range(3):
            assert await client.body(CHUNKED + body + end) == b"POST / " + b"abcdefgh" * 12


@within(serving)
async def test_the_bodies_of_all_connections_have_one_bound(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large ones end before small ones do, and room that is given back is there again."""
    monkeypatch.setattr(limits, "HTTP_BODY_SMALL_BYTES", 10)
    server.room = BodyRoom(200)
    async with (
        server.client() as first,
        server.client() as answered,
        server.client() as large,
        server.client() as small,
    ):
        post = b"POST %s HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
        first.writer.write(post % (b"/", 100) + b"x" * 90)
        answered.writer.write(post % (b"/later", 50) + b"x" * 50)
        await until(lambda: server.room.held_bytes == 140)
        large.writer.write(post % (b"/", 100) + b"x" * 20)
        status, headers, body = await large.response()
        assert (status, headers["Connection"]) == (503, "close")
        assert json.loads(body)["message"].startswith("FAILED ")
        assert server.room.held_bytes == 140
        assert await small.body(post % (b"/", 10) + b"x" * 10) == b"POST / " + b"x" * 10
        server.app.waiting.pop()()
        await answered.response()
        assert await small.body(post % (b"/", 60) + b"x" * 60) == b"POST / " + b"x" * 60
        assert server.room.held_bytes == 90


@within(serving)
async def test_known_heads_are_no_way_around_the_bound(server: Server) -> None:
    server.room = BodyRoom(60)
    async with server.client() as one, server.client() as other:
        head = b"POST /later HTTP/1.1\r\nContent-Length: 50\r\n\r\n"
        for client, count in ((one, 1), (other, 2)):
            client.writer.write(head + b"x" * 50)
            await until(lambda: bool(server.app.waiting))
            server.app.waiting.pop()()
            await client.response()
            assert len(server.app.requests) == count
        one.writer.write(head + b"x" * 50)
        await until(lambda: bool(server.app.waiting))
        other.writer.write(head + b"x" * 50)
        assert (await other.response())[0] == 503
        server.app.waiting.pop()()
        assert (await one.response())[0] == 200


@within(serving)
async def test_an_untaken_answer_is_dropped(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_IDLE_SECONDS", 0.3)
    large = Response(200, bytes(64 << 20))
    monkeypatch.setattr(server.app, "serve", lambda _, answer: answer(large))
    async with server.client() as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await until(lambda: bool(server.connections))
        await until(lambda: not server.connections)


@within(serving)
async def test_the_last_descriptors_are_not_for_connections(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "connections_end", lambda: 0)
    async with server.client() as client:
        client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"no descriptor left" in answer
    await until(lambda: not server.connections)
    assert server.app.requests == []


# --- what is remembered of heads, and for whom ---


class Ruler:
    """Whoever decides about requests: a listener's gate, or an application."""


HEAD = RequestHead("GET", "/a", b"", b"", 0, False)


def test_requests_are_bounded() -> None:
    ruler = Ruler()
    for number in range(limits.HTTP_HEADS_MAX + 1):
        remember(heads_of(ruler), b"%d" % number, HEAD)
    assert heads_of(ruler) == {b"%d" % limits.HTTP_HEADS_MAX: HEAD}


@each(
    ("query", "values"),
    [
        (b"", {}),
        (b"a=1&b=2", {"a": "1", "b": "2"}),
        (b"a=1&a=2", {"a": "1"}),
        (b"a", {"a": ""}),
        (b"a=&&=b", {"a": "", "": "b"}),
        (b"a=b=c", {"a": "b=c"}),
        (b"a=%20%2b+x", {"a": " + x"}),
        (b"%61=1", {"a": "1"}),
        (b"a=%ff", {"a": "\udcff"}),
        ("a=ä".encode(), {"a": "ä"}),
    ],
)
def test_parse(query: bytes, values: dict[str, str]) -> None:
    assert parse_query(query) == values


@each("query", [b"a=%", b"a=%2", b"%zz=1", b"a=1;b=2", b"a=%%20"])
def test_invalid_queries(query: bytes) -> None:
    with pytest.raises(QueryInvalid):
        parse_query(query)


@each(
    ("text", "number"),
    [
        ("0", 0),
        ("0" * 5000 + "99", 99),
        ("100", 100),
        ("101", None),
        ("9" * 5000, None),
        ("", None),
        ("-1", None),
        ("\u0663", None),
        ("1_0", None),
    ],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole_number(text, 100) == number
