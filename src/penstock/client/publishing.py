"""What both producers do alike: begin and end as a context, and publish with a bound on what is
unanswered."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import Protocol, Self

from penstock.errors import ProducerFull


class Bounds(Protocol):
    @property
    def pending_count_max(self) -> int: ...
    @property
    def pending_bytes_max(self) -> int: ...


class Publisher(ABC):
    """`start`, `pub` and `close` are each producer's own."""

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def close(self, timeout_s: float | None = None) -> None: ...

    @abstractmethod
    def pub(self, topic: str, body: bytes) -> asyncio.Future[None]: ...

    @property
    @abstractmethod
    def bounds(self) -> Bounds: ...

    @property
    @abstractmethod
    def pending_count(self) -> int: ...

    @property
    @abstractmethod
    def pending_bytes(self) -> int: ...

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def publish_nowait(self, topic: str, body: bytes) -> asyncio.Future[None]:
        """`pub` for callers that do not wait: raises ProducerFull instead of holding more than
        `pending_count_max` publishes or `pending_bytes_max` bytes."""
        count, size, bounds = self.pending_count, self.pending_bytes, self.bounds
        if count >= bounds.pending_count_max or size + len(body) > bounds.pending_bytes_max:
            raise ProducerFull(count, size)
        return self.pub(topic, body)

    async def pub_many(self, topic: str, bodies: Iterable[bytes], *, window: int = 500) -> int:
        """Publish each of `bodies`, with at most about `window` unanswered. How many there were.
        The first error ends it; what was sent before it may be stored."""
        return await publish_many((self.pub(topic, body) for body in bodies), window)


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
