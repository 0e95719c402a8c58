"""nsqd's HTTP listeners: plain, and over TLS."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from penstock import limits
from penstock.net.api import JSON, NSQ_HEADER
from penstock.net.exchange import Application, BodyRule, Request, Response
from penstock.net.http import HttpConnection
from penstock.net.incoming import Admit, BodyRoom
from penstock.net.listener import bound_address


class TlsOnly:
    """The plain listener's answer to everything when TLS is required: where to go instead."""

    def __init__(self, https_port: int) -> None:
        body = b'{"message": "TLS_REQUIRED", "https_port": %d}' % https_port
        self._response = Response(403, body, JSON, NSQ_HEADER)

    def body_rule(self, method: str, path: str) -> BodyRule:
        return BodyRule(limits.HTTP_DISCARD_BYTES_MAX, self._response._replace(closes=True))

    def serve(self, request: Request, answer: Callable[[Response], None]) -> None:
        answer(self._response)


class Web:
    """The connections of all HTTP listeners."""

    def __init__(self, loop: asyncio.AbstractEventLoop, body_bytes_max: int) -> None:
        """`body_bytes_max`: of one publish."""
        self._loop = loop
        self._servers: list[asyncio.AbstractServer] = []
        self._paths: list[Path] = []
        self._secure: list[
            tuple[asyncio.AbstractServer, socket.socket, Application, Admit | None]
        ] = []
        self.connections: set[HttpConnection] = set()
        self.room = BodyRoom(max(limits.HTTP_BODIES_BYTES_MAX, 2 * body_bytes_max))

    async def serve(
        self,
        sock: socket.socket,
        application: Application,
        admit: Admit | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        def connection() -> HttpConnection:
            return HttpConnection(application, self.connections, self.room, admit)

        again = sock.dup() if context is not None else None  # for a renewed certificate
        address = bound_address(sock)
        seconds = limits.TLS_HANDSHAKE_NS / limits.SECOND if context is not None else None
        create: Callable[..., Awaitable[asyncio.AbstractServer]] = self._loop.create_server
        if address.path:
            self._paths.append(Path(address.path))
            create = self._loop.create_unix_server
        server = await create(connection, sock=sock, ssl=context, ssl_handshake_timeout=seconds)
        self._servers.append(server)
        if again is not None:
            self._secure.append((server, again, application, admit))

    async def renew(self, context: ssl.SSLContext) -> None:
        """New connections get `context`; present ones keep theirs. The socket listens all the
        time."""
        secure, self._secure = self._secure, []
        for server, sock, application, admit in secure:
            await self.serve(sock, application, admit, context)
            self._servers.remove(server)
            server.close()

    @property
    def is_serving(self) -> bool:
        return any(connection.is_serving for connection in self.connections)

    def close(self) -> None:
        """Listen no more."""
        for server in self._servers:
            server.close()
        for _, sock, *_ in self._secure:
            sock.close()
        self._secure.clear()
        for path in self._paths:
            path.unlink(missing_ok=True)

    def stop(self) -> None:
        for connection in list(self.connections):
            connection.stop()

    def abort(self) -> None:
        for connection in list(self.connections):
            connection.abort()
