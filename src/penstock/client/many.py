"""Publishing many messages with a bounded number unanswered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable


async def publish_many(publishes: Iterable[asyncio.Future[None]], window: int) -> int:
    """Wait for all of `publishes`, which begin one after the other as they are taken from the
    iterable. How many there were. The first error ends it."""
    waiting: deque[asyncio.Future[None]] = deque()
    count = 0
    try:
        for future in publishes:
            waiting.append(future)
            count += 1
            if len(waiting) >= window:
                await _half(waiting)
        while waiting:
            await _half(waiting)
    finally:
        for future in waiting:
            if not future.cancel() and not future.cancelled():
                future.exception()  # it is known: the first one was raised
    return count


async def _half(waiting: deque[asyncio.Future[None]]) -> None:
    """Wait for the older half, so that the other half keeps nsqd busy meanwhile."""
    for _ in range(len(waiting) // 2 + 1):
        await waiting[0]
        waiting.popleft()
