"""Middleware: functions around a handler, or around a publish.

    async def timed(message: Message, call_next: Next[Message]) -> object:
        began_s = time.monotonic()
        try:
            return await call_next(message)
        finally:
            print(message.topic, time.monotonic() - began_s)

    Consumer(..., middleware=[timed])  # in `run`
    Producer(..., middleware=[...])  # the same, with an Outgoing in place of the Message

The first one is the outermost. One that does not call the next ends it there: the message is
finished, or the publish answered with what it returns, and nothing is sent. Around a handler they
see its exceptions, HandlerTimeout among them, before anything is made of them.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
Next = Callable[[T], Awaitable[Any]]
Middleware = Callable[[T, Next[T]], Awaitable[Any]]


def chain(middleware: Sequence[Middleware[T]], inner: Next[T]) -> Next[T]:
    for around in reversed(middleware):
        inner = partial(_call, around, inner)
    return inner


def _call(around: Middleware[T], inner: Next[T], subject: T) -> Awaitable[Any]:
    return around(subject, inner)
