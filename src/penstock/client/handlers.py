"""Handlers: workers that take messages from a consumer, and what the outcome of a handler means.

    returns            FIN
    raises Requeue     REQ with that delay; a failure for the back-off unless it says otherwise
    raises Exception   REQ with `requeue_delay_s` times the attempts, and a failure
    is cancelled       REQ at once, no failure

A handler may also settle its message itself; then its return adds nothing. There is no task per
message: `concurrency` workers live as long as the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

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


async def work(
    consumer: Consumer, handler: Handler, concurrency: int, on_giving_up: Handler | None
) -> None:
    if concurrency < 1:
        raise ConfigError("concurrency", concurrency, "must be 1 or more")
    if concurrency == 1:
        await _worker(consumer, handler, on_giving_up)
        return
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(_worker(consumer, handler, on_giving_up))


async def _worker(consumer: Consumer, handler: Handler, on_giving_up: Handler | None) -> None:
    attempts_max = consumer.options.max_attempts
    async for message in consumer:
        if attempts_max and message.attempts > attempts_max:
            await _give_up(consumer, message, on_giving_up)
            continue
        try:
            await handler(message)
        except Exception as error:
            _failed(consumer, message, error)
        except BaseException:
            if not message.settled:
                message.req()
            raise
        else:
            if not message.settled:
                message.fin()


def _failed(consumer: Consumer, message: Message, error: Exception) -> None:
    delay_s, backoff = None, True
    if isinstance(error, Requeue):
        delay_s, backoff = error.delay_s, error.backoff
    else:
        log.error("handler failed on %r", message, exc_info=error)
    if message.settled:
        return
    options = consumer.options
    if delay_s is None:
        delay_s = min(options.requeue_delay_s * message.attempts, options.requeue_delay_max_s)
    message.req(delay_s, backoff=backoff)


async def _give_up(consumer: Consumer, message: Message, on_giving_up: Handler | None) -> None:
    """A message that `on_giving_up` fails on is not given up yet."""
    if on_giving_up is None:
        log.warning("giving up %r", message)
    else:
        try:
            await on_giving_up(message)
        except Exception as error:
            _failed(consumer, message, error)
            return
    consumer.counts.given_up += 1
    if not message.settled:
        message.fin()
