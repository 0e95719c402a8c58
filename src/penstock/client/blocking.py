"""The client library for programs without an event loop.

A `BlockingProducer` or `BlockingConsumer` runs the asyncio form in a loop of its own, in a thread
of its own, and waits for it. May be used from several threads. Waking a thread costs some tens of
microseconds, so many messages go faster by `mpub` and `pub_many`, and a consumer's messages cross
over in batches.

    with BlockingProducer("127.0.0.1:4150") as producer:
        producer.pub("orders", b"one")

    with BlockingConsumer("orders", "billing", "127.0.0.1:4150") as consumer:
        for message in consumer:
            ...
            message.fin()
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial, update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, cast, overload

import uvloop

from penstock.client.consumer import Consumer, Counts
from penstock.client.idempotent import IdempotentProducer
from penstock.client.message import Message
from penstock.client.producer import Producer
from penstock.client.publishing import NotStarted, Published, To, Where, not_again
from penstock.client.subscription import Subscription
from penstock.errors import ClientClosed

P = ParamSpec("P")
T = TypeVar("T")


def _with_arguments_of(
    made: Callable[P, T],
) -> Callable[[Callable[[Any, T], None]], Callable[Concatenate[Any, P], None]]:
    """For an `__init__` around the asyncio class: it takes the arguments of that class."""

    def decorate(init: Callable[[Any, T], None]) -> Callable[Concatenate[Any, P], None]:
        def outer(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
            init(self, made(*args, **kwargs))

        update_wrapper(outer, made.__init__)
        return outer

    return decorate


class _LoopThread:
    def __init__(self, name: str) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run `work` in the loop, and wait for its outcome. Raises TimeoutError; the work is then
        cancelled."""
        if self.loop.is_closed():
            work.close()
            raise ClientClosed("client")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


class _Blocking:
    """An asyncio client, running in a thread of its own."""

    def __init__(self, what: str, client: Producer | IdempotentProducer | Consumer) -> None:
        self._what = what
        self._client = client
        self._thread: _LoopThread | None = None
        self._closing = threading.Lock()  # of several threads that close one does, others wait

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        if self._thread is not None:
            raise not_again(self._what, self._thread.loop.is_closed())
        self._thread = _LoopThread(f"penstock {self._what}")
        try:
            self._thread.call(self._client.start())
        except BaseException:
            self._thread.close()
            raise

    def _running(self) -> _LoopThread:
        if self._thread is None:
            raise NotStarted(self._what)
        return self._thread

    def _close(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with self._closing:
            if self._thread is not None and not self._thread.loop.is_closed():
                self._thread.call(end())
                self._thread.close()


class _BlockingPublishing(_Blocking, Generic[Where]):
    """The common part of the blocking producers. `Where`: the result of a publish with a trace
    id."""

    def __init__(self, producer: Producer | IdempotentProducer) -> None:
        super().__init__("producer", producer)
        self._producer = producer

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, timeout_s: float | None = None) -> None:
        self._close(lambda: self._producer.close(timeout_s))

    @overload
    def pub(self, topic: str, body: object, **to: Unpack[To]) -> None: ...
    @overload
    def pub(self, topic: str, body: object, *, trace_id: int, **to: Unpack[To]) -> Where: ...
    def pub(self, topic: str, body: object, **options: Any) -> Any:
        return self._wait(lambda: self._producer.pub(topic, body, **options))

    @overload
    def mpub(self, topic: str, bodies: Sequence[object], **to: Unpack[To]) -> None: ...
    @overload
    def mpub(
        self,
        topic: str,
        bodies: Sequence[object],
        *,
        trace_id: int | Sequence[int],
        partition: int | None = None,
    ) -> Where: ...
    def mpub(self, topic: str, bodies: Sequence[object], **options: Any) -> Any:
        return self._wait(lambda: self._producer.mpub(topic, bodies, **options))

    def dpub(self, topic: str, body: object, delay_s: float) -> None:
        self._wait(lambda: self._producer.dpub(topic, body, delay_s))

    def pub_many(self, topic: str, bodies: Iterable[object], *, window: int = 500) -> int:
        """As `Producer.pub_many`. The loop's thread reads `bodies`."""
        return self._running().call(self._producer.pub_many(topic, bodies, window=window))

    def _wait(self, publish: Callable[[], Awaitable[T]]) -> T:
        async def work() -> T:
            return await publish()

        return self._running().call(work())


