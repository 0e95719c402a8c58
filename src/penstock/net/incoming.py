"""The requests of one HTTP connection, as they come in: `httptools` parses, this module keeps
bounds and time.

What a request may cost is bounded before it is read: the application says, from method and path,
how long a body may be and what the answer is when it is longer. That answer is the connection's
last, because the rest of such a body is not worth reading.

A request has to come in time: its head within HTTP_HEAD_NS, its body at HTTP_RATE_BYTES_MIN a
second at least. What comes with a chunked body that is no body (heads of chunks, their extensions,
trailers) has a bound too, and so have the bodies of all connections together (`BodyRoom`).

Bytes that are not HTTP get a fixed `400 Bad Request`. Heads that were seen before do not go through
the parser again (`RequestHead`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import httptools

from penstock import limits
from penstock.net.api import HttpError, error_response
from penstock.net.exchange import Application, BodyRule, Request, Response, header_of
from penstock.net.gate import Caller, is_host


class BodyRoom:
    """How much memory the bodies of requests may take, over all connections of a daemon.

    A bound for each connection bounds nothing where connections are many. So bytes are counted as
    they come, from the first one of a body until its request is answered; nothing is counted for
    what a client only announces. When there is no room, a request is refused rather than left to
    wait: it is not known whether those that hold the room will ever be complete.

    The last part of the room is for bodies that are small so far. A few clients with large ones
    can't keep all others from publishing.
    """

    __slots__ = ("_bytes_max", "held_bytes")

    def __init__(self, bytes_max: int = limits.HTTP_BODIES_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0

    def has(self, count: int, body_bytes: int) -> bool:
        """Is there room for this many more bytes of a body that then has `body_bytes`?"""
        bytes_max = self._bytes_max
        if body_bytes > limits.HTTP_BODY_SMALL_BYTES:
            bytes_max -= bytes_max // 4
        return self.held_bytes + count <= bytes_max


def framing_max(body_bytes: int) -> int:
    """The maximum framing bytes for this much of a chunked body."""
    return limits.HTTP_HEADER_BYTES_MAX + limits.HTTP_FRAMING_EACH * body_bytes


def _fixed(status: bytes) -> bytes:
    """An answer of the server itself before it hangs up, as Go's has it."""
    head = b"Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    return b"HTTP/1.1 " + status + b"\r\n" + head + status


BAD_REQUEST = _fixed(b"400 Bad Request")
TIMED_OUT = _fixed(b"408 Request Timeout")
HEADERS_TOO_LARGE = _fixed(b"431 Request Header Fields Too Large")
NO_DESCRIPTOR = _fixed(b"503 Service Unavailable") + (
    b": the daemon has no descriptor left for connections (ulimit -n)"
)
NO_ROOM = error_response(
    HttpError(503, "FAILED unanswered requests of all clients take too much memory", closes=True)
)


class RequestHead(NamedTuple):
    """What the parser made of a head, remembered by the head's bytes.

    A client that keeps its connection sends the same head again and again. A request that begins
    with a known one, and is there as a whole, does not go through the parser. Same bytes, same
    meaning: nothing is decided but by the parser, and by the listener's gate. Only plain heads are
    remembered: HTTP/1.1, no `Expect`, no transfer encoding, and no `traceparent`, which is another
    one each time.
    """

    method: str
    path: str
    query: bytes
    fields: bytes
    body_bytes: int
    together: bool


Heads = dict[bytes, RequestHead]
_heads: WeakKeyDictionary[object, Heads] = WeakKeyDictionary()


def heads_of(ruler: object) -> Heads:
    """The heads admitted by one listener, or seen by one application; another may have other
    rules."""
    return _heads.setdefault(ruler, {})


def remember(heads: Heads, data: bytes, head: RequestHead) -> None:
    """`data` is the head as it came, without the empty line."""
    if len(heads) >= limits.HTTP_HEADS_MAX:
        heads.clear()
    heads[data] = head


Admit = Callable[[str, str, str, Caller], Response | None]  # method, path, remote, caller


class RefusedRequest(NamedTuple):
    """A request whose body is not read: it is too long, or its head was refused. Answered in its
    turn, then the connection ends."""

    request: Request
    response: Response


