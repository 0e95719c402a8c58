"""An event loop without descriptors, on a clock that only it moves.

Tasks run on it, too: asyncio's own, stepped by this loop, so their order is that of the calls.
"""

import asyncio
import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any

from penstock import limits
from sim.clock import FakeClock

CALLS_MAX = 10_000  # at one instant


class FakeHandle:
    def __init__(
        self,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        context: Context | None = None,
    ) -> None:
        self._callback = callback
        self._arguments = arguments
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def run(self) -> None:
        if not self._cancelled:
            self._context.run(self._callback, *self._arguments)


class FakeLoop:
    """What a node (`nsqd/assembly.py`) uses of an event loop. Time stands still while callbacks
    run. It watches no descriptor: whoever has something for the node asks for a turn."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._ready: deque[FakeHandle] = deque()
        self._timers: list[tuple[int, int, FakeHandle]] = []
        self._numbers = itertools.count()

    def call_soon(
        self, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> FakeHandle:
        handle = FakeHandle(callback, arguments, context)
        self._ready.append(handle)
        return handle

    def create_task(self, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(work, loop=self, **options)  # type: ignore[arg-type]

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def get_debug(self) -> bool:
        """asyncio's tasks ask."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A task failed, and its error was not looked at."""
        raise RuntimeError(context["message"]) from context.get("exception")

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *arguments: Any
    ) -> FakeHandle:
        handle = FakeHandle(callback, arguments)
        due_ns = self._clock.since_ns + math.ceil(delay_s * limits.SECOND)
        heapq.heappush(self._timers, (due_ns, next(self._numbers), handle))
        return handle

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        pass

    def remove_reader(self, fd: int) -> None:
        pass

    def run_ready(self) -> None:
        for _ in range(CALLS_MAX):
            if not self._ready:
                return
            self._run(self._ready.popleft())
        raise RuntimeError("the loop never comes to rest")

    def pass_ns(self, ns: int, after_each: Callable[[], object]) -> None:
        """Timers run when they are due, and `after_each` after each of them."""
        end_ns = self._clock.since_ns + ns
        while self._timers and self._timers[0][0] <= end_ns:
            due_ns, _, handle = heapq.heappop(self._timers)
            self._clock.since_ns = max(self._clock.since_ns, due_ns)
            self._run(handle)
            after_each()
        self._clock.since_ns = end_ns

    def _run(self, handle: FakeHandle) -> None:
        """As the loop that is running, which asyncio's own parts look for."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)  # type: ignore[arg-type]
        try:
            handle.run()
        finally:
            asyncio._set_running_loop(outer)
