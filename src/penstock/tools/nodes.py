"""The daemons that the operator's commands talk to, over their HTTP API.

Which ones: `--nsqd-http-address` (repeatable), or all that `--lookupd-http-address` knows, or those
of a context, or the environment (`PENSTOCK_NSQD_HTTP_ADDRESS`, `PENSTOCK_LOOKUPD_HTTP_ADDRESS`,
comma lists), or the nsqd of this machine (`where`). An address is `host:port`, a URL, or the path
of a unix socket.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlencode, urlsplit

from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.net.secretfile import authorization
from penstock.tools import where
from penstock.tools.verbs import DONE, FAILED
from penstock.tools.where import DEFAULT_ADDRESS, Where

REQUEST_SECONDS_MAX = 10.0
PORT_MAX = 65535
_NOT_FOUND = 404


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

    def __init__(
        self,
        address: str,
        timeout_seconds: float = REQUEST_SECONDS_MAX,
        tls: ssl.SSLContext | None = None,
        secret: str = "",
    ) -> None:
        """`secret` goes with what changes something."""
        self._secret = secret
        self.address = address
        self.tls = tls
        self._connection = _connection(address, timeout_seconds, tls)

    def get(self, path: str, parameters: dict[str, str] | None = None) -> Any:
        return self._json("GET", path, parameters)

    def document(self, path: str, parameters: dict[str, str] | None = None, *keys: str) -> Any:
        """An object with these keys. Whoever listens there may be no daemon of NSQ at all."""
        found = self.get(path, parameters)
        if not isinstance(found, dict) or not found.keys() >= set(keys):
            raise NodeFailed(self.address, f"something answers {path}, and it is no daemon of NSQ")
        return found

    def post(self, path: str, parameters: dict[str, str] | None = None, body: bytes = b"") -> Any:
        return self._json("POST", path, parameters, body)

    def _json(
        self, method: str, path: str, parameters: dict[str, str] | None, body: bytes = b""
    ) -> Any:
        answer = self.request(method, path, parameters, body)
        if answer[:1] not in (b"{", b"["):
            return answer.decode("utf-8", "replace")
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise NodeFailed(self.address, f"its answer is no JSON: {error}") from error

    def request(
        self, method: str, path: str, parameters: dict[str, str] | None = None, body: bytes = b""
    ) -> bytes:
        """The body of a 200. Raises NodeFailed."""
        target = f"{path}?{urlencode(parameters)}" if parameters else path
        try:
            headers = authorization(self._secret) if method != "GET" else {}
            self._connection.request(method, target, body or None, headers)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise NodeFailed(self.address, f"no answer: {error or type(error).__name__}") from error
        finally:
            self._connection.close()
        if response.status != 200:
            raise NodeFailed(self.address, _message(response.status, answer), response.status)
        return answer


def _connection(
    address: str, timeout: float, tls: ssl.SSLContext | None
) -> http.client.HTTPConnection:
    if "://" in address:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or not _has_port(parts):
            raise NodeFailed(address, "is neither http://host:port nor https://host:port")
        if "@" in parts.netloc:  # it would stand in every message about the node
            host = parts.netloc.rpartition("@")[2]
            raise NodeFailed(host, "a URL with a user and a password is not supported")
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=timeout, context=tls
            )
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    if "/" in address:
        return _UnixConnection(address, timeout)
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise NodeFailed(address, "is neither host:port, nor a URL, nor the path of a socket")
    return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout)


def _has_port(parts: SplitResult) -> bool:
    """Or says nothing of one."""
    try:
        return parts.port is None or parts.port >= 0
    except ValueError:
        return False


def _message(status: int, answer: bytes) -> str:
    try:
        code = str(json.loads(answer)["message"])
    except (ValueError, KeyError, TypeError):
        code = answer.decode("utf-8", "replace").strip() or http.client.responses.get(status, "")
    return f"{status} {terminal.printable(code)}"


class Answers(NamedTuple):
    """Of several nodes: a question to some of them may fail, and the others have been asked."""

    good: dict[str, Any]
    bad: dict[str, NodeFailed]

    @property
    def code(self) -> int:
        """A node that has not got the thing is no failure when others have."""
        return FAILED if any(error.status != _NOT_FOUND for error in self.bad.values()) else DONE

    def as_json(self) -> dict[str, Any]:
        errors = {address: {"error": error.reason} for address, error in self.bad.items()}
        return {"nodes": {**self.good, **errors}}

    def tell_errors(self) -> None:
        for error in self.bad.values():
            print(error, file=sys.stderr)


def ask_each(members: Sequence[Node], ask: Callable[[Node], Any]) -> Answers:
    """Raises NodeFailed when none has an answer."""
    answers = Answers({}, {})
    for node in members:
        try:
            answers.good[node.address] = ask(node)
        except NodeFailed as error:
            answers.bad[node.address] = error
    if not answers.good and answers.bad:
        raise next(iter(answers.bad.values()))
    return answers


# --- which ones ---


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where")
    group.add_argument(
        "--nsqd-http-address",
        action="append",
        metavar="ADDRESS",
        help=f"an nsqd (may be repeated; {DEFAULT_ADDRESS} when nothing is given)",
    )
    group.add_argument(
        "--lookupd-http-address",
        action="append",
        metavar="ADDRESS",
        help="an nsqlookupd: all nsqds that it knows (may be repeated)",
    )
    where.add_context(group)
    where.add_files(group)
    where.add_http_secret(group)


def addresses_of(found: Where, tls: ssl.SSLContext | None = None) -> list[str]:
    """Of the nsqds. Raises NodeFailed when no lookupd answers."""
    context = found.context
    if context.nsqd_http_address:
        return list(context.nsqd_http_address)
    if context.lookupd_http_address:
        return _known_to(context.lookupd_http_address, tls)
    if found.name:
        raise found.lacks(*where.HTTP)
    return [DEFAULT_ADDRESS]


def nodes(arguments: argparse.Namespace, changes: bool = False) -> list[Node]:
    """`changes`: something is about to be changed on them."""
    found = where.find(arguments)
    if changes:
        where.announce(found)
    return nodes_of(found)


def nodes_of(found: Where) -> list[Node]:
    tls, secret = found.tls(), found.http_secret()
    return [Node(address, tls=tls, secret=secret) for address in addresses_of(found, tls)]


def _known_to(lookupds: Sequence[str], tls: ssl.SSLContext | None) -> list[str]:
    found: dict[str, None] = {}
    failed: NodeFailed | None = None
    for lookupd in lookupds:
        try:
            for producer in Node(lookupd, tls=tls).document("/nodes", None, "producers")[
                "producers"
            ]:
                address = address_of(producer)
                if address:
                    found[address] = None
        except NodeFailed as error:
            failed = error
    if failed is not None and not found:
        raise failed
    if not found:
        raise PenstockError(f"no nsqd with an HTTP port is registered with {', '.join(lookupds)}")
    return sorted(found)


def address_of(producer: dict[str, Any]) -> str:
    """Empty for one that serves HTTP on a unix socket, or not at all."""
    if producer["http_port"] <= 0:
        return ""
    host = producer["broadcast_address"]
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{producer['http_port']}"
