"""Listening sockets: where they bind, and how accepted connections get to the kernel.

An address is `host:port`, `:port` for every interface, or the path of a unix socket; whatever does
not end in a colon and a port is a path, as with nsqd.
"""

import asyncio
import errno
import logging
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple

from penstock import limits
from penstock.errors import ConfigError
from penstock.log.open_files import connections_end, out_of_connections
from penstock.net.outgoing import words_of
from penstock.net.query import whole_number

log = logging.getLogger("penstock.net")

_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class ListenAddress(NamedTuple):
    host: str
    port: int
    path: str  # a unix socket when not empty

    @property
    def is_loopback(self) -> bool:
        """Does it take connections from this host alone? Of a bound address."""
        return not self.path and ip_address(self.host.partition("%")[0]).is_loopback

    def __str__(self) -> str:
        if self.path:
            return self.path
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str, name: str = "address") -> ListenAddress:
    if not text:
        raise ConfigError(name, text, "host:port, or the path of a unix socket")
    host, colon, port = text.rpartition(":")
    if not colon or "/" in port:
        return ListenAddress("", 0, text)
    number = whole_number(port, 65535)
    if number is None:
        raise ConfigError(name, text, "host:port with a port of 0 to 65535, or a path")
    return ListenAddress(host.removeprefix("[").removesuffix("]"), number, "")


def listen(text: str, name: str = "address") -> socket.socket:
    """A listening, non-blocking socket. Raises OSError, which names the address, and ConfigError
    with the name of the option."""
    address = parse_address(text, name)
    host, port, path = address
    try:
        sock = _listen_unix(path) if path else _listen_tcp(host, port)
    except (OSError, UnicodeError) as error:  # the latter for a name that no host can have
        raise OSError(f"listen ({address}) failed - {words_of(error)}") from error
    sock.setblocking(False)
    return sock


def _listen_tcp(host: str, port: int) -> socket.socket:
    """Without a host on all interfaces, of both families if possible."""
    both = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    if host:
        stream, passive = socket.SOCK_STREAM, socket.AI_PASSIVE
        family, _, _, _, sockaddr = socket.getaddrinfo(host, port, type=stream, flags=passive)[0]
        host = str(sockaddr[0])
    backlog = limits.ACCEPT_BACKLOG
    return socket.create_server((host, port), family=family, backlog=backlog, dualstack_ipv6=both)


def _listen_unix(path: str) -> socket.socket:
    _remove_stale_socket(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
        sock.listen(limits.ACCEPT_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _remove_stale_socket(path: str) -> None:
    """Remove a socket file that nobody answers on, left by a process that was killed."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


def bound_address(sock: socket.socket) -> ListenAddress:
    """The real address of a listening socket (port 0 asks the system for one)."""
    name = sock.getsockname()
    return (
        ListenAddress("", 0, name) if isinstance(name, str) else ListenAddress(name[0], name[1], "")
    )


def close_listener(sock: socket.socket) -> None:
    address = bound_address(sock)
    sock.close()
    if address.path:
        with suppress(FileNotFoundError):
            os.unlink(address.path)


def peer_text(sock: socket.socket, peer: object) -> str:
    """A remote address, as in stats and logs."""
    if isinstance(peer, tuple):
        return str(ListenAddress(peer[0], peer[1], ""))
    return "@"  # as Go prints an unnamed unix socket


def keep_alive(sock: socket.socket) -> None:
    """Let the system detect a host that vanished."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, limits.KEEPALIVE_IDLE_S),
        (socket.TCP_KEEPINTVL, limits.KEEPALIVE_EVERY_S),
        (socket.TCP_KEEPCNT, limits.KEEPALIVE_PROBES),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


@dataclass(eq=False)
class Acceptor:
    """Accepts on one listening socket and gives each connection to `on_connect`."""

    _loop: asyncio.AbstractEventLoop
    _sock: socket.socket
    _on_connect: Callable[[socket.socket, str], None]
    _pause: asyncio.TimerHandle | None = None
    _closed: bool = False

    def __post_init__(self) -> None:
        self._refused_s = -limits.ACCEPT_REPORT_S  # when it was last reported
        self.address = bound_address(self._sock)
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._sock.fileno())
        close_listener(self._sock)

    def _accept(self) -> None:
        for _ in range(limits.ACCEPTS_PER_TURN):
            try:
                sock, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                self._rest(error)
                return
            if sock.fileno() >= connections_end():
                self._refuse(sock)
                continue
            sock.setblocking(False)
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._on_connect(sock, peer_text(sock, peer))

    def _refuse(self, sock: socket.socket) -> None:
        """Refuse at once, so that the client knows: another node may have room."""
        now = self._loop.time()
        if now - self._refused_s >= limits.ACCEPT_REPORT_S:
            self._refused_s = now
            log.error("connections to %s are refused: %s", self.address, out_of_connections())
        sock.close()

    def _rest(self, error: OSError) -> None:
        """Out of descriptors: leave the queue alone for a moment instead of spinning on it."""
        log.error("accept on %s: %s; trying again shortly", self.address, error)
        self._loop.remove_reader(self._sock.fileno())
        self._pause = self._loop.call_later(limits.ACCEPT_PAUSE_NS / limits.SECOND, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock.fileno(), self._accept)
