"""The requests of one HTTP connection, as they come in: `httptools` parses, this module keeps
bounds and time.

What a request may cost is bounded before it is read: the application says, from method and path,
how long a body may be and what the answer is when it is longer. That answer is the connection's
last, because the rest of such a body is not worth reading.

A request has to come in time: its head within HTTP_HEAD_NS, its body at HTTP_RATE_BYTES_MIN a
second at least. What comes with a chunked body that is no body (heads of chunks, their extensions,
trailers) has a bound too, and so have the bodies of all connections together (`net/bodies.py`).

Bytes that are not HTTP get a fixed `400 Bad Request`. Heads that were seen before do not go through
the parser again (`heads.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import httptools

from penstock import limits
from penstock.net import refusals
from penstock.net.bodies import BodyRoom, framing_max
from penstock.net.exchange import Application, BodyRule, Request, Response
from penstock.net.gate import Caller, CallerNotes
from penstock.net.heads import Head, heads_of, remember

Admit = Callable[[str, str, str, Caller], Response | None]  # method, path, remote, caller


class RefusedRequest(NamedTuple):
    """A request whose body is not read: it is too long, or its head was refused. Answered in its
    turn, then the end."""

    request: Request
    response: Response


class Incoming:
    """What is whole lies in `waiting`: requests, and after them perhaps the last answer of the
    connection, as a refused request or as bytes for what is no request."""

    def __init__(
        self,
        application: Application,
        room: BodyRoom,
        admit: Admit | None,
        now_s: Callable[[], float],
        say_continue: Callable[[], None],
    ) -> None:
        """`say_continue`: the client waits to be asked for the body, and nothing is before it."""
        self._application = application
        self._room = room
        self._admit = admit
        self._now_s = now_s
        self._say_continue = say_continue
        self.remote = ""
        self.waiting: deque[Request | RefusedRequest | bytes] = deque()
        self.held_bytes = 0  # of bodies in `waiting`, and of those that were taken from there
        self.deaf = False  # the last answer is queued or sent: what still comes is dropped
        self.touched = self._begun = now_s()  # `_begun`: the request that is coming in
        self._parser = httptools.HttpRequestParser(self)
        self._silent = True  # the client has not said anything
        self._messages = 0  # that the parser has begun to read
        self._head_bytes = 0  # of a request whose headers are not complete; -1 once they are
        self.between = True  # the parser stands between two requests
        self._heads = heads_of(application if admit is None else admit)
        self._learns = b""  # the head that the parser is about to read
        self._body = bytearray()
        self._begin()

    # --- what the connection calls ---

    def take(self, data: bytes) -> None:
        """Bytes from the client, who may still be heard."""
        self._silent = False
        if self.between:
            data = self._take_known(data)
        if data:
            self._parse(data)

    def is_due(self) -> bool:
        """Has the client a request to finish, or to begin for the first time?"""
        return not self.deaf and (not self.between or self._silent)

    def seconds_left(self) -> float:
        """For the request that is coming in."""
        seconds = _HEAD_SECONDS
        if self._head_bytes < 0:
            seconds = _BODY_SECONDS + self._body_bytes / limits.HTTP_RATE_BYTES_MIN
        return self._begun + seconds - self._now_s()

    def grant(self) -> None:
        """Its time begins again: that it did not come any further while nothing was read is not
        the client's fault."""
        self._begun = self._now_s()

    def end_with(self, answer: bytes) -> None:
        self.stop()
        self.waiting.append(answer)

    def stop(self) -> None:
        """What still comes is dropped."""
        self.deaf = True
        self._drop_body()

    def let_go(self, count: int) -> None:
        """Of a body that was answered."""
        self.held_bytes -= count
        self._room.give(count)

    def drop(self) -> None:
        """The connection is gone, or about to go: nothing of this is served any more."""
        self._drop_body()
        self.let_go(sum(len(one.body) for one in self.waiting if isinstance(one, Request)))
        self.waiting.clear()

    # --- whole requests, and pieces of one ---

    def _take_known(self, data: bytes) -> bytes:
        """Take whole requests whose heads are known. Returns what is left for the parser."""
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
            self.end_with(refusals.HEADERS_TOO_LARGE)
        elif is_inside and message == self._messages and not self.between:
            self._behind_head_bytes += len(data)
            if self._behind_head_bytes - self._body_bytes > framing_max(self._body_bytes):
                self.end_with(refusals.HEADERS_TOO_LARGE)

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # An offer to switch protocols, which a server is free to ignore.
            self._parser = httptools.HttpRequestParser(self)
            rest = data[upgrade.args[0] :]
            if rest and not self.deaf:
                self._feed(rest)
        except httptools.HttpParserError:
            if not self.deaf:
                self.end_with(refusals.BAD_REQUEST)

    # --- what the parser calls ---

    def _begin(self) -> None:
        self._target = b""
        self._method = ""
        self._path = b""
        self._query = b""
        self._fields: list[bytes] = []
        self._content_length = 0
        self._expects_continue = False
        self._caller = CallerNotes()
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
        self._fields.append(b"\r\n%b: %b" % (name, value.strip(b" \t")))
        if name == b"content-length":
            if value.isdigit():
                self._content_length = int(value[:20])
        elif name == b"expect":
            self._expects_continue = value.lower() == b"100-continue"
            self._is_plain = False
        elif name in _NOT_PLAIN:
            self._is_plain = False
        else:
            self._caller.note(name, value)

    def on_headers_complete(self) -> None:
        if self.deaf:
            return
        self._head_bytes = -1
        self._method = self._parser.get_method().decode("ascii")
        target = self._target
        if not target.startswith(b"/") and b"://" in target:  # absolute form
            authority, _, rest = target.split(b"://", 1)[1].partition(b"/")
            self._caller.note_authority(authority)
            target = b"/" + rest
        self._path, _, self._query = target.partition(b"?")
        path = self._path.decode("latin-1")
        self._rule = self._application.body_rule(self._method, path)
        if not self._caller.is_clear:
            self.end_with(refusals.BAD_REQUEST)
        elif refusal := self._refusal(path):
            self._refuse(refusal)
        elif self._content_length > self._rule.bytes_max:
            self._refuse(self._rule.refusal)
        elif self._expects_continue and not self.waiting:
            self._say_continue()

    def on_body(self, part: bytes) -> None:
        if self.deaf:
            return
        self._body_bytes += len(part)
        if self._body_bytes > self._rule.bytes_max:
            self._refuse(self._rule.refusal)
        elif self._room.has(len(part), self._body_bytes):
            self._room.take(len(part))
            self._body += part
        else:
            self._refuse(refusals.NO_ROOM)

    def on_message_complete(self) -> None:
        if self.deaf:
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
        known = Head(method, path, query, request.fields, body_bytes, request.together)
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
            b"".join(self._fields),
        )

    def _refusal(self, path: str) -> Response | None:
        if self._admit is None:
            return None
        return self._admit(self._method, path, self.remote, self._caller.caller())

    def _refuse(self, response: Response) -> None:
        self.stop()
        self.waiting.append(RefusedRequest(self._request(keep_alive=False), response))

    # --- memory ---

    def _hold(self, count: int) -> None:
        self.held_bytes += count
        self._room.take(count)

    def _drop_body(self) -> None:
        if self._body:
            self._room.give(len(self._body))
            self._body = bytearray()


_HEAD_SECONDS = limits.HTTP_HEAD_NS / limits.SECOND
_BODY_SECONDS = limits.HTTP_BODY_NS / limits.SECOND
# `traceparent` is another one each time: remembered, it would push out heads that come again.
_NOT_PLAIN = (b"upgrade", b"transfer-encoding", b"traceparent")
_NO_BODY = BodyRule(limits.HTTP_DISCARD_BYTES_MAX, Response(413, closes=True))
