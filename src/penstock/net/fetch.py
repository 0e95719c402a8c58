"""Outgoing HTTP: what a daemon or a tool asks of other daemons' HTTP APIs.

`aiohttp` does the work and is imported when the first request is made, so that a process that
never asks anything never pays for it. Time and size are bounded: connecting, the whole request,
and the bytes of the answer that are read.

A daemon that requires TLS answers plain HTTP with a 403 that names its HTTPS port; such a request
is sent once more, there.

URLs are sent as they are given, so the caller quotes what it puts in. Errors name the URL without
its query and without a password, because either may be a secret that must not reach a log.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from penstock import limits
from penstock.errors import FetchFailed

if TYPE_CHECKING:
    import aiohttp

Headers = Mapping[str, str]

ACCEPT = {"Accept": "application/vnd.nsq; version=1.0"}


class Fetched(NamedTuple):
    """An answer, whatever its status."""

    status: int
    body: bytes
    headers: dict[str, str]  # names in lower case


class Fetcher:
    """`tls` is for https; None: the system's authorities. Used from one event loop."""

    def __init__(
        self,
        connect_timeout_ns: int = limits.FETCH_CONNECT_NS,
        request_timeout_ns: int = limits.FETCH_REQUEST_NS,
        tls: ssl.SSLContext | None = None,
        answer_bytes_max: int = limits.FETCH_BYTES_MAX,
        keeps_connections: bool = True,
    ) -> None:
        """Who asks rarely keeps no connection: a server hangs up on idle ones, and a POST that runs
        into that cannot just be sent again."""
        self._connect_timeout_ns = connect_timeout_ns
        self._request_timeout_ns = request_timeout_ns
        self.tls = tls  # may be set until the first request
        self._answer_bytes_max = answer_bytes_max
        self._keeps_connections = keeps_connections
        self._session: aiohttp.ClientSession | None = None

    def prepare(self) -> None:
        """Import the library now: it takes a tenth of a second, which no client should wait."""
        import aiohttp  # noqa: F401

    async def get_json(self, url: str, headers: Headers | None = None) -> Any:
        """The document of a 200. Raises FetchFailed for everything else."""
        return self._document(url, await self.request("GET", url, headers=headers))

    async def post_json(
        self, url: str, document: Any = None, headers: Headers | None = None
    ) -> Any:
        """POST `document` as JSON (nothing when it is None). The document of the answer, None when
        it has no body. Raises FetchFailed unless the status is 200."""
        body = b""
        if document is not None:
            body = json.dumps(document, separators=(",", ":")).encode()
            headers = {"Content-Type": "application/json", **(headers or {})}
        answer = await self.request("POST", url, body, headers)
        return None if answer.status == 200 and not answer.body else self._document(url, answer)

    async def request(
        self, method: str, url: str, body: bytes = b"", headers: Headers | None = None
    ) -> Fetched:
        """One request, whatever the status of the answer. Raises FetchFailed when there is none."""
        answer = await self._request(method, url, body, headers)
        secure = _https_url(url, answer)
        return answer if secure is None else await self._request(method, secure, body, headers)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _document(self, url: str, answer: Fetched) -> Any:
        if answer.status != 200:
            reason = f"got response {answer.status}{_message(answer)}"
            raise FetchFailed(public(url), reason, answer.status)
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise FetchFailed(public(url), "the answer is not JSON", answer.status) from error

    async def _request(
        self, method: str, url: str, body: bytes, headers: Headers | None
    ) -> Fetched:
        import aiohttp
        import yarl

        try:
            async with self._open_session().request(
                method,
                yarl.URL(url, encoded=True),
                data=body or None,
                headers={**ACCEPT, **(headers or {})},
            ) as response:
                read = await self._read(url, response)
                named = {name.lower(): value for name, value in response.headers.items()}
                return Fetched(response.status, read, named)
        except TimeoutError as error:
            sent = not isinstance(error, aiohttp.ConnectionTimeoutError)
            raise FetchFailed(public(url), "timed out", sent=sent) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            sent = not isinstance(error, aiohttp.ClientConnectorError)
            raise FetchFailed(public(url), _reason(error, url), sent=sent) from error

    async def _read(self, url: str, response: aiohttp.ClientResponse) -> bytes:
        """The body, unless it is longer than we are ready to hold."""
        parts = []
        left = self._answer_bytes_max
        async for part in response.content.iter_chunked(limits.FETCH_READ_BYTES):
            left -= len(part)
            if left < 0:
                reason = f"the answer has more than {self._answer_bytes_max} bytes"
                raise FetchFailed(public(url), reason, response.status)
            parts.append(part)
        return b"".join(parts)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=True if self.tls is None else self.tls,
                    limit=0,  # waiting for a free connection would count as time of the request
                    force_close=not self._keeps_connections,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(
                    total=self._request_timeout_ns / limits.SECOND,
                    sock_connect=self._connect_timeout_ns / limits.SECOND,
                ),
            )
        return self._session


_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):[^/@\s]*@")


def without_password(text: str) -> str:
    """`text`, which may hold URLs, as anybody may see it."""
    return _PASSWORD.sub(r"\1:***@", text)


def public(url: str) -> str:
    """`url` as a log may show it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a malformed URL"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _https_url(url: str, answer: Fetched) -> str | None:
    """Where a plain request is to be sent again, when the answer says so."""
    if answer.status != 403 or not url.startswith("http://"):
        return None
    try:
        port = json.loads(answer.body)["https_port"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    if type(port) is not int or not 0 < port < 65536:
        return None
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return urlunsplit(("https", f"{user}{host}:{port}", parts.path, parts.query, ""))


def _message(answer: Fetched) -> str:
    """The code of NSQ's error form, where the answer has it."""
    try:
        message = json.loads(answer.body)["message"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return ""
    return f" {message}" if isinstance(message, str) else ""


def _reason(error: Exception, url: str) -> str:
    """What went wrong, in the words of the library unless they may repeat the URL, or one that the
    server has made from it."""
    import aiohttp

    is_tls = isinstance(error, aiohttp.ClientSSLError)
    if isinstance(error, aiohttp.ClientConnectorError) and not is_tls:
        host = f"[{error.host}]" if ":" in error.host else error.host
        return f"cannot connect to {host}:{error.port}: {_words(error.os_error)}"
    text = str(error)
    query = url.partition("?")[2]
    names_url = (
        isinstance(error, aiohttp.ClientResponseError | aiohttp.InvalidURL)
        or url in text
        or "@" in url
        or (bool(query) and query in text)
    )
    return type(error).__name__ if names_url or not text else text


def _words(error: OSError) -> str:
    """ "Connection refused", without the numbers that asyncio puts around it."""
    if isinstance(error, socket.gaierror) or not error.errno or error.errno < 0:
        return error.strerror or str(error)
    return os.strerror(error.errno)


async def gather_json(fetcher: Fetcher, urls: list[str]) -> list[Any]:
    """Ask all at once. Each entry is the document or a FetchFailed."""
    results = await asyncio.gather(*(fetcher.get_json(url) for url in urls), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, FetchFailed):
            raise result
    return results
