"""How a daemon runs: one event loop, and an end by signal, by itself, or by a fault.

The first SIGINT or SIGTERM asks for an orderly stop, the second ends the process at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from penstock import limits

EXIT_USAGE = 2
EXIT_FATAL = 1


class Service(Protocol):
    """What `serve` keeps alive."""

    ended: asyncio.Future[int]  # an exit code, once it is time to stop
    broken: bool  # by a fault of the program

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


def run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run `main` on the fastest loop there is. Returns its exit code."""
    raise_descriptor_limit()
    sys.setswitchinterval(limits.GIL_SWITCH_NS / limits.SECOND)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main())


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def raise_descriptor_limit() -> None:
    """A connection is a descriptor; the usual soft limit of 1,024 is a shell's, not a server's."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def serve(service: Service, start: Callable[[], Awaitable[bool]]) -> int:
    """`start` starts the service, or reports why it can't and returns False."""
    loop = asyncio.get_running_loop()
    signals = _Signals(service.ended)
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, signals.on_signal, number)
    try:
        if not await start():
            return EXIT_FATAL
        code = await service.ended
        await service.stop()
        return EXIT_FATAL if service.broken else code
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


class _Signals:
    def __init__(self, ended: asyncio.Future[int]) -> None:
        self._ended = ended
        self._count = 0

    def on_signal(self, number: int) -> None:
        self._count += 1
        if self._count > 1:
            os._exit(128 + number)
        if not self._ended.done():
            self._ended.set_result(0)
