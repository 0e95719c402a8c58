"""The daemons that the operator's commands talk to, over their HTTP API.

Which ones: `--nsqd-http-address` (repeatable), or all that `--lookupd-http-address` knows, or the
environment (`PENSTOCK_NSQD_HTTP_ADDRESS`, `PENSTOCK_LOOKUPD_HTTP_ADDRESS`, comma lists), or the
nsqd of this machine. An address is `host:port`, a URL, or the path of a unix socket.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

from penstock.errors import PenstockError

DEFAULT_ADDRESS = "127.0.0.1:4151"
REQUEST_SECONDS_MAX = 10.0


class NodeFailed(PenstockError):
    """A daemon that does not answer, or answers with an error."""

    def __init__(self, address: str, reason: str, status: int = 0) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason
        self.status = status  # of the answer; 0 when there was none


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Node:
    """One daemon. Each request has a connection of its own: none is left behind, none is stale."""

    def __init__(self, address: str, timeout_seconds: float = REQUEST_SECONDS_MAX) -> None:
        self.address = address
        self._connection = _connection(address, timeout_seconds)

    def get(self, path: str, parameters: dict[str, str] | None = None) -> Any:
        return self._json("GET", path, parameters)

    def post(self, path: str, parameters: dict[str, str] | None = None, body: bytes = b"") -> Any:
        return self._json("POST", path, parameters, body)

    def _json(
        self, method: str, path: str, parameters: dict[str, str] | None, body: bytes = b""
    ) -> Any:
        answer = self.request(method, path, parameters, body)
        if answer[:1] not in (b"{", b"["):
            return answer.decode("utf-8", "replace")
        return json.loads(answer)

    def request(
        self, method: str, path: str, parameters: dict[str, str] | None = None, body: bytes = b""
    ) -> bytes:
        """The body of a 200. Raises NodeFailed."""
        target = f"{path}?{urlencode(parameters)}" if parameters else path
        try:
            self._connection.request(method, target, body or None)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise NodeFailed(self.address, f"no answer: {error or type(error).__name__}") from error
        finally:
            self._connection.close()
        if response.status != 200:
            raise NodeFailed(self.address, _message(response.status, answer), response.status)
        return answer


def _connection(address: str, timeout: float) -> http.client.HTTPConnection:
    if "://" in address:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise NodeFailed(address, "is neither http://host:port nor https://host:port")
        if "@" in parts.netloc:  # it would stand in every message about the node
            host = parts.netloc.rpartition("@")[2]
            raise NodeFailed(host, "a URL with a user and a password is not supported")
        if parts.scheme == "https":
            return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout)
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    if "/" in address:
        return _UnixConnection(address, timeout)
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise NodeFailed(address, "is neither host:port, nor a URL, nor the path of a socket")
    return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout)


def _message(status: int, answer: bytes) -> str:
    try:
        code = str(json.loads(answer)["message"])
    except (ValueError, KeyError, TypeError):
        code = answer.decode("utf-8", "replace").strip() or http.client.responses.get(status, "")
    return f"{status} {code}"


# --- which ones ---


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nsqd-http-address",
        action="append",
        metavar="ADDRESS",
        help=f"an nsqd (may be repeated; {DEFAULT_ADDRESS} when nothing is given)",
    )
    parser.add_argument(
        "--lookupd-http-address",
        action="append",
        metavar="ADDRESS",
        help="an nsqlookupd: all nsqds that it knows (may be repeated)",
    )


def addresses(arguments: argparse.Namespace) -> list[str]:
    """Of the nsqds that the arguments name. Raises NodeFailed when no lookupd answers."""
    given: list[str] | None = arguments.nsqd_http_address
    lookupds: list[str] | None = arguments.lookupd_http_address
    if given and lookupds:
        raise PenstockError("give --nsqd-http-address or --lookupd-http-address, not both")
    if not given and not lookupds:
        given = from_environment("PENSTOCK_NSQD_HTTP_ADDRESS")
        lookupds = from_environment("PENSTOCK_LOOKUPD_HTTP_ADDRESS") if not given else None
    if lookupds:
        return _known_to(lookupds)
    return given or [DEFAULT_ADDRESS]


def nodes(arguments: argparse.Namespace) -> list[Node]:
    return [Node(address) for address in addresses(arguments)]


def from_environment(name: str) -> list[str]:
    """The members of a comma list."""
    return [part.strip() for part in os.environ.get(name, "").split(",") if part.strip()]


def _known_to(lookupds: Sequence[str]) -> list[str]:
    found: dict[str, None] = {}
    failed: NodeFailed | None = None
    for lookupd in lookupds:
        try:
            for producer in Node(lookupd).get("/nodes")["producers"]:
                if producer["http_port"] <= 0:
                    continue  # one that serves HTTP on a unix socket, or not at all
                host = producer["broadcast_address"]
                shown = f"[{host}]" if ":" in host else host
                found[f"{shown}:{producer['http_port']}"] = None
        except NodeFailed as error:
            failed = error
    if failed is not None and not found:
        raise failed
    if not found:
        raise PenstockError(f"no nsqd with an HTTP port is registered with {', '.join(lookupds)}")
    return sorted(found)
