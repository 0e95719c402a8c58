"""nsqd's HTTP listeners: plain, and over TLS."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from penstock import limits
from penstock.net.api import JSON, NSQ_HEADER
from penstock.net.exchange import Application, BodyRule, Request, Response
from penstock.net.http import HttpConnection
from penstock.net.incoming import Admit, BodyRoom
from penstock.net.listener import Acceptor, bound_address
from penstock.net.outgoing import words_of

log = logging.getLogger("penstock.nsqd")


_PLAIN = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


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
    def __init__(self, loop: asyncio.AbstractEventLoop, body_bytes_max: int) -> None:
        """`body_bytes_max`: of one publish."""
        self._loop = loop
        self._servers: list[asyncio.AbstractServer | Acceptor] = []
        self.connections: set[HttpConnection] = set()
        self.room = BodyRoom(max(limits.HTTP_BODIES_BYTES_MAX, 2 * body_bytes_max))

    async def serve(
        self,
        sock: socket.socket,
        application: Application,
        admit: Admit | None = None,
        context: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        """`context` is asked for each connection: a certificate may be renewed."""

        def connection() -> HttpConnection:
            return HttpConnection(application, self.connections, self.room, admit)

        async def shake(accepted: socket.socket, remote: str) -> None:
            tls = context()
            seconds = limits.TLS_HANDSHAKE_NS / limits.SECOND if tls is not None else None
            with suppress(OSError), accepted.dup() as again:  # a failure closes the other
                try:
                    await self._loop.connect_accepted_socket(
                        connection, accepted, ssl=tls, ssl_handshake_timeout=seconds
                    )
                except OSError as error:
                    log.info("HTTPS(%s): TLS handshake failed: %s", remote, words_of(error))
                    if getattr(error, "reason", "") == "HTTP_REQUEST":
                        again.send(_PLAIN)

        def take(accepted: socket.socket, remote: str) -> None:
            self._loop.create_task(shake(accepted, remote))

        if context() is not None or bound_address(sock).path:
            self._servers.append(Acceptor(self._loop, sock, take))
        else:
            self._servers.append(await self._loop.create_server(connection, sock=sock))

    @property
    def is_serving(self) -> bool:
        return any(connection.is_serving for connection in self.connections)

    def close(self) -> None:
        """Listen no more."""
        for server in self._servers:
            server.close()

    def stop(self) -> None:
        for connection in list(self.connections):
            connection.stop()

    def abort(self) -> None:
        for connection in list(self.connections):
            connection.abort()
