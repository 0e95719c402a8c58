"""An HTTP proxy in front of nsqd that stops at a chosen request, lets a test kill somebody there,
and then hangs up.

It keeps its port while the nsqd behind it is restarted on another one. Faults are thus put between
processes: nothing in the product knows of them.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from e2e.answering import Answer, Answering


@dataclass
class Fault:
    """At the next request for `path`: before nsqd has it, or when nsqd has answered and the client
    does not know yet. `kill` is called with the id of the process that asks."""

    path: str
    answered: bool
    kill: Callable[[int], None]
    hit: threading.Event = field(default_factory=threading.Event)


class FaultProxy(Answering):
    def __init__(self, upstream_port: Callable[[], int]) -> None:
        """`upstream_port` is asked for each request; 0 when nsqd is down."""
        super().__init__()
        self.fault: Fault | None = None
        self._upstream_port = upstream_port
        self._lock = threading.Lock()

    def reply_to(self, port: int, *asked: Any) -> Answer | None:
        fault = self._take(urlsplit(asked[1]).path)
        answer = self._forward(*asked) if fault is None or fault.answered else None
        if fault is None:
            return answer
        if fault.answered and answer is None:
            self._put_back(fault)
            return None
        return self._strike(fault, port)

    def _forward(
        self, method: str, target: str, body: bytes, headers: dict[str, str]
    ) -> Answer | None:
        upstream = HTTPConnection("127.0.0.1", self._upstream_port())
        try:
            upstream.request(method, target, body or None, headers)
            found = upstream.getresponse()
            return found.status, found.read(), dict(found.headers)
        except (OSError, HTTPException):
            return None
        finally:
            upstream.close()

    def _take(self, path: str) -> Fault | None:
        with self._lock:
            fault = self.fault
            if fault is None or fault.path != path:
                return None
            self.fault = None
            return fault

    def _put_back(self, fault: Fault) -> None:
        with self._lock:
            self.fault = fault

    def _strike(self, fault: Fault, port: int) -> None:
        try:
            asker = owner(port, self.port)
        except (LookupError, OSError):  # it has gone by itself: the next one, then
            self._put_back(fault)
            return
        try:
            fault.kill(asker)
        finally:
            fault.hit.set()


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
