"""A small HTTP/1.1 server: `httptools` parses, this module keeps order, bounds and time.

One `asyncio.Protocol` per connection. Requests of a connection are answered in the order they came
(pipelining), and an answer may come later: a publish is answered when its batch is safe. They are
also served one after another, save where the application says that requests may be served together:
publishes that came in one packet then share a batch, and their answers a packet. What a request may
cost is bounded before it is read: the application says, from method and path, how long a body may
be and what the answer is when it is longer. That answer ends the connection, because the rest of
such a body is not worth reading.

Bytes that are not HTTP get a fixed `400 Bad Request`. A connection that is about to close is
half-closed first and read for a moment, so that the answer is not lost to a reset.

A client that keeps its connection sends the same head again and again. Heads are remembered with
what the parser made of them; a request that begins with a known one, and is there as a whole, does
not go through the parser. Same bytes, same meaning: nothing is decided but by the parser. Only
plain heads are remembered: HTTP/1.1, no `Expect`, no transfer encoding, no offer to upgrade.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import httptools

from penstock import limits
from penstock.net.exchange import (
    Application,
    BodyRule,
    Request,
    Response,
    encode,
    encode_head,
    encode_response,
)
from penstock.net.sending import Body, Sending

BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\n\r\n400 Bad Request"
)
HEADERS_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\n\r\n431 Request Header Fields Too Large"
)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class _Refused(NamedTuple):
    """A request whose body was too long: answered in its turn, then the end."""

    request: Request
    response: Response


class _Slot:
    """A request that is being served: it is called with the answer, which waits here for its turn
    to be sent."""

    __slots__ = ("_connection", "request", "response")

    def __init__(self, connection: HttpConnection, request: Request) -> None:
        self._connection = connection
        self.request = request
        self.response: Response | None = None

    def __call__(self, response: Response) -> None:
        if self.response is not None:
            raise RuntimeError("a request was answered twice")
        self.response = response
        self._connection.send_answers()


class _Head(NamedTuple):
    """What the parser made of the head of a request."""

    method: str
    path: str
    query: bytes
    body_bytes: int
    together: bool


class HttpConnection(asyncio.Protocol):
    def __init__(self, application: Application, connections: set[HttpConnection]) -> None:
        self._application = application
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Request | _Refused | bytes] = deque()
        self._slots: deque[_Slot] = deque()  # being served, or answered before their turn
        self._out: list[bytes] = []  # answers to be written at the end of this turn
        self._flush_soon = False
        self._sending: Sending | None = None  # the answer of the first slot, from a file
        self._held_bytes = 0  # of bodies in `_waiting` and `_slots`
        self._serving = False  # inside _serve_waiting
        self._write_paused = False
        self._read_paused = False
        self._deaf = False  # the last answer is queued or sent: what still comes is dropped
        self._exiting = False
        self._head_bytes = 0  # of a request whose headers are not complete; -1 once they are
        self._between = True  # the parser stands between two requests
        self._heads = _heads_of(application)
        self._learns = b""  # the head that the parser is about to read
        self._touched = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._remote = ""
        self._begin()

    # --- what the loop calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._connections.add(self)
        peer = transport.get_extra_info("peername")
        self._remote = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "@"
        self._timer = self._loop.call_later(_IDLE_SECONDS, self._check_idle)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        self._transport = None
        self._waiting.clear()
        self._out.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._sending is not None:
            self._sending.pause()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._sending is not None:
            self._sending.resume()
        self._serve_waiting()

    def eof_received(self) -> bool:
        """The client has no more to say; what it asked is still answered."""
        self._deaf = True
        if not self._slots and not self._waiting:
            return False
        self._waiting.append(b"")
        # TLS has no half: what is asked for may be answered, but not after this.
        return self._transport is not None and self._transport.can_write_eof()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._between:
            data = self._take_known(data)
        if data:
            if self._head_bytes >= 0:
                self._head_bytes += len(data)
            else:
                self._touched = self._loop.time()
            self._feed(data)
            if self._head_bytes > limits.HTTP_HEADER_BYTES_MAX and not self._deaf:
                self._end_with(HEADERS_TOO_LARGE)
        self._serve_waiting()
        if self._is_loaded() and not self._read_paused and self._transport is not None:
            self._read_paused = True
            self._transport.pause_reading()

    def _is_loaded(self) -> bool:
        return (
            len(self._waiting) + len(self._slots) >= limits.HTTP_PIPELINE_MAX
            or self._held_bytes >= limits.HTTP_PIPELINE_BYTES_MAX
        )

    def _take_known(self, data: bytes) -> bytes:
        """Take whole requests whose heads are known. Returns what is left for the parser."""
        heads, waiting = self._heads, self._waiting
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
            method, path, query, body_bytes, together = known
            stop = end + 4 + body_bytes
            if stop > size:
                break
            body = data[end + 4 : stop]
            self._held_bytes += body_bytes
            waiting.append(Request(method, path, query, body, self._remote, "1.1", True, together))
            position = stop
        if position:
            self._touched = self._loop.time()
            return data[position:]
        return data

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # An offer to switch protocols, which a server is free to ignore.
            self._parser = httptools.HttpRequestParser(self)
            rest = data[upgrade.args[0] :]
            if rest and not self._deaf:
                self._feed(rest)
        except httptools.HttpParserError:
            if not self._deaf:
                self._end_with(BAD_REQUEST)

    # --- what the parser calls ---

    def _begin(self) -> None:
        self._target = b""
        self._method = ""
        self._path = b""
        self._query = b""
        self._content_length = 0
        self._expects_continue = False
        self._is_plain = True  # its head may be remembered
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._rule = _NO_BODY

    def on_message_begin(self) -> None:
        self._begin()
        self._head_bytes = 0
        self._between = False

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        size = len(name)
        if size == 14:
            if name.lower() == b"content-length" and value.isdigit():
                self._content_length = int(value[:20])
        elif size == 6:
            if name.lower() == b"expect":
                self._expects_continue = value.lower() == b"100-continue"
                self._is_plain = False
        elif size in (7, 17) and name.lower() in (b"upgrade", b"transfer-encoding"):
            self._is_plain = False

    def on_headers_complete(self) -> None:
        if self._deaf:
            return
        self._head_bytes = -1
        self._method = self._parser.get_method().decode("ascii")
        target = self._target
        if not target.startswith(b"/") and b"://" in target:  # absolute form
            target = b"/" + target.split(b"://", 1)[1].partition(b"/")[2]
        self._path, _, self._query = target.partition(b"?")
        self._rule = self._application.body_rule(self._method, self._path.decode("latin-1"))
        if self._content_length > self._rule.bytes_max:
            self._refuse()
        elif self._expects_continue and not self._slots and not self._waiting:
            self._write(CONTINUE)

    def on_body(self, part: bytes) -> None:
        if self._deaf:
            return
        self._body_bytes += len(part)
        if self._body_bytes > self._rule.bytes_max:
            self._refuse()
        else:
            self._body.append(part)

    def on_message_complete(self) -> None:
        if self._deaf:
            return
        self._head_bytes = 0
        self._touched = self._loop.time()
        request = self._request(self._parser.should_keep_alive())
        self._between = True
        self._waiting.append(request)
        self._held_bytes += len(request.body)
        self._body = []
        if self._learns:
            self._learn(request)
        if not request.keep_alive:
            self._deaf = True

    def _learn(self, request: Request) -> None:
        head, self._learns = self._learns, b""
        if not self._is_plain or not request.keep_alive or request.version != "1.1":
            return
        if len(request.body) != self._content_length:
            return
        if len(self._heads) >= limits.HTTP_HEADS_MAX:
            self._heads.clear()
        self._heads[head] = _Head(
            request.method, request.path, request.query, self._content_length, request.together
        )

    def _request(self, keep_alive: bool) -> Request:
        return Request(
            self._method,
            self._path.decode("latin-1"),
            self._query,
            b"".join(self._body),
            self._remote,
            self._parser.get_http_version(),
            keep_alive,
            self._rule.together,
        )

    def _refuse(self) -> None:
        self._deaf = True
        self._body = []
        self._waiting.append(_Refused(self._request(keep_alive=False), self._rule.refusal))

    def _end_with(self, answer: bytes) -> None:
        self._deaf = True
        self._waiting.append(answer)

    # --- serving ---

    def _serve_waiting(self) -> None:
        if self._serving:
            return
        self._serving = True
        waiting, slots = self._waiting, self._slots
        try:
            while waiting and not self._write_paused:
                item = waiting[0]
                if slots and not (
                    isinstance(item, Request) and item.together and slots[0].request.together
                ):
                    break
                waiting.popleft()
                self._serve(item)
        finally:
            self._serving = False
        if self._read_paused and self._transport is not None and not self._is_loaded():
            self._read_paused = False
            self._transport.resume_reading()

    def _serve(self, item: Request | _Refused | bytes) -> None:
        if isinstance(item, Request):
            slot = _Slot(self, item)
            self._slots.append(slot)
            self._application.serve(item, slot)
        elif isinstance(item, bytes):
            self._write(item)
            self._half_close(unread=True)
        else:
            self._write(encode_response(item.response, item.request, closes=True))
            self._half_close(unread=True)

    def send_answers(self) -> None:
        """Send the answers whose turn it is. While earlier requests of the connection still wait
        for theirs, what is ready goes out together at the end of this turn of the loop."""
        slots, out = self._slots, self._out
        while slots:
            slot = slots[0]
            request, response = slot.request, slot.response
            if response is None:
                break
            if response.file is not None:
                self._send_file(slot, response, response.file)
                return
            slots.popleft()
            self._held_bytes -= len(request.body)
            if self._transport is None:  # the client did not wait
                continue
            closes = response.closes or not request.keep_alive or (self._exiting and not slots)
            out.append(encode(response, request, closes))
            if closes:
                self._flush()
                self._half_close(unread=response.closes)
                return
        if not slots:
            self._flush()
        elif out and not self._flush_soon:
            self._flush_soon = True
            self._loop.call_soon(self._flush)
        if self._waiting or self._read_paused:
            self._serve_waiting()

    def _send_file(self, slot: _Slot, response: Response, body: Body) -> None:
        """The slot stays the first until all of it is sent: so nothing else is written."""
        if self._sending is not None:
            return
        request = slot.request
        closes = response.closes or not request.keep_alive or self._exiting

        def done(error: OSError | None) -> None:
            self._sending = None
            self._touched = self._loop.time()
            self._slots.popleft()
            self._held_bytes -= len(request.body)
            if self._transport is None:
                return
            if error is not None:  # the head is out, so there is no other way to say it
                self._transport.abort()
            elif closes:
                self._half_close(unread=response.closes)
            else:
                self.send_answers()

        if self._transport is None:  # the client did not wait
            body.release()
            done(None)
            return
        self._flush()
        head = encode_head(response, request, closes, body.length)
        self._sending = Sending(self._transport, body, head, done)
        self._sending.start()

    def _flush(self) -> None:
        self._flush_soon = False
        out = self._out
        if out:
            self._write(out[0] if len(out) == 1 else b"".join(out))
            out.clear()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and data:
            self._transport.write(data)

    def _half_close(self, unread: bool) -> None:
        self._deaf = True
        self._waiting.clear()
        self._slots.clear()
        if self._transport is None:
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        elif not unread:  # TLS has no half; only a client that still sends needs the moment
            self._transport.close()
            return
        self._arm(limits.CLOSE_DRAIN_NS / limits.SECOND, self._close)

    # --- time ---

    def _arm(self, seconds: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, call)

    def _check_idle(self) -> None:
        if self._slots:
            if self._sending is not None and self._sending.is_stuck():
                self.abort()
            self._arm(_IDLE_SECONDS, self._check_idle)
            return
        left = self._touched + _IDLE_SECONDS - self._loop.time()
        if left > 0:
            self._arm(left, self._check_idle)
        else:
            self._close()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    @property
    def is_serving(self) -> bool:
        """Is an answer still to be made? One that is on its way from a file does not count."""
        return bool(self._slots) and self._sending is None and self._transport is not None

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def stop(self) -> None:
        """The daemon is going: answer what is being served, then close."""
        self._exiting = True
        if not self._slots:
            self._close()


_Heads = dict[bytes, _Head]
_heads: WeakKeyDictionary[Application, _Heads] = WeakKeyDictionary()


def _heads_of(application: Application) -> _Heads:
    """What one application has seen; another may have other rules."""
    return _heads.setdefault(application, {})


_IDLE_SECONDS = limits.HTTP_IDLE_NS / limits.SECOND
_NO_BODY = BodyRule(limits.HTTP_DISCARD_BYTES_MAX, Response(413, closes=True))
