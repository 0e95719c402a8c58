"""Connections whose bytes pass through TLS or compression on their way to the kernel.

The engine reads and writes plain sockets by itself. Once a client has agreed on TLS, snappy or
deflate, the engine gives its socket away, and a `ServerLink` moves the bytes from then on:

    socket -> TLS -> snappy or deflate -> Conn.feed
    socket <- TLS <- snappy or deflate <- Conn.take_output

The kernel's connection stays what it was, and the turn of the loop too: after each flush the turn
calls `Links.serve` with the connections that have something to do.

    QUIET --secure--> SHAKING --done--> QUIET --open--> OPEN --conn ended--> ENDING --> CLOSED

Back-pressure, in both directions:

* A link takes the kernel's output only when all it has taken before is in the socket. What it
  leaves there counts as unsent, so a slow client stalls its deliveries as on a plain connection.
* A piece at a time is decoded and fed, then the kernel has its turn, which says whether it wants
  more. What is still encoded waits in the layers, which hold one read of the socket at most; then
  the socket is left alone.

The end: what the kernel had to send is sent, then TLS's own goodbye, then the socket is half closed
and read for a moment, so that no last word (often an error) is lost to a reset. A connection that
ends with output left is one that could not be reached, and is cut.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from enum import Enum

from penstock import limits
from penstock.errors import StreamBroken
from penstock.kernel import Conn, Engine
from penstock.net.tls import Tls
from penstock.wire.identify import Decoder, Encoder

log = logging.getLogger("penstock.net")

_NOTHING = memoryview(b"")


class LinkState(Enum):
    QUIET = "quiet"  # nothing is read: the daemon decides what comes next
    SHAKING = "shaking"  # the TLS handshake
    OPEN = "open"
    ENDING = "ending"  # the kernel is done with it; last bytes go out
    CLOSED = "closed"


class Links:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, engine: Engine, soon: Callable[[], None]
    ) -> None:
        self.loop = loop
        self.engine = engine
        self.soon = soon  # have a turn run
        self.again: dict[ServerLink, None] = {}  # may have more to feed, after the kernel's turn
        self.by_serial: dict[int, ServerLink] = {}
        self.received = memoryview(bytearray(limits.LINK_BYTES))  # used within one call only
        self.plain = memoryview(bytearray(limits.LINK_BYTES))

    def serve(self, conns: list[Conn]) -> None:
        """After a flush: output to send, reading to stop or resume, ends."""
        again, self.again = self.again, {}
        for conn in conns:
            link = self.by_serial.get(conn.serial)
            if link is not None:
                link.guard(link.serve)
        for link in again:
            link.guard(link.feed)

    def abort(self) -> None:
        for link in list(self.by_serial.values()):
            link.abort()


class ServerLink:
    def __init__(self, links: Links, conn: Conn) -> None:
        """Take over the socket of a halted connection. Its pending output is still sent
        unchanged."""
        descriptor, self._early = links.engine.detach(conn)
        self.conn = conn
        self.tls: Tls | None = None
        self._links = links
        self._sock = socket.socket(fileno=descriptor)
        self._encoder: Encoder | None = None
        self._decoder: Decoder | None = None
        self._state = LinkState.QUIET
        self._unsent = _NOTHING
        self._watched = False  # for readiness to be read
        self._backlog = False  # the layers may hold plain bytes for the kernel
        self._received_all = False  # nothing more comes that the kernel could be given
        self._eof = False
        self._drained_bytes = 0
        self._done: Callable[[str], None] | None = None  # who waits for the handshake
        self._timer: asyncio.TimerHandle | None = None
        links.by_serial[conn.serial] = self
        self._send(conn.take_output())

    def guard(self, act: Callable[[], None]) -> None:
        """A fault of the program costs this connection, not the daemon."""
        try:
            act()
        except Exception:
            log.exception("internal error in a connection with TLS or compression")
            self.abort()

    # --- calls of the daemon while it is quiet ---

    def secure(self, context: ssl.SSLContext, done: Callable[[str], None]) -> None:
        """Start the handshake; `done` receives the reason of a failure, or an empty text. After a
        failure the link is without TLS, and further output is sent in the clear."""
        if self._state is not LinkState.QUIET:
            return
        self.tls = Tls(context)
        self.tls.feed(self._early)
        self._early = b""
        self._done = done
        self._state = LinkState.SHAKING
        self._arm(limits.TLS_HANDSHAKE_NS, self._on_handshake_late)
        self._watch()
        self._shake()

    def compress(self, encoder: Encoder, decoder: Decoder) -> None:
        self._encoder, self._decoder = encoder, decoder
        decoder.feed(self._early)
        self._early = b""

    def send(self, data: bytes) -> None:
        """Send something through the layers that there are now."""
        self._send(self._encoded(data))

    def open(self) -> None:
        """From now on the kernel reads and writes."""
        if self._state is LinkState.QUIET:
            self._state = LinkState.OPEN
            self._backlog = True
            self._links.again[self] = None
            self._links.soon()

    # --- the handshake ---

    def _shake(self) -> None:
        tls = self.tls
        if tls is None:
            raise RuntimeError("a handshake without TLS")
        finished, failure = False, ""
        try:
            finished = tls.shake()
        except (ssl.SSLError, ValueError) as error:
            words = (getattr(error, name, None) for name in ("reason", "verify_message"))
            failure = ": ".join(filter(None, words)) or str(error)
        self._send(tls.output())  # in a failure the alert
        if finished or failure:
            self._shaken(failure)

    def _on_handshake_late(self) -> None:
        self._timer = None
        self._shaken("TLS handshake timeout")

    def _shaken(self, failure: str) -> None:
        self._disarm()
        done, self._done = self._done, None
        if self._state is LinkState.CLOSED or done is None:
            return
        self._state = LinkState.QUIET
        if failure:
            self.tls = None
        done(failure)

    # --- socket to kernel ---

    def _receive(self) -> None:
        wanted = self.conn.reading and not (self._backlog or self._received_all)
        if self._state is LinkState.OPEN and not wanted:
            self._unwatch()
            return
        view = self._links.received
        try:
            size = self._sock.recv_into(view)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(error)
            return
        if size and self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._watch_anew()
        if size == 0:
            self._on_eof()
        elif self._state is LinkState.ENDING:
            self._drained_bytes += size
            if self._drained_bytes > limits.DRAIN_BYTES_MAX:
                self.abort()
        else:
            self._take(view[:size])

    def _take(self, data: memoryview) -> None:
        if self.tls is not None:
            self.tls.feed(data)
        elif self._decoder is not None:
            self._decoder.feed(data)
        if self._state is LinkState.SHAKING:
            self._shake()
        elif self._state is LinkState.OPEN:
            self.feed()

    def _on_eof(self) -> None:
        self._eof = self._received_all = True
        self._unwatch()
        if self._state is LinkState.OPEN:
            self.feed()
        else:
            self.abort()

    def feed(self) -> None:
        """Give the kernel the next piece, if it wants one, and go on after its turn."""
        conn = self.conn
        if self._state is not LinkState.OPEN or conn.ended:
            return
        if not conn.reading:
            self._backlog = True
            return
        piece = _NOTHING
        try:
            piece = self._piece()
        except (StreamBroken, ssl.SSLError) as error:
            log.info("a client's stream cannot be read: %s", error)
            self._backlog = False
            self._received_all = True
        if self.tls is not None:
            self._received_all = self._received_all or self.tls.ended
            self._send(self.tls.output())
        if len(piece):
            conn.feed(piece)
        if self._backlog:
            self._links.again[self] = None
        elif self._received_all:
            conn.feed_eof()
        else:
            self._watch()
        if len(piece) or self._received_all:
            self._links.soon()

    def _piece(self) -> memoryview:
        """Plain bytes, at most LINK_BYTES; sets whether there may be more."""
        tls, decoder, view = self.tls, self._decoder, self._links.plain
        if decoder is None:
            size = 0 if tls is None else tls.read_into(view)
            self._backlog = size > 0 and tls is not None and tls.has_input
            return view[:size]
        count = decoder.read_into(view)
        while not count and tls is not None and (size := tls.read_into(view)):
            decoder.feed(view[:size])
            count = decoder.read_into(view)
        self._backlog = count > 0
        return view[:count]

    # --- kernel to socket ---

    def serve(self) -> None:
        conn = self.conn
        if self._state is LinkState.OPEN and not self._unsent:
            data = conn.take_output()
            if data:
                self._send(self._encoded(data))
        if conn.ended:
            self._finish()
        elif self._state is LinkState.OPEN and conn.reading:
            if self._backlog:
                self.feed()
            elif not self._received_all:
                self._watch()

    def _encoded(self, data: bytes) -> bytes:
        if self._encoder is not None:
            data = self._encoder.encode(data)
        return data if self.tls is None else self.tls.encode(data)

    def _send(self, data: bytes) -> None:
        if not data or self._state is LinkState.CLOSED:
            return
        if self._unsent:
            self._unsent = memoryview(bytes(self._unsent) + data)
            return
        self._unsent = self._pushed(memoryview(data))
        if self._unsent:
            self._links.loop.add_writer(self._sock.fileno(), self.guard, self._send_rest)

    def _pushed(self, data: memoryview) -> memoryview:
        """The bytes that the socket did not accept."""
        try:
            return data[self._sock.send(data) :]
        except (BlockingIOError, InterruptedError):
            return data
        except OSError as error:
            self._lost(error)
            return _NOTHING

    def _send_rest(self) -> None:
        self._unsent = self._pushed(self._unsent)
        if self._unsent or self._state is LinkState.CLOSED:
            return
        self._links.loop.remove_writer(self._sock.fileno())
        if self._state is LinkState.ENDING:
            self._shut()
        else:
            self.serve()
            self._links.soon()  # the kernel has room again

    # --- the end ---

    def _finish(self) -> None:
        """The kernel has reported the end of this connection."""
        if self._state is not LinkState.OPEN or self.conn.unsent:
            if self._state is not LinkState.ENDING:
                self.abort()
            return
        self._state = LinkState.ENDING
        self._arm(limits.CLOSE_DRAIN_NS, self.abort)
        if self.tls is not None:
            self._send(self.tls.close())
        if not self._unsent and self._state is LinkState.ENDING:
            self._shut()

    def _shut(self) -> None:
        if self._eof:
            self.abort()
            return
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.abort()
            return
        self._watch()

    def _lost(self, error: OSError) -> None:
        log.info("connection lost: %s", error)
        self.abort()

    def abort(self) -> None:
        """Close the socket now, and tell the kernel."""
        if self._state is LinkState.CLOSED:
            return
        self._state = LinkState.CLOSED
        self._disarm()
        self._unwatch()
        self._links.loop.remove_writer(self._sock.fileno())
        self._sock.close()
        self._unsent = _NOTHING
        del self._links.by_serial[self.conn.serial]
        if not self.conn.ended:
            self.conn.close()
            self._links.soon()

    # --- readiness and time ---

    def _watch(self) -> None:
        if not self._watched and self._state is not LinkState.CLOSED:
            self._watched = True
            self._links.loop.add_reader(self._sock.fileno(), self.guard, self._receive)

    def _watch_anew(self) -> None:
        """A reset came right after some bytes. uvloop reports an error once and then stops
        watching, so without this the end would never be seen, and the socket stay open."""
        self._unwatch()
        self._watch()

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._links.loop.remove_reader(self._sock.fileno())

    def _arm(self, wait_ns: int, call: Callable[[], None]) -> None:
        self._disarm()
        self._timer = self._links.loop.call_later(wait_ns / limits.SECOND, call)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