class BlockingProducer(_BlockingPublishing[Published]):
    """Arguments and errors as `Producer` has them."""

    @_with_arguments_of(Producer)
    def __init__(self, producer: Producer) -> None:
        super().__init__(producer)


class BlockingIdempotentProducer(_BlockingPublishing[Published | None]):
    """Arguments and errors as `IdempotentProducer` has them."""

    @_with_arguments_of(IdempotentProducer)
    def __init__(self, producer: IdempotentProducer) -> None:
        super().__init__(producer)


class _InLoop:
    """In place of a message's subscription, where another thread than the loop's has the message:
    the loop does what it asks for."""

    def __init__(
        self, subscription: Subscription, do: Callable[[Callable[[], object]], None]
    ) -> None:
        self._subscription = subscription
        self._do = do

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subscription, name)

    def finish(self, message: Message) -> None:
        self._do(partial(self._subscription.finish, message))

    def requeue(self, message: Message, delay_ms: int, backoff: bool) -> None:
        self._do(partial(self._subscription.requeue, message, delay_ms, backoff))

    def touch(self, message: Message) -> None:
        self._do(partial(self._subscription.touch, message))


class BlockingConsumer(_Blocking):
    """Arguments and errors as `Consumer` has them."""

    @_with_arguments_of(Consumer)
    def __init__(self, consumer: Consumer) -> None:
        super().__init__("consumer", consumer)
        self._consumer = consumer
        self._ready: deque[Message] = deque()
        self._answers: list[Callable[[], object]] = []  # for the loop to do
        self._waking = False  # it was told to
        self._lock = threading.Lock()

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        self.close(None if error is None else 0)

    def stop(self) -> None:
        """Begin an orderly end: the iteration ends after the received messages."""
        thread = self._running()
        thread.loop.call_soon_threadsafe(self._consumer.stop)

    def close(self, timeout_s: float | None = None) -> None:
        self._close(lambda: self._end(timeout_s))

    async def _end(self, timeout_s: float | None) -> None:
        with self._lock:
            left = list(self._ready)
            self._ready.clear()
        self._answer()
        self._consumer.stop()  # first, or nsqd would send us again what we give back
        for message in left:
            if not message.settled:
                message.req()
        await self._consumer.close(timeout_s)

    @property
    def counts(self) -> Counts:
        return self._consumer.counts

    def __iter__(self) -> Iterator[Message]:
        while True:
            message = self.get()
            if message is None:
                return
            yield message

    def get(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None when there is none within `timeout_s`, or none any more."""
        thread = self._running()
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._lock:
                while self._ready:
                    message = self._ready.popleft()
                    if not message.lost:
                        there = _InLoop(message._subscription, self._do)
                        message._subscription = cast(Subscription, there)
                        return message
            left_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0)
            if not thread.call(self._fetch(left_s)):
                return None

    async def _fetch(self, timeout_s: float | None) -> bool:
        """Fetch received messages, at least one; False when none comes."""
        self._answer()
        try:
            async with asyncio.timeout(timeout_s):
                first = await anext(self._consumer)
        except (TimeoutError, StopAsyncIteration):
            return False
        with self._lock:
            self._ready.append(first)
            self._ready.extend(self._consumer.take_nowait())
        return True

    def _do(self, answer: Callable[[], object]) -> None:
        """Have the loop do it soon: one wake-up for all that gathers until it comes to it."""
        thread = self._running()
        with self._lock:
            self._answers.append(answer)
            if self._waking or thread.loop.is_closed():
                return
            self._waking = True
        thread.loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        with self._lock:
            answers, self._answers = self._answers, []
            self._waking = False
        for answer in answers:
            answer()
