"""The life of a daemon: one event loop, and an end by signal, by itself, or by a fault.

The first SIGINT or SIGTERM asks for an orderly stop, the second ends the process at once. SIGQUIT
writes all stacks to the log and then does the same. SIGHUP reloads what the service can reload;
when it comes because the terminal is gone, it is an orderly stop. Under nohup it is ignored.

Where the program is at this moment: its tasks, and the stack of every thread.
"""

import asyncio
import logging
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import uvloop

from penstock import limits
from penstock.errors import PenstockError

log = logging.getLogger("penstock.command")

EXIT_USAGE = 2
EXIT_FATAL = 1


class Service(Protocol):
    ended: asyncio.Future[int]  # an exit code, once it is time to stop
    broken: bool  # by a fault of the program

    async def start(self) -> None: ...  # cancelled when `ended` comes first
    async def stop(self) -> None: ...


def run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run `main` on the fastest loop there is. Returns its exit code."""
    raise_descriptor_limit()
    sys.setswitchinterval(limits.GIL_SWITCH_NS / limits.SECOND)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def raise_descriptor_limit() -> None:
    """A connection is a descriptor; the usual soft limit of 1,024 is meant for a shell, not a
    server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def serve(
    service: Service,
    name: str,
    started: Callable[[], None] = lambda: None,
    reload: Callable[[], Awaitable[None]] | None = None,
) -> int:
    """Start the service, and keep it alive until it ends. `started` is called in between; `reload`
    reads its configuration again."""
    loop = asyncio.get_running_loop()
    signals = _Signals(service.ended, reload)
    acts: dict[int, Callable[[int], None]] = {
        signal.SIGINT: signals.on_signal,
        signal.SIGTERM: signals.on_signal,
        signal.SIGQUIT: signals.on_quit,
    }
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        acts[signal.SIGHUP] = signals.on_hang_up
    for number, act in acts.items():
        loop.add_signal_handler(number, act, number)
    try:
        starting = loop.create_task(service.start())
        service.ended.add_done_callback(lambda _: starting.cancel())  # it may wait for long
        try:
            await starting
        except (PenstockError, OSError) as error:
            logging.getLogger(f"penstock.{name}").critical("failed to start %s - %s", name, error)
            return EXIT_FATAL
        except asyncio.CancelledError:
            return EXIT_FATAL if service.broken else service.ended.result()
        started()
        signals.started = True
        code = await service.ended
        await service.stop()
        return EXIT_FATAL if service.broken else code
    finally:
        for number in acts:
            loop.remove_signal_handler(number)


class _Signals:
    def __init__(
        self, ended: asyncio.Future[int], reload: Callable[[], Awaitable[None]] | None
    ) -> None:
        self.started = False
        self._ended = ended
        self._reload = reload
        self._reloading: asyncio.Task[None] | None = None
        self._has_terminal = has_terminal()
        self._count = 0

    def on_signal(self, number: int) -> None:
        self._count += 1
        if self._count > 1:
            os._exit(128 + number)
        if not self._ended.done():
            self._ended.set_result(0)

    def on_quit(self, number: int) -> None:
        if self._count == 0:
            log.warning("SIGQUIT: stopping; the stacks are\n%s%s", tasks_report(), stacks_report())
        self.on_signal(number)

    def on_hang_up(self, number: int) -> None:
        if self._has_terminal and not has_terminal():
            log.info("SIGHUP: the terminal has closed; stopping")
            self.on_signal(number)
        elif self._reload is None:
            log.info("SIGHUP: this program has nothing to reload")
        elif self.started and not self._ended.done():
            self._reloading = asyncio.ensure_future(self._reload_once(self._reloading))

    async def _reload_once(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        log.info("SIGHUP: reloading")
        try:
            if self._reload is not None:
                await self._reload()
        except (PenstockError, OSError) as error:
            log.error("SIGHUP: reload failed, nothing has changed: %s", error)


def has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def tasks_report() -> str:
    tasks = asyncio.all_tasks()
    lines = [f"{len(tasks)} tasks", *sorted(map(str, tasks))]
    return "\n".join(lines) + "\n\n"


def stacks_report() -> str:
    frames = sys._current_frames()
    parts = [f"{len(frames)} threads\n"]
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        parts.append(f"thread {thread.name}:\n{stack}")
    return "\n".join(parts)
