"""The HTTP server, on real sockets, with an application that answers when it is told to."""

import asyncio
import socket
import struct

import pytest

from cases import each, within
from penstock import limits
from penstock.net import http

from .httpserver import SILENCE_S, Server, serving, until


@pytest.mark.parametrize(
    ("request_head", "answered"),
    [
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", "close"),
        (b"GET / HTTP/1.0\r\n\r\n", "close"),
        (b"GET /close HTTP/1.1\r\n\r\n", "close"),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "keep-alive"),
    ],
)
@within(serving)
async def test_the_side_that_closes(server: Server, request_head: bytes, answered: str) -> None:
    async with server.client() as client:
        client.writer.write(request_head + b"GET /second HTTP/1.1\r\n\r\n")
        _, headers, _ = await client.response()
        assert headers["Connection"] == answered
        if answered == "close":
            assert await client.rest() == b""
            assert len(server.app.requests) == 1
        else:
            assert await client.body() == b"GET /second "


@within(serving)
async def test_requests_that_may_be_served_together_are_and_answered_in_order(
    server: Server,
) -> None:
    async with server.client() as client:
        client.writer.write(
            b"GET /together/later HTTP/1.1\r\n\r\n" * 2
            + b"GET /together HTTP/1.1\r\n\r\nGET /alone HTTP/1.1\r\n\r\n"
            + b"GET /together/later HTTP/1.1\r\n\r\n"
        )
        await until(lambda: len(server.app.requests) >= 3)
        await asyncio.sleep(SILENCE_S)
        paths = [request.path for request in server.app.requests]
        assert paths == ["/together/later", "/together/later", "/together"]
        first, second = server.app.waiting
        second()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.reader.read(1), SILENCE_S)
        first()
        assert [await client.body() for _ in range(4)] == [
            b"GET /together/later ",
            b"GET /together/later ",
            b"GET /together ",
            b"GET /alone ",
        ]
        await until(lambda: len(server.app.waiting) == 3)
        server.app.waiting[2]()
        assert await client.body() == b"GET /together/later "


@within(serving)
async def test_an_answer_that_closes_drops_those_behind_it(server: Server) -> None:
    async with server.client() as client:
        client.writer.write(
            b"GET /together/later HTTP/1.1\r\n\r\n"
            b"GET /together/later HTTP/1.1\r\nConnection: close\r\n\r\n"
            b"GET /never HTTP/1.1\r\n\r\n"
        )
        await until(lambda: len(server.app.waiting) == 2)
        first, second = server.app.waiting
        first()
        second()
        assert (await client.rest()).count(b"200 OK") == 2


@pytest.mark.parametrize("step", [1, 10_000])
@pytest.mark.parametrize("offer", [b"", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"])
@within(serving)
async def test_a_request_is_whole_also_with_a_known_head_or_an_offer_to_upgrade(
    server: Server, offer: bytes, step: int
) -> None:
    head = b"POST /p HTTP/1.1\r\n" + offer + b"Host: h\r\nX-Mixed-CASE:  A b \r\nEmpty:\r\n"
    plain = head + b"Content-Length: 1\r\n\r\nx"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nTrailer: t\r\n\r\n"
    bare = b"GET /bare HTTP/1.1\r\n\r\n"
    stream = (plain + chunked + bare) * 2
    async with server.client() as client:
        for at in range(0, len(stream), step):
            client.writer.write(stream[at : at + step])
            await asyncio.sleep(0)
        await until(lambda: len(server.app.requests) == 6)
    for start in (0, 3):
        with_length, in_chunks, without = server.app.requests[start : start + 3]
        for request in (with_length, in_chunks):
            assert (request.body, request.header(b"x-mixed-case")) == (b"x", b"A b")
            assert request.header(b"empty") == b""
            assert request.header(b"trailer") is None
        assert with_length.header(b"content-length") == b"1"
        assert without.fields == b""


@within(serving)
async def test_many_pipelined_requests_stop_the_reading_and_are_served_one_at_a_time(
    server: Server,
) -> None:
    count = limits.HTTP_PIPELINE_MAX * 3
    async with server.client() as client:
        client.writer.write(b"GET /later HTTP/1.1\r\n\r\n")
        await until(lambda: bool(server.app.waiting))
        for number in range(count):
            client.writer.write(b"GET /%d HTTP/1.1\r\n\r\n" % number)
            await asyncio.sleep(0)
        await asyncio.sleep(SILENCE_S)
        assert [request.path for request in server.app.requests] == ["/later"]
        server.app.waiting.pop()()
        assert await client.body() == b"GET /later "
        assert [await client.body() for _ in range(count)] == [
            b"GET /%d " % number for number in range(count)
        ]


@within(serving)
async def test_expect_100_continue(server: Server) -> None:
    async with server.client() as client:
        head = b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        client.writer.write(head)
        assert await client.reader.readexactly(len(http.CONTINUE)) == http.CONTINUE
        assert await client.body(b"hi") == b"POST / hi"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 101\r\nExpect: 100-continue\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n" + b"x" * 300_000,
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 101,
    ],
)
@within(serving)
async def test_a_body_that_is_too_long_is_refused_and_the_connection_closed(
    server: Server, request_bytes: bytes
) -> None:
    async with server.client() as client:
        client.writer.write(request_bytes)
        status, headers, body = await client.response()
        assert (status, body, headers["Connection"]) == (413, b"too big", "close")
        assert await client.rest() == b""
    assert server.app.requests == []


