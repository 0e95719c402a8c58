"""An HTTP proxy in front of nsqd that stops at a chosen request, lets a test kill somebody there,
and then hangs up.

It keeps its port while the nsqd behind it is restarted on another one. Faults are thus put between
processes: nothing in the product knows of them.
"""

import contextlib
import os
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_ACCEPT_S = 0.2


@dataclass
class Fault:
    """At the next request for `path`: before nsqd has it, or when nsqd has answered and the client
    does not know yet. `kill` is called with the id of the process that asks."""

    path: str
    answered: bool
    kill: Callable[[int], None]
    hit: threading.Event = field(default_factory=threading.Event)


class FaultProxy:
    def __init__(self, upstream_port: Callable[[], int]) -> None:
        """`upstream_port` is asked for each new connection; 0 when nsqd is down."""
        self.fault: Fault | None = None
        self._upstream_port = upstream_port
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listener.settimeout(_ACCEPT_S)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._closing = False
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._open: set[socket.socket] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._thread.join()
        self._listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        """End every connection there is."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closing:
            with contextlib.suppress(TimeoutError):
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        port = self._upstream_port()
        with client, contextlib.suppress(OSError, EOFError):
            server = socket.create_connection(("127.0.0.1", port))
            with server, client.makefile("rb") as asked, server.makefile("rb") as answered:
                self._remember(client, server)
                try:
                    while self._exchange(client, asked, server, answered):
                        pass
                finally:
                    self._forget(client, server)

    def _remember(self, *sockets: socket.socket) -> None:
        with self._lock:
            self._open.update(sockets)

    def _forget(self, *sockets: socket.socket) -> None:
        with self._lock:
            self._open.difference_update(sockets)

    def _exchange(
        self, client: socket.socket, asked: IO[bytes], server: socket.socket, answered: IO[bytes]
    ) -> bool:
        request = _message(asked)
        path = urlsplit(request.split(b" ", 2)[1].decode()).path
        fault = self._take(path)
        if fault is not None and not fault.answered:
            return self._strike(fault, client)
        server.sendall(request)
        response = _message(answered)
        if fault is not None:
            return self._strike(fault, client)
        client.sendall(response)
        return True

    def _take(self, path: str) -> Fault | None:
        with self._lock:
            fault = self.fault
            if fault is None or fault.path != path:
                return None
            self.fault = None
            return fault

    def _strike(self, fault: Fault, client: socket.socket) -> bool:
        try:
            asker = owner(client.getpeername()[1], self.port)
        except (LookupError, OSError):  # it has gone by itself: the next one, then
            with self._lock:
                self.fault = fault
            return False
        try:
            fault.kill(asker)
        finally:
            fault.hit.set()
        return False


def _message(stream: IO[bytes]) -> bytes:
    """A whole request or answer, head and body."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            raise EOFError
        head += line
    length = _LENGTH.search(head)
    body = stream.read(int(length[1])) if length else b""
    if length and len(body) < int(length[1]):
        raise EOFError
    return head + body


def owner(port: int, peer_port: int) -> int:
    """The process that holds the connection from `port` to `peer_port` on this machine."""
    inode = _inode(port, peer_port)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                for number in os.listdir(entry / "fd"):
                    if os.readlink(entry / "fd" / number) == f"socket:[{inode}]":
                        return int(entry.name)
    raise LookupError(f"nobody holds the connection from port {port}")


def _inode(port: int, peer_port: int) -> str:
    ends = f":{port:04X} ", f":{peer_port:04X} "
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        fields = line.split()
        if f"{fields[1]} ".endswith(ends[0]) and f"{fields[2]} ".endswith(ends[1]):
            return fields[9]
    raise LookupError(f"no connection from port {port} to port {peer_port}")
