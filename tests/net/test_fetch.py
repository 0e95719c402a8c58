"""Outgoing HTTP against a server that answers what it is told to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cases import each
from net.scripted import OK_JSON, Server, answer
from penstock import limits
from penstock.errors import FetchFailed
from penstock.net.fetch import Fetcher, public, without_password

MS = limits.MS


async def failure(fetcher: Fetcher, url: str) -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        await fetcher.get_json(url)
    return caught.value


@asynccontextmanager
async def asking(*replies: bytes | None, **options: Any) -> AsyncIterator[tuple[Fetcher, Server]]:
    """A fetcher with these options, and a server with these replies."""
    fetcher = Fetcher(**options)
    try:
        async with Server(*replies) as server, asyncio.timeout(40):
            yield fetcher, server
    finally:
        await fetcher.close()


async def test_post_json() -> None:
    async with asking(OK_JSON, answer("200 OK", b"")) as (fetcher, server):
        assert await fetcher.post_json(server.url + "/x", {"a": [1]}) == {"a": 1}
        assert await fetcher.post_json(server.url + "/x", {}) is None
        assert server.requests[0].endswith(b'\r\n\r\n{"a":[1]}')
        assert b"Content-Type: application/json\r\n" in server.requests[0]


@each(
    ("reply", "status", "reason"),
    [
        (answer("404 Not Found", b'{"message":"TOPIC_NOT_FOUND"}'), 404,
         "got response 404 TOPIC_NOT_FOUND"),
        (answer("500 Oh", b"x"), 500, "got response 500"),
        (answer("403 Forbidden", b"[]"), 403, "got response 403"),
        (answer("403 Forbidden", b'{"https_port":0}'), 403, "got response 403"),
        (answer("403 Forbidden", b'{"https_port":true}'), 403, "got response 403"),
        (answer("200 OK", b"{"), 200, "the answer is not JSON"),
        (answer("200 OK", b"[" * 100_000), 200, "the answer is not JSON"),
        (answer("200 OK", b""), 200, "the answer is not JSON"),
    ],
)  # fmt: skip
async def test_invalid_documents(reply: bytes, status: int, reason: str) -> None:
    async with asking(reply) as (fetcher, server):
        error = await failure(fetcher, server.url + "/path?secret=1")
        assert (error.status, error.reason) == (status, reason)
        assert error.url == server.url + "/path"
        assert "secret" not in str(error)


async def test_silence_ends_by_the_clock() -> None:
    async with asking(None, request_timeout_ns=800 * MS) as (fetcher, server):
        error = await failure(fetcher, server.url)
        assert (error.reason, error.sent) == ("timed out", True)


async def test_a_redirect_is_followed() -> None:
    there = b"HTTP/1.1 307 There\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n"
    async with asking(there, OK_JSON) as (fetcher, server):
        assert await fetcher.post_json(server.url + "/x", {"a": 1}) == {"a": 1}
        assert server.requests[1].startswith(b"POST /there HTTP/1.1\r\n")
        assert server.requests[1].endswith(b'{"a":1}')


async def test_a_url_that_cannot_be_one() -> None:
    error = await failure(Fetcher(), "ftp://h/x?secret=s3cret")
    assert str(error) == "ftp://h/x: not an http or https URL"
    assert not error.sent


async def test_an_endless_redirect_shows_no_secret() -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: /x?token=s3cret\r\nContent-Length: 0\r\n\r\n"
    async with asking(*[head] * 20) as (fetcher, server):
        error = await failure(fetcher, server.url + "/?secret=s3cret")
        assert "s3cret" not in str(error)
        assert error.reason == "more than 10 redirects"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://u:secret@h:1/auth?a=b@c", "http://u:***@h:1/auth?a=b@c"),
        (
            "nsqd\0--auth-http-address=https://u:s%40t@h\0x",
            "nsqd\0--auth-http-address=https://u:***@h\0x",
        ),
        ("http://u@h and h:4151", "http://u@h and h:4151"),
        ("http://h:80/a:b@c", "http://h:80/a:b@c"),
    ],
)
def test_passwords_are_not_shown(text: str, shown: str) -> None:
    assert without_password(text) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://u:p@host:1/a?secret=x#f", "http://host:1/a"),
        ("https://[::1]:2/", "https://[::1]:2/"),
        ("http://[::1", "a malformed URL"),
    ],
)
def test_urls_are_redacted_for_logs(url: str, shown: str) -> None:
    assert public(url) == shown
