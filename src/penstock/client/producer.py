"""Publishing.

    async with Producer("127.0.0.1:4150") as producer:
        await producer.pub("orders", b"one")
        await asyncio.gather(*(producer.pub("orders", body) for body in bodies))

`pub`, `mpub` and `dpub` return a future that is done when nsqd has said OK. Nothing need be awaited
between them: what is called in one turn of the loop goes out as one buffer, and answers come in
order. While there is no connection, publishes wait in order until one is there, at most
`publish_timeout_s`.

One nsqd is used at a time. When its connection ends, the next address takes over. What was sent and
not answered then may be stored or not: its futures raise ConnectionLost, unless `retry=True`; then
it is sent again, and may be stored twice. (NSQ is at-least-once anyway: consumers expect it.)

With `trace_id=` a message's life is traced, and the future's result is where the message lies.

An error frame answers the oldest unanswered publish, and nsqd hangs up behind it. A refusal that
nsqd makes while it reads a command says more: nothing behind it was read, so what was sent behind
it is sent again on a new connection, and cannot be stored twice. Where nsqd says that storing
failed, it may have read on, and what was behind is unanswered as above. An nsqd that stops stores
nothing any more: what it refuses for that, and all behind it, goes to the next nsqd.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Sequence
from typing import Any, Unpack, overload

from penstock.client import framing, publishing
from penstock.client.backoff import Delays
from penstock.client.bodies import encode
from penstock.client.discovery import Discovery
from penstock.client.framing import FrameReader
from penstock.client.ids import unique_ids
from penstock.client.link import Link, connect, log_death
from penstock.client.options import ProducerKeywords, ProducerOptions, address_list, settle_options
from penstock.client.publishing import Outgoing, Published, Publisher, To, not_again, published_of
from penstock.errors import (
    ClientClosed,
    ClientError,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    PublishTimeout,
    ServerRefused,
)
from penstock.wire.frames import HEARTBEAT, Frame, FrameType

log = logging.getLogger("penstock.client")

_UNKNOWN = b"it is not known whether it was stored"
_STOPS = b" failed exiting"


class OutcomeUnknown(ServerRefused):
    """The leadership of the partition ended meanwhile: the next leader has the message, or not."""


# Refusals that say something about nsqd at that moment, and nothing about the message.
_PASSING = frozenset({"E_PUB_FAILED", "E_MPUB_FAILED", "E_DPUB_FAILED"})


# Refusals made while a command is read. All of them are fatal: the rest is not read.
_UNREAD_BEHIND = frozenset(
    {
        "E_INVALID",
        "E_BAD_TOPIC",
        "E_BAD_BODY",
        "E_BAD_MESSAGE",
        "E_BAD_PARTITION",
        "E_INVALID_JSON_HEADER",
        "E_AUTH_FIRST",
        "E_AUTH_FAILED",
        "E_AUTH_ERROR",
        "E_UNAUTHORIZED",
    }
)

# What is done with the answer, the bytes, the deadline, and whether an earlier connection may have
# stored it. A plain tuple: one is made per publish.
_Pending = tuple[asyncio.Future[Any], bytes, float, bool]

# Refusals behind which nsqd reads on, on the same connection.
_GOES_ON = frozenset({"E_EXT_NOT_SUPPORT", "E_FAILED_ON_NOT_WRITABLE"})


class Producer(Publisher[Published]):
    """`addresses`: one or several nsqds, `host:port` or unix socket paths. `lookupds`: HTTP
    addresses of nsqlookupds whose /nodes are used besides. `changes`: fields of ProducerOptions."""

    options: ProducerOptions

    def __init__(
        self,
        addresses: str | Sequence[str] = (),
        *,
        lookupds: str | Sequence[str] = (),
        options: ProducerOptions | None = None,
        **changes: Unpack[ProducerKeywords],
    ) -> None:
        super().__init__(settle_options(options or ProducerOptions(), changes))
        self._timeout_s = self.options.publish_timeout_s
        self._ids = unique_ids() if self.options.unique_ids else None
        self._is_plain = self._ids is None and self._around is None
        self._given = address_list(addresses)
        self._lookupds = lookupds
        if not self._given and not lookupds:
            raise ConfigError("addresses", addresses, "name an nsqd or an nsqlookupd")
        self._link: Link | None = None
        self._reader: FrameReader[None] = FrameReader(_unexpected)
        self._sent: deque[_Pending] = deque()  # unanswered, in order
        self._unsent: deque[_Pending] = deque()  # waiting for a connection
        self._heads: dict[str, bytes] = {}  # the PUB line of each topic, checked
        self._task: asyncio.Task[None] | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._last_error: ClientError | None = None
        self._returns = False  # to the same nsqd, at once: it has refused, and is well

    # --- start and end ---

    async def start(self) -> None:
        """Connect; also done by `async with`. Raises ConnectFailed when no address could be reached
        and `connect_required` is set."""
        if self._task is not None or self._ended:
            raise not_again("producer", self._ended)
        self._loop = asyncio.get_running_loop()
        self._open = True
        first = self._loop.create_future()
        self._task = self._loop.create_task(self._tend(first), name="penstock producer")
        self._task.add_done_callback(log_death)
        try:
            await first
        except BaseException:
            await self.close(0)
            raise

    async def _end(self) -> None:
        try:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])
        finally:
            self._fail_all()

    @property
    def address(self) -> str | None:
        """The address of the connected nsqd."""
        return self._link.address if self._link is not None else None

    @property
    def pending_count(self) -> int:
        return len(self._sent) + len(self._unsent)

    # --- publishing ---

    @overload
    def pub(self, topic: str, body: object, **to: Unpack[To]) -> asyncio.Future[None]: ...
    @overload
    def pub(
        self, topic: str, body: object, *, trace_id: int, **to: Unpack[To]
    ) -> asyncio.Future[Published]: ...
    def pub(
        self, topic: str, body: object, *, trace_id: int | None = None, **to: Unpack[To]
    ) -> asyncio.Future[Any]:
        """Publish. The future is done when nsqd has stored it; it raises ServerRefused,
        ConnectionLost, PublishTimeout. With a trace id its result is the position of the
        message."""
        if type(body) is not bytes or not body:
            body = encode(body, self.options.serializer)
        if trace_id is not None or to or not self._is_plain:
            return self._publish(Outgoing(topic, [body], trace_id=trace_id, **to))
        head = self._heads.get(topic)
        if head is None:
            head = self._new_head(topic)
        return self._send(framing.sized(head, body))

    # --- from here on: how ---

    def _pass_on(self, outgoing: Outgoing) -> asyncio.Future[Any]:
        return self._send(publishing.command(outgoing, self._ids))

    def _new_head(self, topic: str) -> bytes:
        head = b"PUB %b\n" % framing.check_name("topic", topic)
        if len(self._heads) >= 1000:  # topics made up as one goes must not stay for ever
            self._heads.clear()
        self._heads[topic] = head
        return head

    def _send(self, data: bytes) -> asyncio.Future[Any]:
        if not self._open:
            raise self._closed()
        done: asyncio.Future[Any] = self._loop.create_future()
        deadline_s = self._loop.time() + self._timeout_s
        pending = (done, data, deadline_s, False)
        self._pending_bytes += len(data)
        if self._link is not None:
            self._sent.append(pending)
            self._link.write(data)
        else:
            self._unsent.append(pending)
        if self._sweeper is None:
            self._sweeper = self._loop.call_at(deadline_s, self._sweep)
        return done

    def _received(self, data: bytes) -> None:
        oks = self._reader.count_oks(data)
        if oks and oks <= len(self._sent):
            self._answered(oks)
            return
        _, frames = self._reader.feed(data)
        for frame in frames:
            self._on_frame(frame)

    def _answered(self, count: int, result: Published | None = None) -> None:
        take = self._sent.popleft
        size = 0
        for _ in range(count):
            done, data, _deadline, _doubt = take()
            size += len(data)
            if not done.done():
                done.set_result(result)
        self._pending_bytes -= size
        self._check_drained()

    def _on_frame(self, frame: Frame) -> None:
        link = self._link
        if link is None:
            return
        if frame.data == HEARTBEAT:
            link.write(framing.NOP)
        elif not self._sent:
            link.abort(f"{frame.data[:100]!r} came, though nothing was asked")
        elif frame.type == FrameType.ERROR:
            self._refused(link, frame.data)
        else:
            self._answered(1, published_of(frame.data))

    def _refused(self, link: Link, data: bytes) -> None:
        """The oldest publish was refused; nsqd hangs up now, save in few cases."""
        kind = OutcomeUnknown if data.endswith(_UNKNOWN) else ServerRefused
        refusal = kind(link.address, data)
        if refusal.code in _GOES_ON:
            self._fail(self._sent.popleft(), refusal)
            self._check_drained()
            return
        self._last_error = refusal
        link.reason = refusal.reason
        first = self._sent.popleft()
        stops = data.endswith(_STOPS)
        passes = stops or (self.options.retry and refusal.code in _PASSING)
        if not passes:
            self._returns = True
            self._fail(first, refusal)
        was_read = not stops and refusal.code not in _UNREAD_BEHIND
        self._detach(link, [first] if passes else [], was_read)
        link.abort(refusal.reason)

    # --- connections ---

    async def _tend(self, first: asyncio.Future[None]) -> None:
        """Keep one connection, as long as this producer lives."""
        discovery = Discovery(self._lookupds, self.options) if self._lookupds else None
        options = self.options
        delays = Delays(options.reconnect_delay_s, options.reconnect_delay_max_s, random.random)
        try:
            while True:
                for address in await self._candidates(discovery):
                    link = await self._connect(address)
                    while link is not None:
                        _settle(first, None)
                        began_s = self._loop.time()
                        await self._hold(link)
                        delays.lasted(self._loop.time() - began_s)
                        link = await self._connect(address) if self._returns else None
                _settle(first, self._last_error if options.connect_required else None)
                await asyncio.sleep(delays.next_s())
        finally:
            if discovery is not None:
                await discovery.close()

    async def _candidates(self, discovery: Discovery | None) -> list[str]:
        if discovery is None:
            return self._given
        try:
            return await discovery.candidates(self._given)
        except ConnectFailed as error:
            self._last_error = error
            return []

    async def _connect(self, address: str) -> Link | None:
        try:
            return await connect(address, self.options)
        except ConnectFailed as error:
            log.warning("producer: %s", error)
            self._last_error = error
            return None

    async def _hold(self, link: Link) -> None:
        lost: asyncio.Future[None] = self._loop.create_future()

        def ended() -> None:
            self._detach(link)
            _settle(lost, None)

        self._returns = False
        if link.lost:
            return
        link.on_lost = ended
        self._reader = FrameReader(_unexpected)
        self._link = link
        link.start(self._received)
        if self._link is link:
            self._send_unsent(link)
        try:
            await lost
        finally:
            link.close()
            self._detach(link)
            await link.end()

    def _send_unsent(self, link: Link) -> None:
        for pending in self._unsent:
            done, data, _deadline, _doubt = pending
            if done.done():
                self._pending_bytes -= len(data)
            else:
                self._sent.append(pending)
                link.write(data)
        self._unsent.clear()
        self._check_drained()

    def _detach(self, link: Link, refused: Sequence[_Pending] = (), was_read: bool = True) -> None:
        """Send nothing more by `link`, and decide about its unanswered publishes. `refused`: to be
        retried. `was_read`: nsqd may have read the rest, as far as it was sent."""
        if self._link is not link:
            return
        self._link = None
        error = ConnectionLost(link.address, link.reason)
        if self._open:
            log.warning("producer: %s: %s", link.address, link.reason)
        left, self._sent = self._sent, deque()
        unsent = {id(data) for data in link.unsent}
        again = list(refused)
        for pending in left:
            done, data, deadline_s, _doubt = pending
            if not was_read or id(data) in unsent:
                again.append(pending)
            elif self.options.retry:
                again.append((done, data, deadline_s, True))
            else:
                self._fail(pending, error)
        self._unsent.extendleft(reversed(again))
        self._check_drained()

    # --- ends ---

    def _fail(self, pending: _Pending, error: ClientError) -> None:
        done, data, _deadline, _doubt = pending
        self._pending_bytes -= len(data)
        if not done.done():
            done.set_exception(error)

    def _sweep(self) -> None:
        """Time out overdue publishes. Their positions among the unanswered stay: answers will
        come."""
        now_s = self._loop.time()
        next_s = None
        for queue, sent in ((self._sent, True), (self._unsent, False)):
            for done, _data, deadline_s, doubt in queue:
                if deadline_s > now_s:
                    next_s = min(deadline_s, next_s or deadline_s)
                    break
                if not done.done():
                    error = PublishTimeout(self.options.publish_timeout_s, sent or doubt)
                    error.__cause__ = self._last_error
                    done.set_exception(error)
        while self._unsent and self._unsent[0][0].done():
            self._pending_bytes -= len(self._unsent.popleft()[1])
        self._sweeper = self._loop.call_at(next_s, self._sweep) if next_s is not None else None
        self._check_drained()

    def _fail_all(self) -> None:
        lost = ConnectionLost(self.address or "producer", "the producer closed")
        for pending in self._sent:
            self._fail(pending, lost)
        for pending in self._unsent:
            self._fail(pending, lost if pending[3] else ClientClosed("producer"))
        self._sent.clear()
        self._unsent.clear()
        if self._sweeper is not None:
            self._sweeper.cancel()


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _unexpected(timestamp_ns: int, attempts: int, id: bytes, body: object) -> None:
    """A producer receives no messages; one that comes anyway is dropped."""
