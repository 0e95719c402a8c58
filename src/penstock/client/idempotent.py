"""Publishing without duplicates.

    async with IdempotentProducer("127.0.0.1:4151") as producer:
        await producer.pub("orders", b"one")
        await producer.pub_many("orders", bodies)

As `Producer`, but over HTTP, to Penstock's nsqd only: each request carries the producer's id, its
epoch and the number of its first message, and nsqd stores what it has already stored not again. So
a request whose answer was lost is sent again until it is answered (`publish_timeout_s`), and stands
in the log once, in the order of the calls, over broken connections and killed daemons.

A future that is done: stored, once. One that raises:

- PublishRefused (with PublishFenced and PublishGap), PublishTimeout, ClientClosed, ProducerStopped,
  ProducerFull, ConfigError, NameInvalid: not stored.
- PublishUncertain: it was sent, and time or producer ended before anybody could say.

What nsqd knows of a producer it knows for one topic, on that node: the topic's publishes stay with
one nsqd, and go on to another only when nothing is in doubt (`topic_publisher` says how,
`numbering` who we are to nsqd).
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Unpack, overload

from penstock.client import framing
from penstock.client.bodies import encode
from penstock.client.discovery import Nodes
from penstock.client.numbering import Epochs, Numbering
from penstock.client.options import IdempotentKeywords, IdempotentOptions, settle_options
from penstock.client.publishing import (
    Outgoing,
    Published,
    Publisher,
    To,
    check_plain,
    checked_ids,
    not_again,
)
from penstock.client.topic_publisher import Publish, PublishCounts, TopicPublisher
from penstock.errors import ConnectFailed


class IdempotentProducer(Publisher[Published | None]):
    """`addresses`: HTTP sides of nsqds, `host:port` or URLs; the first that answers is used.
    `lookupds`: HTTP addresses of nsqlookupds whose /nodes are used besides. `producer_id` and
    `producer_epoch`: for fencing out a former life; see `numbering`. `changes`: fields of
    IdempotentOptions."""

    options: IdempotentOptions
    _only_plain = True

    def __init__(
        self,
        addresses: str | Sequence[str] = (),
        *,
        lookupds: str | Sequence[str] = (),
        producer_id: int | None = None,
        producer_epoch: int | Epochs = 0,
        options: IdempotentOptions | None = None,
        **changes: Unpack[IdempotentKeywords],
    ) -> None:
        super().__init__(settle_options(options or IdempotentOptions(), changes))
        self.counts = PublishCounts()
        self._numbering = Numbering(producer_id, producer_epoch)
        self._nodes = Nodes(addresses, lookupds, self.options)
        self._publishers: dict[str, TopicPublisher] = {}
        self._pending_count = 0

    # --- start and end ---

    async def start(self) -> None:
        """Find an nsqd; also done by `async with`. Raises ConnectFailed when there is none and
        `connect_required` is set, and the errors of `producer_epoch`."""
        if self._open or self._ended:
            raise not_again("producer", self._ended)
        try:
            self._numbering.begin()
            if self.options.connect_required:
                await self._find_one()
        except BaseException:
            self._ended = True
            await self._nodes.close()
            raise
        self._loop = asyncio.get_running_loop()
        self._open = True

    async def _find_one(self) -> None:
        for address in await self._nodes.candidates(anew=False):
            try:
                await self._nodes.check(address)
                return
            except ConnectFailed:
                continue
        if self._nodes.last_failure is not None:
            raise self._nodes.last_failure

    async def _end(self) -> None:
        for publisher in self._publishers.values():
            publisher.cancel()
        for publisher in self._publishers.values():
            await publisher.end()
        await self._nodes.close()

    @property
    def producer_id(self) -> int:
        return self._numbering.producer_id

    @property
    def producer_epoch(self) -> int:
        """The newest one; some topics may still be in an older one."""
        return self._numbering.epoch

    @property
    def pending_count(self) -> int:
        return self._pending_count

    # --- publishing ---

    @overload
    def pub(self, topic: str, body: object, **to: Unpack[To]) -> asyncio.Future[None]: ...
    @overload
    def pub(
        self, topic: str, body: object, *, trace_id: int, **to: Unpack[To]
    ) -> asyncio.Future[Published | None]: ...
    def pub(
        self, topic: str, body: object, *, trace_id: int | None = None, **to: Unpack[To]
    ) -> asyncio.Future[Any]:
        """Publish. The future is done when nsqd has stored it. With a trace id its result is the
        position of the message; None when that answer was lost, and nsqd only confirms the
        message."""
        data = encode(body, self.options.serializer)
        return self._publish(Outgoing(topic, [data], plain=True, trace_id=trace_id, **to))

    # --- from here on: how ---

    def _pass_on(self, outgoing: Outgoing) -> asyncio.Future[Any]:
        check_plain(outgoing)
        bodies, trace_id = list(outgoing.bodies), outgoing.trace_id
        trace_ids = () if trace_id is None else checked_ids(trace_id, len(bodies))
        defer_ms = framing.check_delay(outgoing.delay_s or 0)
        if not self._open:
            raise self._closed()
        publisher = self._publishers.get(outgoing.topic)
        if publisher is None:
            publisher = self._new_publisher(outgoing.topic)
        done: asyncio.Future[Any] = self._loop.create_future()
        deadline_s = self._loop.time() + self.options.publish_timeout_s
        publish = Publish(done, bodies, deadline_s, defer_ms, trace_ids)
        self._pending_count += 1
        self._pending_bytes += publish.bytes
        publisher.add(publish)
        return done

    def _new_publisher(self, topic: str) -> TopicPublisher:
        framing.check_name("topic", topic)
        publisher = TopicPublisher(
            topic, self._nodes, self._numbering, self.options, self.counts, self._on_end
        )
        self._publishers[topic] = publisher
        return publisher

    def _on_end(self, publish: Publish) -> None:
        self._pending_count -= 1
        self._pending_bytes -= publish.bytes
        self._check_drained()
