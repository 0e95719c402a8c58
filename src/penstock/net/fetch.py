"""Requests to the HTTP APIs of other daemons, within bounds of time and of bytes.

A daemon that requires TLS answers plain HTTP with a 403 that names its HTTPS port; such a request
is sent once more, there, and later ones at once. Credentials do not go out in clear text before it
is known that the daemon serves plain HTTP: it is asked for /ping first. Nor does anything else go
to a port of plain HTTP that was named by https.

URLs are sent as they are given, so the caller quotes what it puts in. Errors name the URL without
its query and without a password, because either may be a secret that must not reach a log.
"""

import asyncio
import json
import re
import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from penstock import limits
from penstock.errors import FetchFailed
from penstock.net.http_client import HttpClient
from penstock.net.outgoing import (
    NO_TLS,
    PLAIN_HTTP,
    REDIRECTS,
    Headers,
    HttpAnswer,
    HttpFailed,
    Outgoing,
    code_of,
    https_port,
)

ACCEPT = {"Accept": "application/vnd.nsq; version=1.0"}


@dataclass(eq=False)
class Fetcher:
    """`tls` is for https; None: the system's authorities. Used from one event loop."""

    connect_timeout_ns: int = limits.FETCH_CONNECT_NS
    request_timeout_ns: int = limits.FETCH_REQUEST_NS
    tls: ssl.SSLContext | None = None  # may be set anew
    answer_bytes_max: int = limits.FETCH_BYTES_MAX
    # Who asks rarely keeps no connection: a server hangs up on idle ones, and a POST that runs
    # into that cannot just be sent again.
    keeps_connections: bool = True
    _moved: dict[str, str] = field(default_factory=dict)  # origins: to https, or to themselves

    def __post_init__(self) -> None:
        connect_s = self.connect_timeout_ns / limits.SECOND
        self._client = HttpClient(
            self.tls, connect_s, self.answer_bytes_max, self.keeps_connections
        )

    async def get_json(self, url: str, headers: Headers | None = None) -> Any:
        """The document of a 200. Raises FetchFailed for everything else."""
        return self._document(url, await self.request("GET", url, headers=headers))

    async def post_json(self, url: str, document: Any) -> Any:
        """POST `document` as JSON. Returns the document of the answer, None when it has no body.
        Raises FetchFailed unless the status is 200."""
        body = json.dumps(document, separators=(",", ":")).encode()
        answer = await self.request("POST", url, body, {"Content-Type": "application/json"})
        return None if answer.status == 200 and not answer.body else self._document(url, answer)

    async def request(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        headers: Headers | None = None,
        credentials: str = "",
    ) -> HttpAnswer:
        """One request, whatever the status of the answer. `credentials` are for the header
        Authorization. Raises FetchFailed without an answer."""
        origin, path = _origin(url)
        if credentials:
            headers = {**(headers or {}), "Authorization": credentials}
            if origin.startswith("http://") and origin not in self._moved:
                await self._look(origin)
        at = self._moved.get(origin, origin)
        try:
            answer = await self._request(method, at + path, body, headers)
        except FetchFailed as error:
            self._moved.pop(origin, None)  # it may come back with other flags
            if at != origin or NO_TLS not in error.reason:
                raise
            if not await self._look(origin):
                raise FetchFailed(public(url), PLAIN_HTTP, sent=False) from error
            return await self._request(method, self._moved[origin] + path, body, headers)
        if at != origin or not (port := https_port(answer.status, answer.body)):
            return answer
        at = self._moved[origin] = _secure(origin, port)
        return await self._request(method, at + path, body, headers)

    async def _look(self, origin: str) -> bool:
        """Does it require TLS? Then it is known where, from now on."""
        try:
            plain = f"http://{origin.partition('://')[2]}/ping"
            answer = await self._request("GET", plain, b"", None)
        except FetchFailed as error:
            error.sent = False  # what was to be sent
            raise
        port = https_port(answer.status, answer.body)
        self._moved[origin] = _secure(origin, port) if port else origin
        return port > 0

    async def close(self) -> None:
        self._client.close()
        await asyncio.sleep(0)  # that is when the sockets are closed

    def _document(self, url: str, answer: HttpAnswer) -> Any:
        if answer.status != 200:
            reason = f"got response {answer.status} {code_of(answer.body)}".rstrip()
            raise FetchFailed(public(url), reason, answer.status)
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise FetchFailed(public(url), "the answer is not JSON", answer.status) from error

    async def _request(
        self, method: str, url: str, body: bytes, headers: Headers | None
    ) -> HttpAnswer:
        try:
            outgoing = Outgoing(method, url, body, {**ACCEPT, **(headers or {})})
        except HttpFailed as error:
            raise FetchFailed(public(url), error.reason, sent=False) from error
        try:
            async with asyncio.timeout(self.request_timeout_ns / limits.SECOND or None):
                return await self._follow(outgoing)
        except TimeoutError as error:
            raise FetchFailed(public(url), "timed out", sent=outgoing.sent) from error
        except HttpFailed as error:
            status, sent = error.status, outgoing.sent
            raise FetchFailed(public(url), error.reason, status, sent=sent) from error

    async def _follow(self, outgoing: Outgoing) -> HttpAnswer:
        self._client.tls = self.tls
        while True:
            answer = await self._client.exchange(outgoing)
            location = answer.headers.get("location")
            if answer.status not in REDIRECTS or location is None:
                return answer
            outgoing.redirect(answer.status, location)


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


def _origin(url: str) -> tuple[str, str]:
    """What stands before the path, and the path with its query."""
    found = re.search(r"(?<=[^:/])[/?#]", url)
    end = found.start() if found is not None else len(url)
    return url[:end], url[end:]


def _secure(origin: str, port: int) -> str:
    parts = urlsplit(origin)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return f"https://{user}{host}:{port}"


async def gather_json(fetcher: Fetcher, urls: list[str]) -> list[Any]:
    """Ask all at once. Each entry is the document or a FetchFailed."""
    results = await asyncio.gather(*(fetcher.get_json(url) for url in urls), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, FetchFailed):
            raise result
    return results
