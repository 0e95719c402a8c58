"""A request of an HTTP client: its target, its bytes, and the effect of a redirect on both.

URLs are sent byte by byte as they are given. A name and password in one become basic
authentication. A redirect to another origin carries no credentials.
"""

import base64
import json
import os
import re
import socket
import ssl
from collections.abc import Mapping
from string import punctuation
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from penstock import __version__, limits
from penstock.errors import PenstockError

Headers = Mapping[str, str]

_DEFAULTS = {
    "Accept": "*/*",
    "Accept-Encoding": "identity",
    "User-Agent": f"penstock/{__version__}",
}
NO_TLS = "WRONG_VERSION_NUMBER"  # in OpenSSL's words for a server that speaks plain HTTP
PLAIN_HTTP = "it serves plain HTTP there"
NO_ANSWER = "the connection was closed without an answer"
NO_CERTIFICATE = f"{NO_ANSWER}; it may want a certificate"  # over TLS 1.3 that is how it is missed
_PORTS = {"http": 80, "https": 443}
_UNSENDABLE = re.compile(r"[\x00-\x20\x7f]")
_BROKEN_LINE = re.compile(r"[\r\n\0]")
_BECOMES_GET = {301: ("POST",), 302: ("POST",), 303: ("POST", "PUT", "PATCH", "DELETE")}
REDIRECTS = frozenset((*_BECOMES_GET, 307, 308))


class HttpFailed(PenstockError):
    """There is no usable answer. `status` is that of the answer, 0 without one."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


class HttpAnswer(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]  # names in lower case


class Origin(NamedTuple):
    host: str
    port: int
    secure: bool

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Outgoing:
    """Raises HttpFailed for a request that cannot be sent. The text repeats nothing: URLs hold
    secrets."""

    def __init__(self, method: str, url: str, body: bytes, headers: Headers) -> None:
        self.method = method
        self.sent = False  # somebody may have seen it
        self._body = body
        self._redirects = 0
        self._fields = {
            name.lower(): (name, value)
            for name, value in headers.items()
            if name.lower() not in ("content-length", "transfer-encoding")  # the body says that
        }
        self._aim(url)

    def _aim(self, url: str) -> None:
        parts = _split(url)
        secure = parts.scheme == "https"
        port = parts.port or _PORTS[parts.scheme]
        self.origin = Origin(_ascii(parts.hostname or ""), port, secure)
        self._url = url
        target = url.partition("#")[0].partition("://")[2][len(parts.netloc) :]
        self._target = target if target.startswith("/") else f"/{target}"
        if parts.username is not None:
            secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            basic = f"Basic {base64.b64encode(secret).decode()}"
            self._fields.setdefault("authorization", ("Authorization", basic))

    def redirect(self, status: int, location: str) -> None:
        """Follow the redirect of an answer. Raises HttpFailed after too many."""
        self._redirects += 1
        if self._redirects > limits.FETCH_REDIRECTS_MAX:
            raise HttpFailed(f"more than {limits.FETCH_REDIRECTS_MAX} redirects")
        if self.method in _BECOMES_GET.get(status, ()):
            self.method, self._body = "GET", b""
            self._fields.pop("content-type", None)
        before = self.origin
        try:
            url = urljoin(self._url, quote(location, punctuation, errors="surrogateescape"))
        except ValueError:
            raise HttpFailed("a redirect to a malformed URL") from None
        self._aim(url)
        if self.origin != before:
            self._fields = {
                name: field
                for name, field in self._fields.items()
                if name not in ("authorization", "cookie", "proxy-authorization", "host")
            }

    def encode(self, keeps_connection: bool) -> bytes:
        fields = {name.lower(): (name, value) for name, value in _DEFAULTS.items()}
        fields["host"] = ("Host", self._host())
        fields |= self._fields
        if not keeps_connection:
            fields["connection"] = ("Connection", "close")
        if self._body or self.method not in ("GET", "HEAD"):
            fields["content-length"] = ("Content-Length", str(len(self._body)))
        lines = [f"{self.method} {self._target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in fields.values()]
        if any(map(_BROKEN_LINE.search, lines)):
            raise HttpFailed("a header with a line break")
        try:
            return "\r\n".join([*lines, "", ""]).encode() + self._body
        except UnicodeEncodeError:
            raise HttpFailed("a header that is no text") from None

    def _host(self) -> str:
        host, port, secure = self.origin
        if ":" in host:
            host = f"[{host.partition('%')[0]}]"  # the zone is this machine's business
        return host if port == _PORTS["https" if secure else "http"] else f"{host}:{port}"


def https_port(status: int, body: bytes) -> int:
    """Where a daemon that requires TLS has to be asked instead; 0: it is no such answer."""
    port = (document_of(body) or {}).get("https_port") if status == 403 else 0
    return port if type(port) is int and 0 < port < 65536 else 0


def document_of(body: bytes) -> dict[str, Any] | None:
    """None when it is no JSON object."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def code_of(body: bytes) -> str:
    """The code of NSQ's error form; empty when the answer has none."""
    code = (document_of(body) or {}).get("message")
    return code if isinstance(code, str) else ""


def _split(url: str) -> SplitResult:
    if _UNSENDABLE.search(url):
        raise HttpFailed("a malformed URL")
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise HttpFailed("a malformed URL") from None
    if not is_whole:
        raise HttpFailed("not an http or https URL")
    return parts


def _ascii(host: str) -> str:
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        raise HttpFailed("a malformed URL") from None


def words_of(error: Exception) -> str:
    """ "Connection refused", without the numbers that the system or asyncio puts around it."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror | ssl.SSLError):
        text = os.strerror(error.errno) if error.errno else str(error)
    else:
        text = getattr(error, "strerror", None) or str(error)
    return text or type(error).__name__