@within(serving)
async def test_a_body_of_the_limit_is_taken(server: Server) -> None:
    async with server.client() as client:
        head = b"POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\n"
        assert await client.body(head + b"x" * 100) == b"POST / " + b"x" * 100


@each(
    "junk",
    [
        b"  V2IDENTIFY\n\0\0\0\2{}",
        b"\x16\x03\x01\x02\x00",
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
@within(serving)
async def test_bytes_that_are_not_http(server: Server, junk: bytes) -> None:
    async with server.client() as client:
        client.writer.write(junk)
        assert await client.rest() == (
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
            b"Connection: close\r\n\r\n400 Bad Request"
        )


@within(serving)
async def test_junk_after_a_request_does_not_affect_its_answer(server: Server) -> None:
    async with server.client() as client:
        client.writer.write(b"GET /later HTTP/1.1\r\n\r\n\0junk\0")
        await server.release()
        assert await client.body() == b"GET /later "
        assert (await client.rest()).startswith(b"HTTP/1.1 400 Bad Request")


@within(serving)
async def test_head_has_no_body(server: Server) -> None:
    async with server.client() as client:
        client.writer.write(b"HEAD / HTTP/1.1\r\n\r\n")
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert b"Content-Length: 7\r\n" in head
        assert await client.body(b"GET /v HTTP/1.1\r\n\r\n") == b"GET /v "


@within(serving)
async def test_a_half_closed_client_gets_its_answer(server: Server) -> None:
    async with server.client() as client:
        client.writer.write(b"GET /later HTTP/1.1\r\n\r\n")
        client.writer.write_eof()
        await server.release()
        assert await client.body() == b"GET /later "
        assert await client.rest() == b""


@within(serving)
async def test_answers_for_a_gone_client_are_dropped(server: Server) -> None:
    async with server.client() as client:
        client.writer.write(b"GET /later HTTP/1.1\r\n\r\n")
        await until(lambda: bool(server.app.waiting))
        sock = client.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.writer.transport.abort()  # with a reset: nobody will read an answer
    await until(lambda: not server.connections)
    server.app.waiting.pop()()


@within(serving)
async def test_an_idle_connection_is_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_IDLE_SECONDS", 0.8)
    async with server.client() as client, server.client() as slow:
        assert await client.body(b"GET / HTTP/1.1\r\n\r\n") == b"GET / "
        slow.writer.write(b"GET /later HTTP/1.1\r\n\r\n")
        assert await client.rest() == b""
        await asyncio.sleep(0.9)
        server.app.waiting.pop()()
        assert await slow.body() == b"GET /later "


@within(serving)
async def test_stop_lets_an_answer_out_and_closes_the_rest(server: Server) -> None:
    async with server.client() as busy, server.client() as idle:
        busy.writer.write(b"GET /later HTTP/1.1\r\n\r\n")
        await idle.body(b"GET / HTTP/1.1\r\n\r\n")
        await until(lambda: bool(server.app.waiting))
        for connection in list(server.connections):
            connection.stop()
        assert await idle.rest() == b""
        assert [connection.is_serving for connection in server.connections] == [True]
        server.app.waiting.pop()()
        _, headers, body = await busy.response()
        assert (headers["Connection"], body) == ("close", b"GET /later ")
        assert await busy.rest() == b""
