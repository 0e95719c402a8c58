"""Handlers: workers that take messages from a consumer, and the meaning of a handler's outcome.

    returns            FIN
    raises Requeue     REQ with that delay; a failure for the back-off unless it says otherwise
    raises Exception   what `on_error` says; else REQ with `requeue_delay_s` times the attempts, and
                       a failure
    takes too long     HandlerTimeout is raised in its place
    waits for a task   as if it had raised an exception
      that is cancelled
    is cancelled       REQ at once, no failure

What would go back after `max_attempts` is given up instead: `on_giving_up`, then FIN.

A handler may also settle its message itself; then its outcome adds nothing. There is no task per
message: the workers live as long as the run.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

from penstock.client.message import Message
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.client.consumer import Consumer

log = logging.getLogger("penstock.client")

Handler = Callable[[Message], Awaitable[object]]


class Requeue(Exception):
    """Raised by a handler to give its message back after `delay_s` (None: the usual delay)."""

    def __init__(self, delay_s: float | None = None, *, backoff: bool = True) -> None:
        super().__init__(delay_s)
        self.delay_s = delay_s
        self.backoff = backoff


class HandlerTimeout(TimeoutError):
    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"the handler took longer than {timeout_s} s")
        self.timeout_s = timeout_s


Word = Literal["requeue", "drop", "give_up"]
Action = Word | Requeue
# By the nearest class of the exception, or chosen by a function.
OnError = Mapping[type[Exception], Action] | Callable[[Message, Exception], Action]


def routed(handlers: Mapping[str, Handler], topics: Sequence[str]) -> Handler:
    """One handler for all topics, from one for each. Raises ConfigError."""
    if set(handlers) != set(topics):
        raise ConfigError("handler", sorted(handlers), f"one for each of {', '.join(topics)}")
    for handler in handlers.values():
        check_async("handler", handler)
    return lambda message: handlers[message.topic](message)


def check_async(name: str, handler: Handler) -> None:
    """Raises ConfigError for a function that would fail on every message. A lambda may return a
    coroutine."""
    called: object = inspect.unwrap(handler)
    while isinstance(called, partial):
        called = called.func
    is_lambda = getattr(called, "__name__", "") == "<lambda>"
    if not is_lambda and not any(map(inspect.iscoroutinefunction, (called, type(called).__call__))):
        raise ConfigError(name, handler, "must be an async function that takes a message")


def limited(handler: Handler, timeout_s: float) -> Handler:
    """`handler`, cancelled after so long. Raises HandlerTimeout then."""
    if timeout_s <= 0:
        raise ConfigError("handler_timeout_s", timeout_s, "must be above 0")

    async def handle(message: Message) -> None:
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                await handler(message)
        except TimeoutError as error:
            if limit.expired():
                raise HandlerTimeout(timeout_s) from error
            raise

    return handle


class Work:
    def __init__(
        self,
        consumer: Consumer,
        handler: Handler,
        on_error: OnError | None,
        on_giving_up: Handler | None,
    ) -> None:
        self._consumer = consumer
        self._options = consumer.options
        self._handler = handler
        self._on_error = {} if on_error is None else on_error
        self._on_giving_up = on_giving_up
        if on_giving_up is not None:
            check_async("on_giving_up", on_giving_up)
        if isinstance(self._on_error, Mapping):
            for action in self._on_error.values():
                _checked(action)

    async def run(self, concurrency: int) -> None:
        if concurrency < 1:
            raise ConfigError("concurrency", concurrency, "must be 1 or more")
        if concurrency == 1:
            await self._worker()
            return
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(self._worker())
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None  # as one worker raises it

    async def _worker(self) -> None:
        attempts_max, handler = self._options.max_attempts, self._handler
        async for message in self._consumer:
            try:
                if attempts_max and message.attempts > attempts_max:
                    await self._give_up(message)  # its last attempt had no outcome: a crash, say
                    continue
                try:
                    await handler(message)
                except asyncio.CancelledError as error:
                    if (worker := asyncio.current_task()) and worker.cancelling():
                        raise
                    # It is not for the worker, which would end without a word.
                    failure = RuntimeError("what the handler waited for was cancelled")
                    failure.__cause__ = error
                    await self._failed(message, failure)
                except Exception as error:
                    await self._failed(message, error)
                else:
                    if not message.settled:
                        message.fin()
            except BaseException:
                if not message.settled:
                    message.req()
                raise

    async def _failed(self, message: Message, error: Exception) -> None:
        action = self._action(message, error)
        shown = None if error is action else error  # a Requeue that was raised is no surprise
        if message.settled:
            log.error("handler failed on %r, which it had settled", message, exc_info=shown)
        elif action == "drop":
            log.warning("handler failed on %r, which is dropped: %r", message, error)
            message.fin()
        elif action == "give_up":
            log.error("handler failed on %r, which is given up", message, exc_info=shown)
            await self._give_up(message)
        else:
            wanted = action if isinstance(action, Requeue) else Requeue()
            if 0 < self._options.max_attempts <= message.attempts:
                log.error("handler failed on %r for the last time", message, exc_info=shown)
                if wanted.backoff:
                    self._consumer.failed(message)
                await self._give_up(message)
            else:
                self._requeue(message, wanted, shown)

    def _action(self, message: Message, error: Exception) -> Action:
        if isinstance(error, Requeue):
            return error
        if not isinstance(self._on_error, Mapping):
            return _checked(self._on_error(message, error))
        kinds = (kind for kind in type(error).__mro__ if kind in self._on_error)
        return self._on_error.get(next(kinds, Exception), "requeue")

    def _requeue(self, message: Message, wanted: Requeue, error: Exception | None) -> None:
        delay_s = wanted.delay_s
        if delay_s is None:
            usual_s = self._options.requeue_delay_s * message.attempts
            delay_s = min(usual_s, self._options.requeue_delay_max_s)
        if error is not None:
            notice = "handler failed on %r, which comes again after %g s"
            log.error(notice, message, delay_s, exc_info=error)
        message.req(delay_s, backoff=wanted.backoff)

    async def _give_up(self, message: Message) -> None:
        """If `on_giving_up` fails, the message is kept."""
        if self._on_giving_up is None:
            log.warning("giving up %r", message)
        else:
            try:
                await self._on_giving_up(message)
            except Exception as error:
                if message.settled:
                    return
                if isinstance(error, Requeue):
                    self._requeue(message, error, None)
                else:
                    self._requeue(message, Requeue(), error)
                return
        self._consumer.counts.given_up += 1
        if not message.settled:
            message.fin()


def _checked(action: Action) -> Action:
    """Raises ConfigError."""
    if isinstance(action, Requeue) or action in get_args(Word):
        return action
    raise ConfigError("on_error", action, f"is a Requeue or one of {', '.join(get_args(Word))}")
