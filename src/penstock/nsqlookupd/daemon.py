"""nsqlookupd put together: registry, TCP connections, HTTP, and how they start and stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import __version__, limits
from penstock.clock import SystemClock
from penstock.command.program import version_line
from penstock.net.api import Admission
from penstock.net.gate import Gate
from penstock.net.http import HttpConnection
from penstock.net.incoming import BodyRoom
from penstock.net.listener import (
    ListenAddress,
    bound_address,
    close_listener,
    keep_alive,
    listen,
    peer_text,
)
from penstock.net.secret_file import read_secrets
from penstock.nsqlookupd.options import Options
from penstock.nsqlookupd.protocol import Client
from penstock.nsqlookupd.registry import Registry
from penstock.nsqlookupd.routes import Routes

if TYPE_CHECKING:
    from penstock.nsqlookupd.cluster import ClusterLookup

log = logging.getLogger("penstock.nsqlookupd")


class Connection(asyncio.BufferedProtocol):
    """Moves the bytes of one TCP connection. A client that does not read is not read either."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._client: Client  # from the first moment on
        self._transport: asyncio.Transport
        self._remote = ""
        self._input = bytearray(limits.KIB)  # filled up to 32 times in a turn
        self._drained_bytes = 0  # that came after the last answer
        self._timer: asyncio.TimerHandle | None = None  # for the magic, then for the end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        sock = transport.get_extra_info("socket")
        self._remote = peer_text(sock, transport.get_extra_info("peername"))
        keep_alive(sock)
        log.info("TCP: new client(%s)", self._remote)
        self._client = Client(self._daemon.registry, self._remote, self._daemon.about)
        self._daemon.connections.add(self)
        self._arm(limits.LOOKUP_MAGIC_NS, self._check_greeting)

    def _arm(self, wait_ns: int, act: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(wait_ns / limits.SECOND, act)

    def _check_greeting(self) -> None:
        """An nsqd stays connected, and sends something every few seconds; others need not stay."""
        if not self._client.greeted:
            self.close()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._input

    def buffer_updated(self, nbytes: int) -> None:
        if not self._client.closed:
            self._send(self._client.feed(self._input[:nbytes]))
            return
        self._drained_bytes += nbytes
        if self._drained_bytes > limits.LOOKUP_DRAIN_BYTES_MAX:
            self.close()

    def eof_received(self) -> bool:
        self._send(self._client.end())
        return False  # the transport sends what is queued, then closes

    def _send(self, answers: bytes) -> None:
        if answers:
            self._transport.write(answers)
        if self._client.closed:
            self._half_close()

    def _half_close(self) -> None:
        """Further input is read and dropped for a moment, or a reset would destroy our answer."""
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._arm(limits.CLOSE_DRAIN_NS, self.close)

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._daemon.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._client.lost()
        log.info("CLIENT(%s): closing", self._remote)

    def close(self) -> None:
        self._transport.abort()


class Daemon:
    """`start`, then wait for `ended` (an exit code), then `stop`."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.tcp_address = ListenAddress("", 0, "")  # the real ones, after the start
        self.http_address = ListenAddress("", 0, "")
        self.about: dict[str, object] = {}  # what an nsqd is told
        self.connections: set[Connection] = set()
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        self.broken = False
        self._clock = SystemClock()
        self.registry = Registry(
            self._clock, options.inactive_producer_timeout_ns, options.tombstone_lifetime_ns
        )
        self._http_connections: set[HttpConnection] = set()
        self._following = AsyncExitStack()
        self._servers: list[asyncio.AbstractServer] = []

    async def start(self) -> None:
        """Raises PenstockError or OSError; then nothing is left open."""
        with ExitStack() as undo:
            log.info("%s", version_line("nsqlookupd"))
            tcp = self._listen(self.options.tcp_address, "tcp-address", undo)
            http = self._listen(self.options.http_address, "http-address", undo)
            self.tcp_address, self.http_address = bound_address(tcp), bound_address(http)
            self.about = {
                "tcp_port": -1 if self.tcp_address.path else self.tcp_address.port,
                "http_port": -1 if self.http_address.path else self.http_address.port,
                "version": __version__,
                "hostname": socket.gethostname(),
                "broadcast_address": self.options.broadcast_address,
            }
            admit = self._admission()
            undo.callback(self._close_servers)
            cluster = await self._follow_cluster()
            count = self.connections.__len__
            routes = Routes(self.registry, self._clock, count, self.about, cluster)
            web = partial(HttpConnection, routes, self._http_connections, BodyRoom(), admit)
            await self._serve(tcp, partial(Connection, self))
            log.info("TCP: listening on %s", self.tcp_address)
            await self._serve(http, web)
            log.info("HTTP: listening on %s", self.http_address)
            undo.pop_all()

    async def _follow_cluster(self) -> ClusterLookup | None:
        if not self.options.cluster:
            return None
        from penstock.nsqlookupd.cluster import following  # etcd's client is large

        known = self.options, self.about, self.registry, self._clock, self._on_fault
        return await self._following.enter_async_context(following(*known))

    def _on_fault(self, error: Exception) -> None:
        if not self.broken:
            self.broken = True
            log.critical("internal error: the daemon stops", exc_info=error)
            if not self.ended.done():
                self.ended.set_result(1)

    def _admission(self) -> Admission:
        options = self.options
        names = (socket.gethostname(), options.broadcast_address)
        secrets = read_secrets(options.http_secret_file)
        is_loopback = self.http_address.is_loopback
        return Admission(Gate(is_loopback, names, options.http_allowed_host, secrets), log)

    def _listen(self, text: str, name: str, undo: ExitStack) -> socket.socket:
        sock = listen(text, name)
        undo.callback(_close_unless_closed, sock)
        return sock

    async def _serve(
        self, sock: socket.socket, protocol: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        is_unix = sock.family == socket.AF_UNIX
        create = self._loop.create_unix_server if is_unix else self._loop.create_server
        self._servers.append(await create(protocol, sock=sock))

    def _close_servers(self) -> None:
        for server in self._servers:
            server.close()
        for address in (self.tcp_address, self.http_address):
            if address.path:
                Path(address.path).unlink(missing_ok=True)

    async def stop(self) -> None:
        log.info("NSQLOOKUPD: stopping")
        self._close_servers()
        await self._following.aclose()
        for _ in range(2):  # rounds of the loop until who was accepted last is a connection
            await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.close()
        for http_connection in list(self._http_connections):
            http_connection.abort()
        await asyncio.sleep(0)  # the transports let go of their sockets
        log.info("NSQLOOKUPD: bye")


def _close_unless_closed(sock: socket.socket) -> None:
    if sock.fileno() >= 0:  # a server that has taken it closes it
        close_listener(sock)
