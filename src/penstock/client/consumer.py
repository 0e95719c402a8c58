"""Consuming.

    async with Consumer("orders", "billing", "127.0.0.1:4150") as consumer:
        async for message in consumer:
            ...
            await message.fin()

or, with a handler whose return finishes a message and whose exception gives it back:

    async with Consumer("orders", "billing", lookupds="127.0.0.1:4161") as consumer:
        await consumer.run(handle, concurrency=10)

or of several topics, with a handler for all (`message.topic` tells them apart) or one for each:

    async with Consumer(["orders", "refunds"], "billing", lookupds="127.0.0.1:4161") as consumer:
        await consumer.run({"orders": on_order, "refunds": on_refund}, concurrency=10)

Messages come from every nsqd that was named or found, by a connection for each topic there; all
share `max_in_flight`. What has arrived and was not taken yet waits in one queue; its timeout at
nsqd runs, so `max_in_flight` should be no more than what is dealt with in a fraction of the
timeout, or `auto_touch` be set.

`stop()` begins an orderly end: nsqds are asked to send no more, what is here is still handed out,
and the iteration (or `run`) ends. `close()`, which `async with` calls, gives back what nobody has
taken, waits for messages in hand at most `stop_timeout_s`, and hangs up. Nothing is lost either
way: a message that was not finished comes again.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, Unpack

from penstock import limits
from penstock.client import framing
from penstock.client import handlers as handling
from penstock.client.backoff import Backoff, Delays, Phase
from penstock.client.discovery import Discovery, LookupResult
from penstock.client.handlers import Handler, OnError
from penstock.client.link import connect, log_death
from penstock.client.message import Message
from penstock.client.middleware import chain
from penstock.client.options import ConsumerKeywords, ConsumerOptions, address_list, settle_options
from penstock.client.publishing import NotStarted, checked_partition, not_again
from penstock.client.subscription import LATE, Subscription, Turns, share, take_turns
from penstock.errors import ConfigError, ConnectFailed, ServerRefused

log = logging.getLogger("penstock.client")


@dataclass(slots=True)
class Counts:
    """The counts of a consumer. `late`: answers to messages that nsqd had timed out before."""

    received: int = 0
    finished: int = 0
    requeued: int = 0
    touched: int = 0
    given_up: int = 0
    late: int = 0
    connections: int = 0


_Source = tuple[str, str]  # a topic, and the address of an nsqd that has it


class Consumer:
    """`topic`: one or several. `addresses`: nsqds, `host:port` or unix socket paths. `lookupds`:
    HTTP addresses of nsqlookupds that are asked for the topics. `partition`: the only one to
    consume, on each nsqd. `changes`: fields of ConsumerOptions."""

    def __init__(
        self,
        topic: str | Sequence[str],
        channel: str,
        addresses: str | Sequence[str] = (),
        *,
        lookupds: str | Sequence[str] = (),
        partition: int | None = None,
        options: ConsumerOptions | None = None,
        **changes: Unpack[ConsumerKeywords],
    ) -> None:
        self.topics = list(dict.fromkeys([topic] if isinstance(topic, str) else topic))
        self.channel = channel
        self.partition = None if partition is None else checked_partition(partition)
        if not self.topics:
            raise ConfigError("topic", topic, "name one or several")
        name = framing.check_name("channel", channel)
        where = name if partition is None else b"%b %d" % (name, partition)
        self._subs = {
            topic: b"SUB %b %b\n" % (framing.check_name("topic", topic), where)
            for topic in self.topics
        }
        self.options = settle_options(options or ConsumerOptions(), changes)
        self._given = address_list(addresses)
        self._lookupds = lookupds
        if not self._given and not lookupds:
            raise ConfigError("addresses", addresses, "name an nsqd or an nsqlookupd")
        self.counts = Counts()
        self._backoff = Backoff(
            self.options.backoff_s, self.options.backoff_max_s, self.options.backoff_failures
        )
        self._turns = Turns(self.options.low_rdy_idle_s, self.options.low_rdy_hold_s)
        self._queue: deque[Message] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._taken = 0  # messages handed out since somebody last waited
        self._subscriptions: list[Subscription] = []
        self._found: set[_Source] = set()
        self._tasks: dict[_Source, asyncio.Task[None]] = {}
        self._discovering: asyncio.Task[None] | None = None
        self._look_again = asyncio.Event()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._quiet: asyncio.Future[None] | None = None
        self._stopping: asyncio.Future[None] | None = None
        self._paused = False
        self._closed = False

    # --- start and end ---

    async def start(self) -> None:
        """Connect; also done by `async with`. Raises ConnectFailed when none of `addresses` could
        be reached and `connect_required` is set. Discovery continues in any case."""
        if self._stopping is not None:
            raise not_again("consumer", self._stopping.done())
        self._loop = asyncio.get_running_loop()
        self._stopping = self._loop.create_future()
        firsts = [self._begin((topic, at)) for topic in self.topics for at in self._given]
        if self._lookupds:
            self._discovering = self._loop.create_task(self._discover(), name="penstock lookups")
            self._discovering.add_done_callback(log_death)
        try:
            outcomes = await asyncio.gather(*firsts)
            failures = [outcome for outcome in outcomes if outcome is not None]
            if failures and len(failures) == len(outcomes) and self.options.connect_required:
                raise failures[0]
        except BaseException:
            await self.close(0)
            raise

    def stop(self) -> None:
        """Begin an orderly end; may be called from a signal handler of the loop."""
        if self._stopping is None or self._stopping.done():
            return
        self._stopping.set_result(None)
        if self._discovering is not None:
            self._discovering.cancel()
        for subscription in self._subscriptions:
            subscription.close_soon()
        self._later("stop", self.options.connect_timeout_s, self._leave_silent)
        self.check_drained()

    def _leave_silent(self) -> None:
        """An nsqd that hangs answers CLS only when it is well again: an end is not to wait."""
        for subscription in list(self._subscriptions):
            if not subscription.close_wait:
                subscription.link.abort("CLS was not answered")

    async def close(self, timeout_s: float | None = None) -> None:
        """Give back messages that nobody has taken, wait for those in hand, and disconnect."""
        if self._closed or self._stopping is None:
            return
        self.stop()
        self._closed = True
        while self._queue:
            self._queue.popleft().req()
        if timeout_s is None:
            timeout_s = self.options.stop_timeout_s
        try:
            if not self._is_quiet() and timeout_s > 0:
                self._quiet = self._loop.create_future()
                await asyncio.wait([self._quiet], timeout=timeout_s)
        finally:
            for subscription in self._subscriptions:
                subscription.link.close()
        await asyncio.gather(*(subscription.link.end() for subscription in self._subscriptions))
        await self._end_tasks()
        for timer in self._timers.values():
            timer.cancel()
        self.check_drained()

    async def _end_tasks(self) -> None:
        tasks = list(self._tasks.values())
        if self._discovering is not None:
            tasks.append(self._discovering)
        if tasks:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, _kind: object, error: object, _trace: object) -> None:
        await self.close(None if error is None else 0)

    # --- messages ---

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if self._queue and self._taken < limits.CLIENT_TURNS_APART:
            self._taken += 1
            return self._queue.popleft()
        return await self._next()

    async def _next(self) -> Message:
        """Wait for a message, or let others run after many that needed no waiting."""
        self._taken = 0
        if self._queue:
            await asyncio.sleep(0)
        while not self._queue:
            if self._is_drained():
                raise StopAsyncIteration
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                if waiter.done() and not waiter.cancelled():
                    self._wake(1)  # it was our turn: somebody else must have it
                raise
        return self._queue.popleft()

    def take_nowait(self) -> list[Message]:
        """All received messages that were not taken, without waiting."""
        taken = list(self._queue)
        self._queue.clear()
        return taken

    async def run(
        self,
        handler: Handler | Mapping[str, Handler],
        *,
        concurrency: int = 1,
        handler_timeout_s: float | None = None,
        on_error: OnError | None = None,
        on_giving_up: Handler | None = None,
    ) -> None:
        """Hand each message to `handler`, or to that of its topic, `concurrency` at a time over all
        topics, until `stop` is called.

        A handler that returns finishes its message, unless it has settled it itself; one that
        raises, or takes longer than `handler_timeout_s`, gives it back, or does what `on_error`
        says for its exception. A failure at attempt `max_attempts`, or behind it, is the last: the
        message goes to `on_giving_up`, and is finished."""
        if isinstance(handler, Mapping):
            handler = handling.routed(handler, self.topics)
        else:
            handling.check_async("handler", handler)
        if handler_timeout_s is not None:
            handler = handling.limited(handler, handler_timeout_s)
        handler = chain(self.options.middleware, handler)
        await handling.Work(self, handler, on_error, on_giving_up).run(concurrency)

    def pause(self) -> None:
        """Accept no more messages until `resume`; received ones stay."""
        self._paused = True
        self._balance()

    def resume(self) -> None:
        self._paused = False
        self._balance()

    @property
    def addresses(self) -> list[str]:
        """The nsqds that are connected."""
        return list(dict.fromkeys(one.address for one in self._subscriptions))

    @property
    def backing_off(self) -> bool:
        return self._backoff.phase is not Phase.FREE

    @property
    def in_flight(self) -> int:
        return sum(subscription.state.in_flight for subscription in self._subscriptions)

    # --- reports of subscriptions ---

    def deliver(self, subscription: Subscription, messages: list[Message]) -> None:
        self.counts.received += len(messages)
        if self._closed:
            for message in messages:
                message.req()
            return
        self._queue.extend(messages)
        if self._waiters:
            self._wake(len(messages))

    def settled(self, message: Message, finished: bool, backoff: bool) -> None:
        if finished:
            self.counts.finished += 1
            if self._backoff.phase is Phase.TESTING:
                self._pause(self._backoff.succeeded())
        else:
            self.counts.requeued += 1
            if backoff:
                self.failed(message)
        if self._quiet is not None:
            self._check_quiet()

    def failed(self, message: Message) -> None:
        """Count a failure, whatever becomes of the message."""
        self._pause(self._backoff.failed(message.raw_id, self.counts.finished))

    def refused(self, error: ServerRefused) -> None:
        if error.code in LATE:
            self.counts.late += 1
            log.info("consumer: %s", error)
        else:
            log.warning("consumer: %s", error)

    # --- queue ---

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    def _is_drained(self) -> bool:
        """Whether no message can come any more."""
        if self._stopping is None:
            raise NotStarted("consumer")
        return self._stopping.done() and (
            self._closed or all(s.close_wait or s.lost for s in self._subscriptions)
        )

    def _is_quiet(self) -> bool:
        return all(s.lost or (s.close_wait and s.state.in_flight <= 0) for s in self._subscriptions)

    def _check_quiet(self) -> None:
        if self._quiet is not None and not self._quiet.done() and self._is_quiet():
            self._quiet.set_result(None)

    def check_drained(self) -> None:
        """Call when a connection has ended, or brings no more messages."""
        self._check_quiet()
        if self._stopping is not None and self._stopping.done() and self._is_drained():
            self._wake(len(self._waiters))

    # --- credit ---

    def _pause(self, seconds: float) -> None:
        """The back-off was updated; a pause of this length begins when it is not 0."""
        if seconds > 0:
            log.warning("consumer: backing off for %.3f s (level %d)", seconds, self._backoff.level)
            self._later("backoff", seconds, self._waited)
        self._balance()

    def _waited(self) -> None:
        self._backoff.waited()
        self._balance()

    def _balance(self) -> None:
        """Tell every nsqd how much it may send now."""
        if self._stopping is None or self._stopping.done():
            return
        now_s = self._loop.time()
        states = [subscription.state for subscription in self._subscriptions]
        bound = 0 if self._paused else self._backoff.in_flight_max(self.options.max_in_flight)
        counts = share(states, bound, now_s, self._turns)
        for subscription, count in zip(self._subscriptions, counts, strict=True):
            subscription.set_rdy(count, now_s)
        if take_turns(states, bound) and "turns" not in self._timers:
            self._later("turns", min(self._turns.idle_s, self._turns.hold_s) / 4, self._next_turn)

    def _next_turn(self) -> None:
        del self._timers["turns"]
        self._balance()

    def _later(self, name: str, seconds: float, act: Callable[[], None]) -> None:
        if name in self._timers:
            self._timers[name].cancel()
        self._timers[name] = self._loop.call_later(seconds, act)

    # --- connections ---

    def _begin(self, source: _Source) -> asyncio.Future[ConnectFailed | None]:
        """Look after `source` from now on. The outcome of the first attempt."""
        first: asyncio.Future[ConnectFailed | None] = self._loop.create_future()
        task = self._loop.create_task(
            self._tend(source, first), name=f"penstock {' '.join(source)}"
        )
        self._tasks[source] = task
        task.add_done_callback(log_death)
        task.add_done_callback(lambda _: self._tasks.pop(source, None))
        return first

    async def _tend(self, source: _Source, first: asyncio.Future[ConnectFailed | None]) -> None:
        """Keep a subscription to `source` as long as it is wanted."""
        options = self.options
        delays = Delays(options.reconnect_delay_s, options.reconnect_delay_max_s, random.random)
        try:
            while self._is_wanted(source):
                began_s = self._loop.time()
                outcome = await self._attempt(source, first)
                if not first.done():
                    first.set_result(outcome)
                if outcome is None:
                    delays.lasted(self._loop.time() - began_s)
                if self._is_wanted(source):
                    await asyncio.sleep(delays.next_s())
        finally:
            if not first.done():
                first.set_result(ConnectFailed(source[1], "the consumer closed"))

    def _is_wanted(self, source: _Source) -> bool:
        if self._stopping is None or self._stopping.done():
            return False
        return source[1] in self._given or source in self._found

    async def _attempt(
        self, source: _Source, first: asyncio.Future[ConnectFailed | None]
    ) -> ConnectFailed | None:
        """Subscribe, and stay until the connection ends. What went wrong before it stood."""
        lost: asyncio.Future[None] = self._loop.create_future()
        try:
            subscription = await self._subscribe(*source, lost)
        except ConnectFailed as error:
            log.warning("consumer: %s", error)
            return error
        if not first.done():
            first.set_result(None)
        try:
            await lost
        finally:
            subscription.link.close()
            self._leave(subscription)
            self._look_again.set()  # its partitions may have another leader
        return None

    async def _subscribe(
        self, topic: str, address: str, lost: asyncio.Future[None]
    ) -> Subscription:
        link = await connect(address, self.options)
        link.on_lost = lambda: None if lost.done() else lost.set_result(None)
        try:
            async with asyncio.timeout(self.options.connect_timeout_s):
                link.write(self._subs[topic])
                await link.expect_ok()
        except TimeoutError:
            link.abort("timed out")
            raise ConnectFailed(address, "SUB was not answered") from None
        except BaseException:
            link.abort("failed")
            raise
        subscription = Subscription(
            link, self, topic, self.channel, self.partition, self.options, self._loop.time()
        )
        self._subscriptions.append(subscription)
        self.counts.connections += 1
        link.start(subscription.received)
        log.info("consumer: connected to %s for %s", address, topic)
        if self._stopping is not None and self._stopping.done():
            subscription.close_soon()
        if self.options.auto_touch:
            self._touch_due()
        self._balance()
        return subscription

    def _leave(self, subscription: Subscription) -> None:
        """Its connection has ended: nsqd will send its queued messages again."""
        self._subscriptions.remove(subscription)
        if not self._closed:
            log.warning("consumer: %s: %s", subscription.address, subscription.link.reason)
        if self._queue:
            self._queue = deque(message for message in self._queue if not message.lost)
        self._balance()
        self.check_drained()

    def _touch_due(self) -> None:
        now_s = self._loop.time()
        for subscription in self._subscriptions:
            subscription.touch_due(now_s)
        timeouts_s = [s.link.negotiated.message_timeout_s for s in self._subscriptions]
        if timeouts_s:
            self._later("touch", min(timeouts_s) / 8, self._touch_due)

    # --- discovery ---

    async def _discover(self) -> None:
        discovery = Discovery(self._lookupds, self.options)
        try:
            async for found, is_early in discovery.rounds(self.topics, self._look_again):
                self._take_found(found, is_early)
        finally:
            await discovery.close()

    def _take_found(self, found: Mapping[str, LookupResult], is_early: bool) -> None:
        """An nsqd that was lost may be about to come back: an early round forgets none."""
        for failure in {str(failure) for one in found.values() for failure in one.failures}:
            log.warning("lookupd: %s", failure)
        here = {(topic, address) for topic in found for address in found[topic].addresses}
        unsure = {one for one in self._found if is_early or not found[one[0]].complete}
        self._found = here | unsure
        for source in here:
            if source not in self._tasks and source[1] not in self._given:
                self._begin(source)
