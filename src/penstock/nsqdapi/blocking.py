"""Calls without an event loop: `http.client` on one connection at a time, of one thread.

The connection is opened when it is needed, and again after `close`. What fails on the way is one of
`FAILURES`; the connection is then of no use, and the caller closes it. A daemon that requires TLS
is asked over TLS from its first answer on, and its secret does not go out in clear text before.
Where the port of plain HTTP was named by https, it is asked for nothing but that.
"""

import http.client
import socket
import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.net.outgoing import (
    NO_ANSWER,
    NO_CERTIFICATE,
    NO_TLS,
    PLAIN_HTTP,
    HttpAnswer,
    https_port,
)
from penstock.net.secret_file import bearer
from penstock.net.tls import TlsFiles

FAILURES = (OSError, http.client.HTTPException, UnicodeError)  # a host as no name can be
TCP_PORT = "E_BAD_PROTOCOL"  # what stands behind it takes a request for a protocol's magic
IS_TCP_PORT = "that is nsqd's TCP port: name its HTTP port, as a rule 4151"
_ACCEPT = {"Accept": "application/vnd.nsq; version=1.0"}


class Address(NamedTuple):
    host: str
    port: int | None  # None: the one of the scheme
    secure: bool = False
    prefix: str = ""  # of every path
    socket_path: str = ""  # of a unix socket, instead of host and port


def address_of_url(url: str) -> Address | None:
    """None where it is not that of an HTTP host."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        return None
    return Address(parts.hostname, port, parts.scheme == "https", parts.path.rstrip("/"))


class Link:
    """`tls` verifies the daemon; None: the system's authorities. `secret` goes with changes."""

    def __init__(
        self,
        address: Address,
        timeout_s: float,
        tls: ssl.SSLContext | TlsFiles | None = None,
        secret: str = "",
    ) -> None:
        self._named = self._address = address
        self.timeout_s = timeout_s
        self._tls = tls
        self._credentials = bearer(secret)
        self._connection: http.client.HTTPConnection | None = None
        self._is_known = address.secure or bool(address.socket_path)  # whether it requires TLS
        self._sent: tuple[str, str, bytes | None, str] = ("", "", None, "")

    def exchange(
        self, method: str, target: str, body: bytes | None = None, content_type: str = ""
    ) -> HttpAnswer:
        self.send(method, target, body, content_type)
        return self.receive()

    def send(
        self, method: str, target: str, body: bytes | None = None, content_type: str = ""
    ) -> None:
        if self._credentials and method != "GET" and not self._is_known:
            self._look()
        if self._connection is None:
            self._connection = self._opened()
        self._sent = method, target, body, content_type
        headers = dict(_ACCEPT)
        if content_type and body is not None:
            headers["Content-Type"] = content_type
        if self._credentials and method != "GET":
            headers["Authorization"] = self._credentials
        try:
            self._connection.request(method, self._address.prefix + target, body or None, headers)
        except ssl.SSLError as error:
            if NO_TLS not in str(error) or self._address is not self._named:
                raise
            self._look()
            self.send(method, target, body, content_type)

    def _look(self) -> None:
        """Does it require TLS, and where?"""
        named, self._is_known = self._named, True
        self.close()
        self._address = named._replace(secure=False)
        try:
            self.exchange("GET", "/ping")
            if named.secure and not self._address.secure:
                raise OSError(PLAIN_HTTP)
        except FAILURES:
            self._address, self._is_known = named, named.secure
            self.close()
            raise

    def receive(self) -> HttpAnswer:
        if self._connection is None:
            raise http.client.NotConnected
        try:
            response = self._connection.getresponse()
        except http.client.RemoteDisconnected as error:
            reason = NO_CERTIFICATE if self._address.secure else NO_ANSWER
            raise http.client.RemoteDisconnected(reason) from error
        headers = {name.lower(): value for name, value in response.headers.items()}
        answer = HttpAnswer(response.status, response.read(), headers)
        port = 0 if self._address.secure else https_port(answer.status, answer.body)
        self._is_known = True
        if not port:
            return answer
        self.close()
        self._address = self._address._replace(port=port, secure=True)
        return self.exchange(*self._sent)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> http.client.HTTPConnection:
        at, timeout_s = self._address, self.timeout_s
        if at.socket_path:
            return _UnixConnection(at.socket_path, timeout_s)
        if not at.secure:
            return http.client.HTTPConnection(at.host, at.port, timeout=timeout_s)
        if not isinstance(self._tls, ssl.SSLContext):
            self._tls = (self._tls or TlsFiles()).context()
        return http.client.HTTPSConnection(at.host, at.port, timeout=timeout_s, context=self._tls)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
