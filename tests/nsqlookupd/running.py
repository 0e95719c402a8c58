"""A real nsqlookupd in a thread of this process, and blocking clients."""

from __future__ import annotations

import socket
import struct
from typing import Any

from nsqd.inthread import TIMEOUT_SECONDS, InThread
from penstock.nsqlookupd.daemon import Daemon
from penstock.nsqlookupd.options import read_options

from .world import NSQD, identify


class Running(InThread):
    def __init__(self, *flags: str) -> None:
        self.options = read_options(
            ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", *flags], {}
        )
        super().__init__()

    def make(self) -> Daemon:
        return Daemon(self.options)

    def get(self, target: str) -> Any:
        status, document = self.ask("GET", target)
        assert status == 200, (status, document)
        return document

    def post(self, target: str) -> None:
        assert self.request("POST", target)[:2] == (200, b"")

    def client(self) -> Client:
        address = self.daemon.tcp_address
        return Client(socket.create_connection((address.host, address.port), TIMEOUT_SECONDS))

    def nsqd(self, *registered: str, **changed: Any) -> Client:
        client = self.client()
        client.socket.sendall(b"  V1" + identify(NSQD | changed))
        client.read()
        for names in registered:
            client.socket.sendall(f"REGISTER {names}\n".encode())
            assert client.read() == b"OK"
        return client


class Client:
    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._file = sock.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    @property
    def address(self) -> str:
        host, port = self.socket.getsockname()
        return f"{host}:{port}"

    def ask(self, data: bytes) -> bytes:
        self.socket.sendall(data)
        return self.read()

    def read(self) -> bytes:
        """An answer, b"" at the end."""
        head = self._file.read(4)
        return self._file.read(struct.unpack(">i", head)[0]) if head else b""
