"""A small HTTP/1.1 server: `httptools` parses, this module keeps order, bounds and time.

One `asyncio.Protocol` per connection. Requests of a connection are answered in the order they came
(pipelining), and an answer may come later: a publish is answered when its batch is safe. They are
also served one after another, save where the application says that requests may be served together:
publishes that came in one packet then share a batch, and their answers a packet. What a request may
cost is bounded before it is read: the application says, from method and path, how long a body may
be and what the answer is when it is longer. That answer ends the connection, because the rest of
such a body is not worth reading.

A request has to come in time: its head within HTTP_HEAD_NS, its body at HTTP_RATE_BYTES_MIN a
second at least. What comes with a chunked body that is no body (heads of chunks, their extensions,
trailers) has a bound too, and so have the bodies of all connections together (`net/bodies.py`).

Bytes that are not HTTP get a fixed `400 Bad Request`. A connection that is about to close is
half-closed first and read for a moment, so that the answer is not lost to a reset.

Heads that were seen before do not go through the parser again (`heads.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import httptools

from penstock import limits
from penstock.log.openfiles import connections_end
from penstock.net import refusals
from penstock.net.bodies import BodyRoom, framing_max
from penstock.net.exchange import (
    Application,
    BodyRule,
    Request,
    Response,
    encode,
    encode_head,
    encode_response,
)
from penstock.net.gate import Caller, CallerNotes
from penstock.net.heads import Head, heads_of, remember
from penstock.net.sending import Body, Sending

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


Admit = Callable[[str, str, str, Caller], Response | None]  # method, path, remote, caller


class _Refused(NamedTuple):
    """A request whose body is not read: it is too long, or its head was refused. Answered in its
    turn, then the end."""

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


class HttpConnection(asyncio.Protocol):
    def __init__(
        self,
        application: Application,
        connections: set[HttpConnection],
        room: BodyRoom | None = None,
        admit: Admit | None = None,
    ) -> None:
        """`admit` is asked about the head of each request: None lets it in."""
        self._application = application
        self._admit = admit
        self._connections = connections
        self._room = room if room is not None else BodyRoom()
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
        self._drained_bytes = 0  # that came when it was deaf
        self._silent = True  # the client has not said anything
        self._messages = 0  # that the parser has begun to read
        self._head_bytes = 0  # of a request whose headers are not complete; -1 once they are
        self._between = True  # the parser stands between two requests
        self._heads = heads_of(application if admit is None else admit)
        self._learns = b""  # the head that the parser is about to read
        self._touched = self._loop.time()
        self._begun = self._touched  # when the request began that is coming in
        self._timer: asyncio.TimerHandle | None = None
        self._late: asyncio.TimerHandle | None = None  # for the request that is coming in
        self._unsent_bytes = 0  # when it was last looked whether the client takes its answer
        self._remote = ""
        self._body = bytearray()
        self._begin()

    # --- what the loop calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._connections.add(self)
        peer = transport.get_extra_info("peername")
        self._remote = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "@"
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= connections_end():
            self._deaf = True
            self._write(refusals.NO_DESCRIPTOR)
            return self._close()
        self._timer = self._loop.call_later(_IDLE_SECONDS, self._check_idle)
        self._late = self._loop.call_later(_HEAD_SECONDS, self._check_late)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        self._transport = None
        self._drop_body()
        self._drop_waiting()
        self._out.clear()
        for timer in (self._timer, self._late):
            if timer is not None:
                timer.cancel()
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
        self._drop_body()
        if not self._slots and not self._waiting:
            return False
        self._waiting.append(b"")
        # TLS has no half: what is asked for may be answered, but not after this.
        return self._transport is not None and self._transport.can_write_eof()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._drain(len(data))
            return
        self._silent = False
        if self._between:
            data = self._take_known(data)
        if data:
            self._take(data)
        self._serve_waiting()
        self._pause_if_loaded()

    def _drain(self, count: int) -> None:
        """What comes after the last answer is read for a moment, but not without end."""
        self._drained_bytes += count
        self._pause_if_loaded()

    def _take(self, data: bytes) -> None:
        message = self._messages
        is_inside = self._head_bytes < 0
        if is_inside:
            self._touched = self._loop.time()
        else:
            self._head_bytes += len(data)
        self._feed(data)
        if self._deaf:
            return
        if self._head_bytes > limits.HTTP_HEADER_BYTES_MAX:
            self._end_with(refusals.HEADERS_TOO_LARGE)
        elif is_inside and message == self._messages and not self._between:
            self._behind_head_bytes += len(data)
            if self._behind_head_bytes - self._body_bytes > framing_max(self._body_bytes):
                self._end_with(refusals.HEADERS_TOO_LARGE)
        if not self._between and self._late is None:
            self._late = self._loop.call_later(_HEAD_SECONDS, self._check_late)

    def _pause_if_loaded(self) -> None:
        if self._is_loaded() and not self._read_paused and self._transport is not None:
            self._read_paused = True
            self._transport.pause_reading()

    def _is_loaded(self) -> bool:
        return (
            len(self._waiting) + len(self._slots) >= limits.HTTP_PIPELINE_MAX
            or self._held_bytes >= limits.HTTP_PIPELINE_BYTES_MAX
            or self._drained_bytes >= limits.DRAIN_BYTES_MAX
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
            if stop > size or not self._room.has(body_bytes, body_bytes):
                break
            body = data[end + 4 : stop]
            self._hold(body_bytes)
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
                self._end_with(refusals.BAD_REQUEST)

    # --- what the parser calls ---

    def _begin(self) -> None:
        self._target = b""
        self._method = ""
        self._path = b""
        self._query = b""
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
        self._between = False
        self._begun = self._loop.time()

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_bytes < 0:
            return  # a trailer, which says nothing about how to read the request
        name = name.lower()
        if name == b"content-length":
            if value.isdigit():
                self._content_length = int(value[:20])
        elif name == b"expect":
            self._expects_continue = value.lower() == b"100-continue"
            self._is_plain = False
        elif name in (b"upgrade", b"transfer-encoding"):
            self._is_plain = False
        else:
            self._caller.note(name, value)

    def on_headers_complete(self) -> None:
        if self._deaf:
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
            self._end_with(refusals.BAD_REQUEST)
        elif refusal := self._refusal(path):
            self._refuse(refusal)
        elif self._content_length > self._rule.bytes_max:
            self._refuse(self._rule.refusal)
        elif self._expects_continue and not self._slots and not self._waiting:
            self._write(CONTINUE)

    def on_body(self, part: bytes) -> None:
        if self._deaf:
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
        if self._deaf:
            return
        self._head_bytes = 0
        self._touched = self._loop.time()
        request = self._request(self._parser.should_keep_alive())
        self._between = True
        self._waiting.append(request)
        self._drop_body()
        self._hold(len(request.body))
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
        method, path, query = request.method, request.path, request.query
        remember(
            self._heads, head, Head(method, path, query, self._content_length, request.together)
        )

    def _request(self, keep_alive: bool) -> Request:
        return Request(
            self._method,
            self._path.decode("latin-1"),
            self._query,
            bytes(self._body),
            self._remote,
            self._parser.get_http_version(),
            keep_alive,
            self._rule.together,
        )

    def _refusal(self, path: str) -> Response | None:
        if self._admit is None:
            return None
        return self._admit(self._method, path, self._remote, self._caller.caller())

    def _refuse(self, response: Response) -> None:
        self._deaf = True
        self._drop_body()
        self._waiting.append(_Refused(self._request(keep_alive=False), response))

    def _end_with(self, answer: bytes) -> None:
        self._deaf = True
        self._drop_body()
        self._waiting.append(answer)

    # --- memory ---

    def _hold(self, count: int) -> None:
        self._held_bytes += count
        self._room.take(count)

    def _let_go(self, count: int) -> None:
        self._held_bytes -= count
        self._room.give(count)

    def _drop_body(self) -> None:
        if self._body:
            self._room.give(len(self._body))
            self._body = bytearray()

    def _drop_waiting(self) -> None:
        self._let_go(sum(len(one.body) for one in self._waiting if isinstance(one, Request)))
        self._waiting.clear()

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
            self._let_go(len(request.body))
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
            self._let_go(len(request.body))
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
        self._drop_waiting()
        self._slots.clear()
        self._let_go(self._held_bytes)
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

    def _check_late(self) -> None:
        """Is the request that is coming in too slow? That it does not come any further while we do
        not read is not the client's fault."""
        self._late = None
        if self._deaf or (self._between and not self._silent):
            return
        now = self._loop.time()
        if self._read_paused:
            self._begun = now
        seconds = _HEAD_SECONDS
        if self._head_bytes < 0:
            seconds = _BODY_SECONDS + self._body_bytes / limits.HTTP_RATE_BYTES_MIN
        left = self._begun + seconds - now
        if left > 0:
            self._late = self._loop.call_later(left, self._check_late)
        elif self._between:
            self._close()
        else:
            self._end_with(refusals.TIMED_OUT)
            self._serve_waiting()

    def _close(self) -> None:
        """What is written goes out first, if the client takes it."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()  # once: TLS's transport forgets its buffer the second time
        if self._transport is not None:
            self._unsent_bytes = self._transport.get_write_buffer_size()
            self._arm(_IDLE_SECONDS, self._check_unsent)

    def _check_unsent(self) -> None:
        if self._transport is None:
            return
        left = self._transport.get_write_buffer_size()
        if self._unsent_bytes - left < _IDLE_SECONDS * limits.HTTP_RATE_BYTES_MIN:
            self._transport.abort()
        else:
            self._unsent_bytes = left
            self._arm(_IDLE_SECONDS, self._check_unsent)

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


_IDLE_SECONDS = limits.HTTP_IDLE_NS / limits.SECOND
_HEAD_SECONDS = limits.HTTP_HEAD_NS / limits.SECOND
_BODY_SECONDS = limits.HTTP_BODY_NS / limits.SECOND
_NO_BODY = BodyRule(limits.HTTP_DISCARD_BYTES_MAX, Response(413, closes=True))
