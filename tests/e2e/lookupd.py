"""A real nsqlookupd in a process of its own, and a proxy that can lose the network."""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .daemon import Daemon


class Lookupd(Daemon):
    """Keeps its ports when it is started again, so that those who know it find it."""

    def __init__(self, path: Path, *flags: str) -> None:
        super().__init__(path, *flags)

    def command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "penstock.nsqlookupd.main",
            f"--tcp-address=127.0.0.1:{self.tcp_port}",
            f"--http-address=127.0.0.1:{self.http_port}",
            "--broadcast-address=127.0.0.1",
            *self.flags,
        ]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.tcp_port}"

    def get(self, path: str) -> Any:
        status, body = self.http("GET", path)
        return json.loads(body) if status == 200 else {"status": status}

    def producer_ports(self, topic: str) -> list[int]:
        """The TCP ports of the nsqds that have `topic`."""
        found = self.get(f"/lookup?topic={topic}").get("producers", [])
        return sorted(row["tcp_port"] for row in found)

    def knows(self, topic: str, *daemons: Daemon) -> bool:
        return self.producer_ports(topic) == sorted(daemon.tcp_port for daemon in daemons)


def nsqd(path: Path, *lookupds: str, flags: tuple[str, ...] = ()) -> Daemon:
    addresses = [f"--lookupd-tcp-address={address}" for address in lookupds]
    return Daemon(path, "--broadcast-address=127.0.0.1", *addresses, *flags)


def eventually(
    holds: Callable[[], object], timeout_s: float = 60.0, say: Callable[[], object] = str
) -> None:
    """`say` tells what is wrong when it does not come to be."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"it did not come to be in {timeout_s:.0f} s: {say()}")
        time.sleep(0.02)


class Proxy:
    """Forwards to a port. After `lose`, it accepts and keeps connections, and moves no byte."""

    def __init__(self, port: int) -> None:
        self._lost = False
        self._turn = threading.Lock()
        self._to_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._wake, self._woken = socket.socketpair()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._thread = threading.Thread(target=self._run)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def lose(self, lost: bool = True) -> None:
        with self._turn:
            self._lost = lost

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._wake.close()
        self._thread.join()
        for sock in (self._listener, self._woken, *self._pairs):
            sock.close()

    def _run(self) -> None:
        while self._run_once():
            time.sleep(0.001)  # the lock is no fair one

    def _run_once(self) -> bool:
        with self._turn:
            watched = [self._listener, self._woken, *([] if self._lost else self._pairs)]
            for sock in select.select(watched, [], [], 0.02)[0]:
                if sock is self._woken:
                    return False
                if sock is self._listener:
                    self._accept()
                elif sock in self._pairs:
                    self._move(sock)
        return True

    def _accept(self) -> None:
        inner, _ = self._listener.accept()
        outer = socket.create_connection(("127.0.0.1", self._to_port))
        self._pairs |= {inner: outer, outer: inner}

    def _move(self, sock: socket.socket) -> None:
        other = self._pairs[sock]
        try:
            data = sock.recv(65536)
            if data:
                other.sendall(data)
                return
        except OSError:
            pass
        for one in (sock, other):
            del self._pairs[one]
            one.close()
