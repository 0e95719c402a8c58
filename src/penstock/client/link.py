"""One connection to an nsqd: the shell around its bytes.

It lives in two phases. In the greeting it reads one frame at a time, because the form of the
stream may change behind each. Then `start` names the function that gets every buffer from there
on. What is written is gathered and goes out once per turn of the loop, as one buffer.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import cast

from penstock import limits
from penstock.client import framing
from penstock.client.handshake import Negotiated, Upgrade, identify, negotiate
from penstock.client.options import ConnectionOptions, split_address
from penstock.errors import ConnectFailed, ServerRefused
from penstock.net.outgoing import words_of
from penstock.wire.compression import DeflateDecoder, DeflateEncoder, SnappyDecoder, SnappyEncoder
from penstock.wire.frames import HEARTBEAT, MAGIC_V2, Frame, FrameType
from penstock.wire.identify import Decoder, Encoder

log = logging.getLogger("penstock.client")

READ_BYTES = 256 * limits.KIB  # decompressed bytes handed on at a time
WRITE_SOON_BYTES = 64 * limits.KIB  # gathered output beyond this does not wait for the turn's end


class Link(asyncio.Protocol):
    """Made by `connect`. `lost`: nothing can be sent any more; `on_lost` is then called, once, in
    the same turn of the loop. Unsent bytes are in `unsent`."""

    def __init__(self, address: str, options: ConnectionOptions) -> None:
        self.address = address
        self.negotiated = Negotiated()
        self.lost = False
        self.reason = "closed"
        self.on_lost: Callable[[], None] | None = None
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._encoder: Encoder | None = None
        self._decoder: Decoder | None = None
        self._plain = memoryview(b"")  # room for what it reads
        self._early = bytearray()  # greeting: bytes not yet read
        self._waiter: asyncio.Future[None] | None = None
        self._receive: Callable[[bytes], None] | None = None
        self.unsent: list[bytes] = []
        self._out_bytes = 0
        self._flushing = False
        self._write_paused = False
        self._closing = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self.received_s = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None

    # --- greeting ---

    async def frame(self) -> Frame:
        """The next frame of the greeting; heartbeats are answered, errors raise ServerRefused."""
        while True:
            try:
                found = framing.take_frame(self._early, limits.CLIENT_GREETING_BYTES_MAX)
            except framing.FrameBroken as error:
                raise ConnectFailed(self.address, str(error)) from error
            if found is None:
                await self._more()
            elif found.type == FrameType.ERROR:
                raise ServerRefused(self.address, found.data)
            elif found.data == HEARTBEAT:
                self.write(framing.NOP)
            else:
                return found

    async def expect_ok(self) -> None:
        answer = await self.frame()
        if answer.data != b"OK":
            raise ConnectFailed(self.address, f"{answer.data[:100]!r} came instead of OK")

    async def _more(self) -> None:
        if self.lost:
            raise ConnectFailed(self.address, self.reason)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def greet(self) -> None:
        self.write(framing.sized(MAGIC_V2 + b"IDENTIFY\n", identify(self._options)))
        answer = await self.frame()
        self.negotiated = negotiate(self.address, self._options, answer.data)
        for upgrade in self.negotiated.upgrades:
            if upgrade is Upgrade.TLS:
                await self._start_tls()
            else:
                self._compress(upgrade)
            await self.expect_ok()
        if self._options.auth_secret and self.negotiated.auth_required:
            self.write(framing.sized(b"AUTH\n", self._options.auth_secret.encode()))
            await self.frame()

    async def _start_tls(self) -> None:
        transport = self._open_transport()
        if self._early:
            raise ConnectFailed(self.address, "bytes in the clear came where TLS was to begin")
        self._flush()
        context = self._options.tls
        if not isinstance(context, ssl.SSLContext):
            context = ssl.create_default_context()
        host, port = split_address(self.address)
        name = self._options.tls_server_name or (host if port else "localhost")
        secured = await self._loop.start_tls(
            transport,
            self,
            context,
            server_hostname=name if context.check_hostname else None,
            ssl_shutdown_timeout=limits.CLIENT_HANG_UP_S,
        )
        if secured is None:
            raise ConnectFailed(self.address, "the connection ended in the TLS handshake")
        self._transport = secured

    def _compress(self, upgrade: Upgrade) -> None:
        self._flush()
        early, self._early = bytes(self._early), bytearray()
        self._plain = memoryview(bytearray(READ_BYTES))
        if upgrade is Upgrade.SNAPPY:
            self._encoder, self._decoder = SnappyEncoder(), SnappyDecoder()
        else:
            self._encoder = DeflateEncoder(self.negotiated.deflate_level)
            self._decoder = DeflateDecoder()
        if early:
            self._decode(early)

    def start(self, receive: Callable[[bytes], None]) -> None:
        """End the greeting: from here on every buffer goes to `receive`."""
        self._receive = receive
        self._watch_silence()
        early, self._early = bytes(self._early), bytearray()
        if early:
            self._take(receive, early)

    # --- out ---

    def write(self, data: bytes) -> None:
        self.unsent.append(data)
        self._out_bytes += len(data)
        if self._flushing:
            if self._out_bytes > WRITE_SOON_BYTES and not self._write_paused:
                self._flush()
            return
        self._flushing = True
        self._loop.call_soon(self._flush_turn)

    def _flush_turn(self) -> None:
        self._flushing = False
        if not self._write_paused:
            self._flush()

    def _flush(self) -> None:
        if not self.unsent or self._transport is None or self.lost:
            return
        if self._transport.is_closing() and not self._closing:
            return  # the peer has hung up: it would be dropped
        data = self.unsent[0] if len(self.unsent) == 1 else b"".join(self.unsent)
        self.unsent.clear()
        self._out_bytes = 0
        self._transport.write(data if self._encoder is None else self._encoder.encode(data))

    def close(self) -> None:
        """Send the gathered bytes, and disconnect."""
        self._closing = True
        self._write_paused = False
        self._flush()
        if self._transport is not None:
            self._transport.close()

    async def end(self) -> None:
        """`close`, and wait until the connection has ended; a peer that does not play along (TLS
        ends by agreement) is left after a while."""
        self.close()
        if self._transport is not None and not self._ended.done():
            await asyncio.wait([self._ended], timeout=limits.CLIENT_HANG_UP_S)
            if not self._ended.done():
                self.abort("hung up")
                await asyncio.wait([self._ended], timeout=limits.CLIENT_HANG_UP_S)

    def abort(self, reason: str) -> None:
        self._lose(reason)
        if self._transport is not None:
            self._transport.abort()

    def _lose(self, reason: str) -> None:
        if self.lost:
            return
        self.lost = True
        self.reason = reason
        if self._watch is not None:
            self._watch.cancel()
        self._wake()
        if self.on_lost is not None:
            self.on_lost()

    # --- a silent peer ---

    def _watch_silence(self) -> None:
        """nsqd sends something at least once per heartbeat; silence for two of them is a dead
        peer."""
        silence_s = 2 * self._options.heartbeat_s + limits.CLIENT_MARGIN_S
        left_s = self.received_s + silence_s - self._loop.time()
        if self.lost:
            return
        if left_s <= 0:
            self.abort(f"nothing heard for {silence_s} s")
        else:
            self._watch = self._loop.call_later(left_s, self._watch_silence)

    # --- callbacks of asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.lost:
            return
        self.received_s = self._loop.time()
        self._take(self._give if self._decoder is None else self._decode, data)

    def _take(self, receive: Callable[[bytes], None], data: bytes) -> None:
        try:
            receive(data)
        except (framing.FrameBroken, ValueError) as error:
            self.abort(str(error))

    def _decode(self, data: bytes) -> None:
        if self._decoder is None:
            raise RuntimeError("there is no compression on this connection")
        self._decoder.feed(data)
        while not self.lost and (size := self._decoder.read_into(self._plain)):
            self._give(bytes(self._plain[:size]))

    def _give(self, data: bytes) -> None:
        if self._receive is not None:
            self._receive(data)
            return
        self._early += data
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._flush()

    def eof_received(self) -> None:
        """The transport closes by itself."""
        self._lose(self._hung_up())

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._lose(words_of(error))
        self._lose(self._hung_up())
        if not self._ended.done():
            self._ended.set_result(None)

    def _hung_up(self) -> str:
        return self.reason if self._closing or self.reason != "closed" else "nsqd hung up"

    def _open_transport(self) -> asyncio.Transport:
        if self._transport is None or self.lost:
            raise ConnectFailed(self.address, self.reason)
        return self._transport


def log_death(task: asyncio.Task[None]) -> None:
    """An unforeseen error has ended a task that manages connections: it must be seen."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s has ended by an internal error", task.get_name(), exc_info=error)


async def connect(address: str, options: ConnectionOptions) -> Link:
    """Connect and greet, in bounded time. Raises ConnectFailed."""
    link, loop = Link(address, options), asyncio.get_running_loop()
    try:
        host, port = split_address(address)
        async with asyncio.timeout(options.connect_timeout_s):
            if port:
                await loop.create_connection(lambda: link, host, port)
            else:
                await loop.create_unix_connection(lambda: link, host)
            await link.greet()
    except TimeoutError:
        link.abort("timed out")
        reason = f"no connection within {options.connect_timeout_s} s"
        raise ConnectFailed(address, reason) from None
    except (OSError, ValueError) as error:
        link.abort("failed")
        raise ConnectFailed(address, words_of(error)) from error
    except BaseException:
        link.abort("failed")
        raise
    return link
