"""Idempotent publishing to one topic: its waiting and running publishes, and their outcomes.

One request at a time is unanswered. What is published meanwhile waits, and goes out together as the
next one: so a slow disk makes larger batches, not a longer row of requests, and nothing overtakes
anything. A request is sent again, with the same messages and numbers, until its outcome is known or
the last of its publishes has timed out.

    no attempt yet ──not taken──▶ again, at any nsqd
          │ sent
          ▼
       in doubt ──────no answer──▶ again, at the same nsqd or another of its cluster:
          │ answer      only they know these numbers      │ timed out
          ▼                                               ▼
    stored or refused          PublishUncertain, and fresh numbers for what comes next

In doubt is what was sent and may have been taken. While the head of the topic is in doubt nothing
behind it goes out, not even to another nsqd: that is what keeps the order. When nothing is in doubt
another nsqd may take over at any time; it has numbers of its own. The nodes of a cluster have them
together: each hands the publish to the leader of the producer's partition.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.client.backoff import Delays
from penstock.client.discovery import Nodes
from penstock.client.link import log_death
from penstock.client.numbering import Destination, Numbering
from penstock.client.options import IdempotentOptions
from penstock.client.publishing import Published, packed_traced
from penstock.errors import (
    ClientClosed,
    ConnectFailed,
    FetchFailed,
    PenstockError,
    ProducerStopped,
    PublishFenced,
    PublishGap,
    PublishRefused,
    PublishTimeout,
    PublishUncertain,
)
from penstock.kernel import id_at
from penstock.net.fetch import public
from penstock.net.outgoing import HttpAnswer, document_of
from penstock.nsqdapi import calls
from penstock.nsqdapi.calls import Query
from penstock.wire.frames import encode_bodies
from penstock.wire.names import is_ephemeral


@dataclass
class PublishCounts:
    """Counts so far."""

    stored: int = 0  # messages
    repeated: int = 0  # requests of which nsqd said that it had them already


@dataclass(slots=True, eq=False)
class Publish:
    """`trace_ids`: none, or one for each body, where 0 is none."""

    done: asyncio.Future[Any]
    bodies: list[bytes]
    deadline_s: float
    defer_ms: int
    trace_ids: Sequence[int] = ()
    bytes: int = field(init=False)
    alone: bool = field(init=False)  # goes out in a request of its own

    def __post_init__(self) -> None:
        self.bytes, self.alone = sum(map(len, self.bodies)), self.defer_ms > 0


@dataclass(eq=False)
class TopicPublisher:
    """`on_end` is called once for each publish, after its end."""

    _topic: str
    _nodes: Nodes
    _numbering: Numbering
    _options: IdempotentOptions
    _counts: PublishCounts
    _on_end: Callable[[Publish], None]

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Publish] = deque()
        self._batch: list[Publish] = []
        self._destinations: dict[str, Destination] = {}
        self._destination: Destination | None = None  # where the last attempt was made
        self._doubt = ""  # why the batch may be stored; empty: it is not
        self._fenced: PublishFenced | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    def add(self, publish: Publish) -> None:
        self._queue.append(publish)
        if self.task is None:
            self.task = self._loop.create_task(self._run(), name=f"penstock {self._topic}")
            self.task.add_done_callback(log_death)
        if self._sweeper is None:
            self._sweeper = self._loop.call_at(publish.deadline_s, self._sweep)

    def cancel(self) -> None:
        """Send nothing more. All publishers, before the first `end`: room that one gives up is not
        for another."""
        if self.task is not None:
            self.task.cancel()

    async def end(self) -> None:
        """After `cancel`: unknown outcomes raise PublishUncertain, the rest ClientClosed."""
        if self.task is not None:
            await asyncio.wait([self.task])
        reason = "the producer was closed before there was an answer"
        self._fail_batch(self._uncertain(reason) if self._doubt else ClientClosed("producer"))
        while self._queue:
            self._end(self._queue.popleft(), ClientClosed("producer"))
        if self._sweeper is not None:
            self._sweeper.cancel()

    # --- one batch after the other ---

    async def _run(self) -> None:
        try:
            while self._take_batch():
                await self._settle()
        finally:
            self.task = None

    def _take_batch(self) -> bool:
        """The next publishes that can go out together."""
        options, queue, batch = self._options, self._queue, self._batch
        count = size = 0
        while queue:
            publish = queue[0]
            if publish.done.done():  # timed out or cancelled before it was sent
                self._end(queue.popleft(), None)
                continue
            count += len(publish.bodies)
            size += publish.bytes
            if batch and (
                publish.alone or count > options.batch_count_max or size > options.batch_bytes_max
            ):
                break
            batch.append(queue.popleft())
            if publish.alone:
                break
        return bool(batch)

    async def _settle(self) -> None:
        """Try until the outcome of the batch is known, or its time is over."""
        options = self._options
        delays = Delays(options.retry_delay_s, options.retry_delay_max_s, random.random)
        deadline_s = self._batch[-1].deadline_s
        anew = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline_s):
                # The clock is asked, too: the end of a request that times out at the same moment
                # can hide that the batch's time is over.
                while self._batch and (not anew or self._loop.time() < deadline_s):
                    await self._try(anew)
                    if self._batch:
                        anew = True
                        await asyncio.sleep(delays.next_s())
        if self._batch:
            self._give_up()

    async def _try(self, anew: bool) -> None:
        """One round over the nsqds; over those of one destination, when that may have stored it."""
        current = [self._destination.address] if self._destination is not None else []
        others = await self._nodes.candidates(anew)
        for address in dict.fromkeys([*current, *others]):
            is_ours = self._destination is None or self._destination.is_shared or address in current
            if not self._batch or (self._doubt and not is_ours):
                return
            await self._attempt(address)

    def _drop_done(self) -> None:
        """Drop cancelled publishes, which were not sent yet."""
        for publish in self._batch:
            if publish.done.done():
                self._on_end(publish)
        self._batch = [publish for publish in self._batch if not publish.done.done()]

    async def _attempt(self, address: str) -> None:
        if self._fenced is not None:
            self._fail_batch(self._fenced)
            return
        async with self._nodes.room:
            try:
                await self._nodes.check(address)
            except ConnectFailed:
                return  # remembered there
            destination = self._destination_at(address)
            if self._doubt and destination is not self._destination:
                return
            if not self._doubt:
                self._drop_done()
            if self._batch:
                await self._send(self._prepared(destination, address))

    def _destination_at(self, address: str) -> Destination:
        """An ephemeral topic is of one node, in a cluster, too."""
        cluster = "" if is_ephemeral(self._topic) else self._nodes.cluster(address)
        name = cluster or address
        destination = self._destinations.get(name)
        if destination is None:
            destination = self._destinations[name] = Destination(self._numbering, bool(cluster))
        return destination

    def _prepared(self, destination: Destination, address: str) -> Destination:
        destination.address = address
        if not self._doubt:
            destination.prepare(self._message_count, self._loop.time())
        self._destination = destination
        return destination

    @property
    def _message_count(self) -> int:
        return sum(len(publish.bodies) for publish in self._batch)

    async def _send(self, destination: Destination) -> None:
        if destination.stopped:
            self._fail_batch(ProducerStopped(self._topic, destination.stopped))
            return
        path, options, body = self._encode()
        before, self._doubt = self._doubt, self._doubt or "there was no answer in time"
        try:
            call = calls.publish(self._topic, body, path, [*options, *destination.options])
            answer = await self._nodes.publish(destination.address, call)
        except FetchFailed as failure:
            self._doubt = (before or failure.reason) if failure.sent else before
            return
        self._judge(destination, answer, before)

    def _encode(self) -> tuple[str, Query, bytes]:
        """Path, options and body."""
        bodies = [body for publish in self._batch for body in publish.bodies]
        defer_ms = self._batch[0].defer_ms
        defer = [("defer", str(defer_ms))] if defer_ms else []
        if self._is_traced:
            return self._encode_traced(bodies, defer)
        if len(bodies) == 1:
            return "/pub", defer, bodies[0]
        return "/mpub", [("binary", "true"), *defer], encode_bodies(bodies)

    @property
    def _is_traced(self) -> bool:
        return any(publish.trace_ids for publish in self._batch)

    def _encode_traced(self, bodies: list[bytes], defer: Query) -> tuple[str, Query, bytes]:
        trace_ids: list[int] = []
        for publish in self._batch:
            trace_ids += publish.trace_ids or [0] * len(publish.bodies)
        if len(bodies) == 1:
            return "/pubtrace", [("trace_id", str(trace_ids[0])), *defer], bodies[0]
        return "/mpubtrace", defer, encode_bodies(packed_traced(bodies, trace_ids))

    # --- outcomes ---

    def _judge(self, destination: Destination, answer: HttpAnswer, before: str) -> None:
        """`before`: why an earlier request may have arrived; empty: none did."""
        address, status = public(destination.address), answer.status
        document = document_of(answer.body) or {}
        code = str(document.get("message", ""))[:200]
        reason = f"got response {status} {code}".rstrip()
        if status == 200:
            self._accepted(destination, answer, document, before)
        elif status == 429 or document.get("taken") is False:  # not by this request: again, later
            self._doubt = before
            self._nodes.last_failure = ConnectFailed(address, reason)
        elif status == 408 or not 400 <= status < 500:  # again: the same numbers make it safe
            self._doubt = before or reason
        else:
            error = _refusal(address, destination.sequence, status, code, document)
            self._refused(destination, error, before)

    def _accepted(
        self, destination: Destination, answer: HttpAnswer, document: dict[str, Any], before: str
    ) -> None:
        is_traced = self._is_traced  # then it says where the first message is
        is_repeated = answer.headers.get("x-penstock-repeated") == "true"
        if not (document.get("status") == "OK" if is_traced else answer.body == b"OK"):
            self._doubt = before or "the answer is not nsqd's"
            return
        if is_repeated and not before:
            explained = "another producer has published with the same id and epoch"
            error = PublishRefused(public(destination.address), 200, "REPEATED", explained)
            self._refused(destination, error, before)
            return
        count = self._message_count
        destination.stored(count)
        self._counts.stored += count
        self._counts.repeated += is_repeated
        self._doubt = ""
        batch, self._batch = self._batch, []
        offset, id, index = document.get("queue_offset"), document.get("id"), 0
        for publish in batch:
            if publish.trace_ids and type(offset) is int and type(id) is int:
                self._tell_where(publish, index, offset, id)
            self._end(publish, None)
            index += len(publish.bodies)

    def _tell_where(self, publish: Publish, index: int, offset: int, base_id: int) -> None:
        if not publish.done.done():
            message_id = f"{id_at(base_id, index):016x}"
            publish.done.set_result(Published(message_id, offset + index, publish.trace_ids[0]))

    def _refused(self, destination: Destination, error: PublishRefused, before: str) -> None:
        if isinstance(error, PublishFenced):
            self._fenced = error
        lost = isinstance(error, PublishGap) and error.expected <= error.sequence
        if before and not lost:
            uncertain = self._uncertain(f"{before}; then {error}")
            uncertain.__cause__ = error
            self._fail_batch(uncertain)
            if self._fenced is None:  # a newer life must not be fenced out by this one
                destination.spoil("a publish is in doubt")
            return
        self._doubt = ""
        if error.status == 413 and len(self._batch) > 1:
            self._split()
            return
        self._fail_batch(error)
        if error.status in (200, 409) and not isinstance(error, PublishFenced):
            destination.spoil("its numbers do not fit what is stored")

    def _split(self) -> None:
        """Too large together: one by one, so that only the one that is too large is refused."""
        for publish in self._batch:
            publish.alone = True
        self._queue.extendleft(reversed(self._batch))
        self._batch = []

    def _give_up(self) -> None:
        if self._doubt:
            self._fail_batch(self._uncertain(self._doubt))
            if self._destination is not None:
                self._destination.spoil("a publish is in doubt")
            self._doubt = ""
        else:
            self._fail_batch(self._not_sent())

    # --- ends ---

    def _uncertain(self, reason: str) -> PublishUncertain:
        address = public(self._destination.address) if self._destination is not None else ""
        return PublishUncertain(self._topic, address, reason)

    def _not_sent(self) -> PublishTimeout:
        error = PublishTimeout(self._options.publish_timeout_s, sent=False)
        error.__cause__ = self._nodes.last_failure
        return error

    def _fail_batch(self, error: PenstockError) -> None:
        self._doubt = ""
        batch, self._batch = self._batch, []
        for publish in batch:
            self._end(publish, error)

    def _end(self, publish: Publish, error: PenstockError | None) -> None:
        if not publish.done.done():
            if error is None:
                publish.done.set_result(None)
            else:
                publish.done.set_exception(error)
        self._on_end(publish)

    def _sweep(self) -> None:
        """Time out overdue publishes, even while others of their batch still have time."""
        self._sweeper = None
        now_s = self._loop.time()
        for publishes, doubt in ((self._batch, self._doubt), (self._queue, "")):
            for publish in publishes:
                if publish.deadline_s > now_s:
                    self._sweeper = self._loop.call_at(publish.deadline_s, self._sweep)
                    return
                if not publish.done.done():
                    error = self._uncertain(doubt) if doubt else self._not_sent()
                    publish.done.set_exception(error)


def _refusal(
    address: str, sequence: int, status: int, code: str, document: dict[str, Any]
) -> PublishRefused:
    epoch, expected = document.get("epoch"), document.get("expected")
    if status == 409 and code == "PRODUCER_FENCED" and type(epoch) is int:
        return PublishFenced(address, epoch)
    if status == 409 and code == "SEQUENCE_GAP" and type(expected) is int:
        return PublishGap(address, expected, sequence)
    return PublishRefused(address, status, code)
