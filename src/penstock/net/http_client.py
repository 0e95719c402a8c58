"""Connections of an HTTP/1.1 client: dialled, used for one exchange after another, kept for the
next, closed.

An answer is read whole, and its bytes are bounded: the body, and what comes with it that is none
of it. It ends by its length, by its last chunk, or with the connection.

A server may close a connection that nothing goes over, just as a request is on its way to it. A
request that changes nothing is then sent again, once and over a new connection. Any other is not:
the server may have seen it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio.staggered import staggered_race
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, zip_longest
from typing import Any
from weakref import WeakSet

import httptools

from penstock import limits
from penstock.net.incoming import framing_max
from penstock.net.outgoing import (
    NO_ANSWER,
    NO_CERTIFICATE,
    HttpAnswer,
    HttpFailed,
    Origin,
    Outgoing,
    words_of,
)

_IDLE_SECONDS = limits.FETCH_IDLE_NS / limits.SECOND
_HURRY_SECONDS = limits.FETCH_NEXT_ADDRESS_NS / limits.SECOND


class _Answer:
    """The input of one request. `done` receives it, or HttpFailed."""

    def __init__(self, method: str, bytes_max: int) -> None:
        self.done: asyncio.Future[HttpAnswer] = asyncio.get_running_loop().create_future()
        self.begun = False
        self.keeps_connection = False
        self._has_body = method != "HEAD"
        self._bytes_max = bytes_max
        self._status = 0  # stays so until the last head: before it come those of 1xx
        self._headers: dict[str, str] = {}
        self.parts: list[bytes] = []
        self._body_bytes = 0
        self._bytes = 0
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        if self.done.done():
            self.keeps_connection = False
            return
        self.begun = True
        self._bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.fail("the answer is not HTTP")
        if self._bytes - self._body_bytes > framing_max(self._body_bytes):
            self.fail("the answer has too long a head, or too many chunks")

    def end(self, error: Exception | None, is_secure: bool) -> None:
        """No more input follows."""
        if self._status and not {"content-length", "transfer-encoding"} & self._headers.keys():
            self._finish()
        elif isinstance(error, OSError):
            self.fail(words_of(error))
        elif self.begun:
            self.fail("the connection was closed before the answer was whole")
        else:
            self.fail(NO_CERTIFICATE if is_secure else NO_ANSWER)

    def fail(self, reason: str) -> None:
        self.keeps_connection = False
        if not self.done.done():
            self.done.set_exception(HttpFailed(reason, self._status))

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(HttpAnswer(self._status, b"".join(self.parts), self._headers))

    # --- callbacks of the parser ---

    def on_message_begin(self) -> None:
        if self.done.done():
            self.keeps_connection = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._status:  # else it is a trailer
            self._headers[name.decode("latin-1").lower()] = value.decode("utf-8", "surrogateescape")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self._status = status
            self.keeps_connection = self._parser.should_keep_alive()
            if not self._has_body:
                self._finish()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > self._bytes_max:
            self.fail(f"the answer has more than {self._bytes_max} bytes")
        elif self.done.done():
            self.keeps_connection = False
        else:
            self.parts.append(body)

    def on_message_complete(self) -> None:
        if self._status:
            self._finish()
        else:
            self._headers.clear()


class _Connection(asyncio.Protocol):
    def __init__(self, connections: WeakSet[_Connection]) -> None:
        self._connections = connections
        self._answer: _Answer | None = None
        self.expiry: asyncio.TimerHandle  # while it is idle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None:
            self._answer.end(error, self._transport.get_extra_info("sslcontext") is not None)
        self._connections.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self._transport.abort()  # nobody has asked
        else:
            self._answer.feed(data)

    async def exchange(self, data: bytes, answer: _Answer) -> HttpAnswer:
        self._answer = answer
        self._transport.write(data)
        try:
            return await answer.done
        finally:
            self._answer = None
            answer.parts.clear()  # else they stay until the collector finds it and its parser

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    @property
    def has_sent_all(self) -> bool:
        return not self._transport.get_write_buffer_size()

    def close(self) -> None:
        self._transport.abort()  # everything that matters is said


@dataclass(eq=False)
class HttpClient:
    """`tls` of a secure origin, for new connections; None: the system's authorities. Used from one
    event loop."""

    tls: ssl.SSLContext | None
    _connect_s: float
    _bytes_max: int
    _keeps_connections: bool
    # Weak: one whose time was up as it connected is closed by the loop without a word.
    _open: WeakSet[_Connection] = field(default_factory=WeakSet)
    _idle: dict[Origin, list[_Connection]] = field(default_factory=dict)

    async def exchange(self, outgoing: Outgoing) -> HttpAnswer:
        """Raises HttpFailed."""
        data = outgoing.encode(self._keeps_connections)
        answer = _Answer(outgoing.method, self._bytes_max)
        connection = self._take_idle(outgoing.origin)
        if connection is not None:
            try:
                return await self._exchange(connection, outgoing, data, answer)
            except HttpFailed:
                if answer.begun or outgoing.method not in ("GET", "HEAD"):
                    raise
            answer = _Answer(outgoing.method, self._bytes_max)
        connection = await self._connect(outgoing.origin)
        return await self._exchange(connection, outgoing, data, answer)

    async def _exchange(
        self, connection: _Connection, outgoing: Outgoing, data: bytes, answer: _Answer
    ) -> HttpAnswer:
        if not connection.is_open:
            raise HttpFailed(NO_ANSWER)
        outgoing.sent = True
        is_reusable = False
        try:
            fetched = await connection.exchange(data, answer)
            is_reusable = self._keeps_connections and answer.keeps_connection
        finally:
            if is_reusable and connection.is_open and connection.has_sent_all:
                self._keep(outgoing.origin, connection)
            else:
                connection.close()
        return fetched

    def close(self) -> None:
        """Requests that are on their way fail."""
        for connection in list(self._open):
            connection.close()
        for connection in chain.from_iterable(self._idle.values()):
            connection.expiry.cancel()
        self._idle.clear()

    # --- connections that wait for the next request ---

    def _take_idle(self, origin: Origin) -> _Connection | None:
        """The most recently used one: the least likely to be closed by the server."""
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle[-1]
            self._forget(origin, connection)
            if connection.is_open:
                return connection
        return None

    def _keep(self, origin: Origin, connection: _Connection) -> None:
        self._idle.setdefault(origin, []).append(connection)
        loop = asyncio.get_running_loop()
        connection.expiry = loop.call_later(_IDLE_SECONDS, self._expire, origin, connection)

    def _expire(self, origin: Origin, connection: _Connection) -> None:
        self._forget(origin, connection)
        connection.close()

    def _forget(self, origin: Origin, connection: _Connection) -> None:
        connection.expiry.cancel()
        idle = self._idle[origin]
        idle.remove(connection)
        if not idle:
            del self._idle[origin]

    # --- new ones ---

    async def _connect(self, origin: Origin) -> _Connection:
        tls: dict[str, Any] = {}
        if origin.secure:
            tls = {"ssl": self.tls or _system_tls(), "server_hostname": origin.host.rstrip(".")}
        try:
            async with asyncio.timeout(self._connect_s or None):
                sock = await _dial(origin.host, origin.port)
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self._open), sock=sock, **tls
                )
        except TimeoutError as error:
            raise HttpFailed("timed out") from error
        except (OSError, UnicodeError) as error:
            raise HttpFailed(f"cannot connect to {origin}: {words_of(error)}") from error
        return connection


@cache
def _system_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


Address = tuple[socket.AddressFamily, tuple[Any, ...]]


async def _dial(host: str, port: int) -> socket.socket:
    """Happy eyeballs (RFC 8305): of several addresses, the first that answers; each gets a little
    time before the next is tried. uvloop's `create_connection` tries one after another."""
    attempts = [partial(_dial_one, *address) for address in await _addresses(host, port)]
    if len(attempts) == 1:
        return await attempts[0]()
    sock, _, errors = await staggered_race(attempts, _HURRY_SECONDS)
    if isinstance(sock, socket.socket):
        return sock
    raise OSError(", ".join(dict.fromkeys(words_of(error) for error in errors if error)))


async def _addresses(host: str, port: int) -> list[Address]:
    """The families take turns: one of them may lead nowhere."""
    try:
        found = socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST, type=socket.SOCK_STREAM)
    except OSError:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, flags=socket.AI_ADDRCONFIG, type=socket.SOCK_STREAM
        )
    families: dict[socket.AddressFamily, list[Address]] = {}
    for family, _, _, _, address in found:
        families.setdefault(family, []).append((family, address))
    return [one for one in chain.from_iterable(zip_longest(*families.values())) if one is not None]


async def _dial_one(family: socket.AddressFamily, address: tuple[Any, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
