"""Requests and answers of HTTP as values, and answers as bytes: no socket, no parser.

What speaks HTTP (`net/http.py`) hands an `Application` requests, and sends what it answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from penstock.net.bulk import FileBody

_SMALL_BYTES = 64  # answers of many requests are that short: OK, or an error's code
_SMALL_COUNT = 64
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class Request(NamedTuple):
    method: str
    path: str  # without the query, percent escapes as sent
    query: bytes
    body: bytes
    remote: str
    version: str
    keep_alive: bool
    together: bool  # with earlier requests that are too
    fields: bytes = b""  # the headers: `\r\nname: value` for each, the names in lower case

    @property
    def target(self) -> str:
        """Path and query, for the log."""
        return f"{self.path}?{self.query.decode('latin-1')}" if self.query else self.path

    def header(self, name: bytes) -> bytes | None:
        """The value of the first header of this name (in lower case); None: there is none."""
        return header_of(self.fields, name)

    def headers(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Headers whose names begin with this (in lower case), in their order: the rest of the
        name, and the value."""
        if prefix not in self.fields:
            return
        for field in self.fields.split(b"\r\n")[1:]:
            if field.startswith(prefix):
                name, _, value = field.partition(b": ")
                yield name[len(prefix) :], value


def header_of(fields: bytes, name: bytes) -> bytes | None:
    start = fields.find(b"\r\n%b: " % name)
    if start < 0:
        return None
    start += len(name) + 4
    end = fields.find(b"\r\n", start)
    return fields[start : end if end >= 0 else None]


class Response(NamedTuple):
    status: int
    body: bytes = b""
    content_type: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    closes: bool = False
    file: FileBody | None = None  # in place of `body`


class BodyRule(NamedTuple):
    """The maximum body of a request, and the answer to a larger one."""

    bytes_max: int
    refusal: Response
    together: bool = False  # such a request need not wait for the answers of others like it


class Application(Protocol):
    def body_rule(self, method: str, path: str) -> BodyRule: ...

    def serve(self, request: Request, answer: Callable[[Response], None]) -> None:
        """Call `answer` exactly once, now or later, in the loop's thread."""
        ...


class _Dated:
    """The Date header, made once a second, and small answers with it."""

    def __init__(self) -> None:
        self._second = 0
        self._header = b""
        self._small: dict[Response, bytes] = {}

    def header(self) -> bytes:
        self._turn()
        return self._header

    def _turn(self) -> None:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._header = f"Date: {formatdate(second, usegmt=True)}\r\n".encode()
            self._small.clear()

    def encoded(self, response: Response, request: Request, closes: bool) -> bytes:
        if closes or len(response.body) > _SMALL_BYTES or request.version != "1.1":
            return encode_response(response, request, closes)
        self._turn()
        found = self._small.get(response)
        if found is None or request.method == "HEAD":
            found = encode_response(response, request, closes)
            if request.method != "HEAD" and len(self._small) < _SMALL_COUNT:
                self._small[response] = found
        return found


_dated = _Dated()
encode = _dated.encoded  # small answers, which come again and again, are kept for a second


def encode_response(response: Response, request: Request, closes: bool) -> bytes:
    head = encode_head(response, request, closes, len(response.body))
    return head + response.body if request.method != "HEAD" else head


def encode_head(response: Response, request: Request, closes: bool, body_bytes: int) -> bytes:
    parts = [_STATUS_LINES[response.status]]
    parts += [f"{name}: {value}\r\n".encode() for name, value in response.headers]
    if response.content_type:
        parts.append(f"Content-Type: {response.content_type}\r\n".encode())
    parts.append(_dated.header())
    parts.append(b"Content-Length: %d\r\n" % body_bytes)
    if closes:
        parts.append(b"Connection: close\r\n")
    elif request.version == "1.0":
        parts.append(b"Connection: keep-alive\r\n")
    parts.append(b"\r\n")
    return b"".join(parts)