@dataclass(eq=False)
class Incoming:
    """Whole requests are in `waiting`, perhaps followed by the last answer of the connection: a
    refused request, or bytes for invalid input."""

    _application: Application
    _room: BodyRoom
    _admit: Admit | None
    _now_s: Callable[[], float]
    _send_continue: Callable[[], None]  # it waits to be asked for the body, and nothing is before

    def __post_init__(self) -> None:
        self.remote = ""
        self.waiting: deque[Request | RefusedRequest | bytes] = deque()
        self.held_bytes = 0  # of bodies in `waiting`, and of those that were taken from there
        self.deaf = False  # the last answer is queued or sent: what still comes is dropped
        self.touched = self._begun = self._now_s()  # `_begun`: the request that is coming in
        self._parser = httptools.HttpRequestParser(self)
        self._silent = True  # the client has not said anything
        self._messages = 0  # that the parser has begun to read
        self._head_bytes = 0  # of a request whose headers are not complete; -1 once they are
        self.between = True  # the parser stands between two requests
        self._heads = heads_of(self._application if self._admit is None else self._admit)
        self._learns = b""  # the head that the parser is about to read
        self._body = bytearray()
        self._begin()

    # --- calls of the connection ---

    def take(self, data: bytes) -> None:
        """Input from the client, which may still send."""
        self._silent = False
        if self.between:
            data = self._take_known(data)
        if data:
            self._parse(data)

    def is_due(self) -> bool:
        """Has the client a request to finish, or to begin for the first time?"""
        return not self.deaf and (not self.between or self._silent)

    def seconds_left(self) -> float:
        """For the incoming request."""
        seconds = _HEAD_SECONDS
        if self._head_bytes < 0:
            seconds = _BODY_SECONDS + self._body_bytes / limits.HTTP_RATE_BYTES_MIN
        return self._begun + seconds - self._now_s()

    def grant(self) -> None:
        """Its time restarts: the client is not to blame for a pause of reading."""
        self._begun = self._now_s()

    def end_with(self, answer: bytes) -> None:
        self.stop()
        self.waiting.append(answer)

    def stop(self) -> None:
        """Later input is dropped."""
        self.deaf = True
        self._drop_body()

    def let_go(self, count: int) -> None:
        self.held_bytes -= count
        self._room.held_bytes -= count

    def drop(self) -> None:
        """The connection is gone, or about to be: nothing more of it is served."""
        self._drop_body()
        self.let_go(sum(len(one.body) for one in self.waiting if isinstance(one, Request)))
        self.waiting.clear()

    # --- whole requests, and pieces of one ---

    def _take_known(self, data: bytes) -> bytes:
        """Take whole requests whose heads are known. Returns the rest for the parser."""
        heads, waiting = self._heads, self.waiting
        position, size = 0, len(data)
        while position < size:
            end = data.find(b"\r\n\r\n", position, position + limits.HTTP_HEAD_BYTES_MAX)
            if end < 0:
                break
            head = data[position:end]
            known = heads.get(head)
            if known is None:
                self._learns = head
                break
            method, path, query, fields, body_bytes, together = known
            stop = end + 4 + body_bytes
            if stop > size or not self._room.has(body_bytes, body_bytes):
                break
            body = data[end + 4 : stop]
            self._hold(body_bytes)
            waiting.append(
                Request(method, path, query, body, self.remote, "1.1", True, together, fields)
            )
            position = stop
        if position:
            self.touched = self._now_s()
            return data[position:]
        return data

    def _parse(self, data: bytes) -> None:
        message = self._messages
        is_inside = self._head_bytes < 0
        if is_inside:
            self.touched = self._now_s()
        else:
            self._head_bytes += len(data)
        self._feed(data)
        if self.deaf:
            return
        if self._head_bytes > limits.HTTP_HEADER_BYTES_MAX:
            self.end_with(HEADERS_TOO_LARGE)
        elif is_inside and message == self._messages and not self.between:
            self._behind_head_bytes += len(data)
            if self._behind_head_bytes - self._body_bytes > framing_max(self._body_bytes):
                self.end_with(HEADERS_TOO_LARGE)

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            head = self._head_without_offer() if self._offers else b""
            self._parser = httptools.HttpRequestParser(self)
            rest = head + data[upgrade.args[0] :]
            if rest and not self.deaf:
                self._feed(rest)
        except httptools.HttpParserError:
            if not self.deaf:
                self.end_with(BAD_REQUEST)

    def _head_without_offer(self) -> bytes:
        """A server may ignore an offer to switch protocols (Java's client makes one with every
        request). The parser takes what follows for the other protocol's, so the head is read again
        without the offer, and what follows is the body."""
        fields = bytes(self._fields).split(b"\r\n")
        kept = b"\r\n".join(field for field in fields if not field.startswith(b"upgrade: "))
        version = self._parser.get_http_version().encode()
        return b"%b %b HTTP/%b%b\r\n\r\n" % (self._method.encode(), self._target, version, kept)

    # --- callbacks of the parser ---

    def _begin(self) -> None:
        self._offers = False  # to switch protocols
        self._target = b""
        self._method = ""
        self._path = b""
        self._query = b""
        self._fields = bytearray()
        self._content_length = 0
        self._expects_continue = False
        self._is_plain = True  # its head may be remembered
        self._body_bytes = 0
        self._behind_head_bytes = 0  # of body and framing, without those that came with the head
        self._rule = _NO_BODY

    def on_message_begin(self) -> None:
        self._begin()
        self._messages += 1
        self._head_bytes = 0
        self.between = False
        self._begun = self._now_s()

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_bytes < 0:
            return  # a trailer, which says nothing about how to read the request
        name = name.lower()
        self._fields += b"\r\n%b: %b" % (name, value.strip(b" \t"))
        if name == b"content-length":
            if value.isdigit():
                self._content_length = int(value[:20])
        elif name == b"expect":
            self._expects_continue = value.lower() == b"100-continue"
        self._is_plain = self._is_plain and name not in _NOT_PLAIN

    def on_headers_complete(self) -> None:
        if self.deaf:
            return
        self._method = self._parser.get_method().decode("ascii")
        self._offers = self._parser.should_upgrade() and self._method != "CONNECT"
        if self._offers:
            return
        self._head_bytes = -1
        target, fields = self._target, bytes(self._fields)
        given = header_of(fields, b"host")
        hosts = [] if given is None else [given]
        if not target.startswith(b"/") and b"://" in target:  # absolute form
            authority, _, rest = target.split(b"://", 1)[1].partition(b"/")
            hosts.append(authority)  # it counts instead of Host
            target = b"/" + rest
        self._path, _, self._query = target.partition(b"?")
        path = self._path.decode("latin-1")
        self._rule = self._application.body_rule(self._method, path)
        is_clear = fields.count(b"\r\nhost: ") < 2 and all(map(is_host, hosts))
        if not is_clear:
            self.end_with(BAD_REQUEST)
        elif refusal := self._refusal(path, hosts[-1] if hosts else None, fields):
            self._refuse(refusal)
        elif self._content_length > self._rule.bytes_max:
            self._refuse(self._rule.refusal)
        elif self._expects_continue and not self.waiting:
            self._send_continue()

    def on_body(self, part: bytes) -> None:
        if self.deaf:
            return
        self._body_bytes += len(part)
        if self._body_bytes > self._rule.bytes_max:
            self._refuse(self._rule.refusal)
        elif self._room.has(len(part), self._body_bytes):
            self._room.held_bytes += len(part)
            self._body += part
        else:
            self._refuse(NO_ROOM)

    def on_message_complete(self) -> None:
        if self.deaf or self._offers:
            return
        self._head_bytes = 0
        self.touched = self._now_s()
        request = self._request(self._parser.should_keep_alive())
        self.between = True
        self.waiting.append(request)
        self._drop_body()
        self._hold(len(request.body))
        if self._learns:
            self._learn(request)
        if not request.keep_alive:
            self.deaf = True

    def _learn(self, request: Request) -> None:
        head, self._learns = self._learns, b""
        if not self._is_plain or not request.keep_alive or request.version != "1.1":
            return
        body_bytes = self._content_length
        if len(request.body) != body_bytes:
            return
        method, path, query = request.method, request.path, request.query
        known = RequestHead(method, path, query, request.fields, body_bytes, request.together)
        remember(self._heads, head, known)

    def _request(self, keep_alive: bool) -> Request:
        return Request(
            self._method,
            self._path.decode("latin-1"),
            self._query,
            bytes(self._body),
            self.remote,
            self._parser.get_http_version(),
            keep_alive,
            self._rule.together,
            bytes(self._fields),
        )

    def _refusal(self, path: str, host: bytes | None, fields: bytes) -> Response | None:
        if self._admit is None:
            return None
        caller = Caller(host, *(header_of(fields, name) for name in _OF_CALLER))
        return self._admit(self._method, path, self.remote, caller)

    def _refuse(self, response: Response) -> None:
        self.stop()
        self.waiting.append(RefusedRequest(self._request(keep_alive=False), response))

    # --- memory ---

    def _hold(self, count: int) -> None:
        self.held_bytes += count
        self._room.held_bytes += count

    def _drop_body(self) -> None:
        if self._body:
            self._room.held_bytes -= len(self._body)
            self._body = bytearray()


_HEAD_SECONDS = limits.HTTP_HEAD_NS / limits.SECOND
_BODY_SECONDS = limits.HTTP_BODY_NS / limits.SECOND
# `traceparent` is another one each time: remembered, it would push out heads that come again.
_NOT_PLAIN = (b"expect", b"transfer-encoding", b"traceparent")
_OF_CALLER = (b"origin", b"sec-fetch-site", b"authorization")
_NO_BODY = BodyRule(limits.HTTP_DISCARD_BYTES_MAX, Response(413, closes=True))
