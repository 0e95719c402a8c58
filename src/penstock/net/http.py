"""A small HTTP/1.1 server: `incoming.py` reads requests, this module serves and answers them.

One `asyncio.Protocol` per connection. Requests of a connection are answered in the order they came
(pipelining), and an answer may come later: a publish is answered when its batch is safe. They are
also served one after another, save where the application says that requests may be served together:
publishes that came in one packet then share a batch, and their answers a packet.

A connection that is about to close is half-closed first and read for a moment, so that the answer
is not lost to a reset.

The body of an answer may be in a file. Where the transport is plain and has nothing left to write,
it goes from file to socket without passing through here. Otherwise slices are read beside the loop
and written by the transport, one after the other, as fast as the client takes them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock import limits
from penstock.log.open_files import connections_end
from penstock.net import incoming as refusals
from penstock.net.exchange import (
    Application,
    Request,
    Response,
    encode,
    encode_head,
    encode_response,
)
from penstock.net.incoming import Admit, BodyRoom, Incoming, RefusedRequest

if TYPE_CHECKING:
    from penstock.net.bulk import FileBody

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class _Slot:
    """A request being served: called with the answer, which waits here for its turn."""

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
        """`admit` checks the head of each request: None admits it."""
        self._application = application
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        room = BodyRoom() if room is None else room
        self._incoming = Incoming(application, room, admit, self._loop.time, self._send_continue)
        self._transport: asyncio.Transport | None = None
        self._slots: deque[_Slot] = deque()  # being served, or answered before their turn
        self._out: list[bytes] = []  # answers to be written at the end of this turn
        self._flush_soon = False
        self._sending: FileBody | None = None  # the answer of the first slot, from a file
        self._serving = False  # inside _serve_waiting, or about to go on with it
        self._write_paused = False
        self._read_paused = False
        self._exiting = False
        self._drained_bytes = 0  # that came after the last answer
        self._timer: asyncio.TimerHandle | None = None
        self._late: asyncio.TimerHandle | None = None  # for the request that is coming in
        self._unsent_bytes = 0  # when it was last looked whether the client takes its answer

    # --- callbacks of the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._connections.add(self)
        peer = transport.get_extra_info("peername")
        self._incoming.remote = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "@"
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= connections_end():
            self._incoming.stop()
            self._write(refusals.NO_DESCRIPTOR)
            return self._close()
        self._timer = self._loop.call_later(_IDLE_SECONDS, self._check_idle)
        self._late = self._loop.call_later(self._incoming.seconds_left(), self._check_late)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        self._transport = None
        self._incoming.drop()
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
        """The client has ended its stream; its requests are still answered."""
        incoming = self._incoming
        if not self._slots and not incoming.waiting:
            incoming.stop()
            return False
        incoming.end_with(b"")
        # TLS has no half: what is asked for may be answered, but not after this.
        return self._transport is not None and self._transport.can_write_eof()

    def data_received(self, data: bytes) -> None:
        incoming = self._incoming
        if incoming.deaf:
            self._drain(len(data))
            return
        incoming.take(data)
        if self._late is None and incoming.is_due():
            self._late = self._loop.call_later(incoming.seconds_left(), self._check_late)
        self._serve_waiting()
        self._pause_if_loaded()

    def _send_continue(self) -> None:
        if not self._slots:
            self._write(CONTINUE)

    def _drain(self, count: int) -> None:
        """Input after the last answer is read for a moment, within a bound."""
        self._drained_bytes += count
        self._pause_if_loaded()

    def _pause_if_loaded(self) -> None:
        if self._is_loaded() and not self._read_paused and self._transport is not None:
            self._read_paused = True
            self._transport.pause_reading()

    def _is_loaded(self) -> bool:
        return (
            len(self._incoming.waiting) + len(self._slots) >= limits.HTTP_PIPELINE_MAX
            or self._incoming.held_bytes >= limits.HTTP_PIPELINE_BYTES_MAX
            or self._drained_bytes >= limits.DRAIN_BYTES_MAX
        )

    # --- serving ---

    def _serve_waiting(self) -> None:
        if self._serving:
            return
        self._serving = True
        waiting, slots = self._incoming.waiting, self._slots
        while waiting and not self._write_paused:
            together = isinstance(waiting[0], Request) and waiting[0].together
            if slots and not (together and slots[0].request.together):
                break
            self._serve(waiting.popleft())
            if waiting and not together:  # others have their turn: it may have taken a while
                self._loop.call_soon(self._serve_next)
                return
        self._serving = False
        if self._read_paused and self._transport is not None and not self._is_loaded():
            self._read_paused = False
            self._transport.resume_reading()

    def _serve_next(self) -> None:
        self._serving = False
        self._serve_waiting()

    def _serve(self, item: Request | RefusedRequest | bytes) -> None:
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
        """Send the answers that are due. While earlier requests of the connection still wait for
        theirs, ready answers go out together at the end of this turn of the loop."""
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
            self._incoming.let_go(len(request.body))
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
        if self._incoming.waiting or self._read_paused:
            self._serve_waiting()

    def _send_file(self, slot: _Slot, response: Response, body: FileBody) -> None:
        """The slot stays the first until all of it is sent: so nothing else is written."""
        if self._sending is not None:
            return
        request = slot.request
        closes = response.closes or not request.keep_alive or self._exiting

        def done(error: OSError | None) -> None:
            self._sending = None
            self._incoming.touched = self._loop.time()
            self._slots.popleft()
            self._incoming.let_go(len(request.body))
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
        self._sending = body
        body.send(self._transport, head, done)

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
        self._incoming.stop()
        self._incoming.drop()
        self._slots.clear()
        self._incoming.let_go(self._incoming.held_bytes)
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
        left = self._incoming.touched + _IDLE_SECONDS - self._loop.time()
        if left > 0:
            self._arm(left, self._check_idle)
        else:
            self._close()

    def _check_late(self) -> None:
        """Is the incoming request too slow?"""
        self._late = None
        incoming = self._incoming
        if not incoming.is_due():
            return
        if self._read_paused:
            incoming.grant()
        left = incoming.seconds_left()
        if left > 0:
            self._late = self._loop.call_later(left, self._check_late)
        elif incoming.between:
            self._close()
        else:
            incoming.end_with(refusals.TIMED_OUT)
            self._serve_waiting()

    def _close(self) -> None:
        """Output is sent first, if the client reads it."""
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
        """Is an answer outstanding? One on its way from a file does not count."""
        return bool(self._slots) and self._sending is None and self._transport is not None

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def stop(self) -> None:
        """The daemon stops: answer running requests, then close."""
        self._exiting = True
        if not self._slots:
            self._close()


_IDLE_SECONDS = limits.HTTP_IDLE_NS / limits.SECOND
