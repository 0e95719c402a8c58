"""When the next turn of the loop is. What a turn does, and in which order, is `net/order.py`.

A turn runs when the kernel's descriptor is readable (a socket, or `wake` from a sync thread), when
someone asks for it (`net/turn.py`), or when a timer is due.

Timers. `Engine.tick` looks at every window, so it does not run in every turn: after a turn that a
socket or a caller started, it is due within TICK_NS; after a tick, at the time that the tick
itself named. A busy daemon so ticks every few milliseconds, and an idle one sleeps until there is
something to do.

An exception that comes out of a turn is a fault of the program, in a place where acknowledged data
is at stake: it goes to `on_fault`, which stops the daemon. A handler that reports one itself stops
the turn, too, before anything more is written or sent.

Asking for a turn. It is made before the turn, because whoever asks for turns is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock import limits
from penstock.clock import Clock
from penstock.net.order import NEVER_NS, TurnOrder

TIMER_NS_MIN = limits.MS  # a timer shorter than this would only spin


class Turn:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        soon: Soon,
        descriptor: int,
        order: TurnOrder,
        clock: Clock,
        on_fault: Callable[[Exception], None],
    ) -> None:
        self.order = order
        self.soon = soon.ask
        self._loop = loop
        self._soon = soon
        self._descriptor = descriptor
        self._mono_ns = clock.mono_ns
        self._on_fault = on_fault
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = NEVER_NS
        soon.begin(self._on_ready)

    def start(self) -> None:
        self._loop.add_reader(self._descriptor, self._on_ready)
        self.soon()

    def stop(self) -> None:
        if self.order.stopped:
            return
        self.order.stopped = True
        self._loop.remove_reader(self._descriptor)
        self._soon.stop()
        if self._timer is not None:
            self._timer.cancel()

    def tick(self) -> None:
        """Look at all timers now, and run a turn."""
        if self.order.stopped:
            return
        try:
            more, due_ns = self.order.tick()
        except Exception as error:
            self._on_fault(error)
            return
        if more:
            self.soon()
        if due_ns < self._timer_ns:
            self._arm(due_ns)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_ns = NEVER_NS
        self.tick()

    def _on_ready(self) -> None:
        mono_ns, order = self._mono_ns(), self.order
        try:
            more = order.run(mono_ns, not self._soon.asked)
        except Exception as error:
            self._on_fault(error)
            return
        if more:
            self.soon()
        due_ns = order.due_ns(mono_ns + limits.TICK_NS)
        if due_ns < self._timer_ns:
            self._arm(due_ns)

    def _arm(self, due_ns: int) -> None:
        if self.order.stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        wait_ns = max(due_ns - self._mono_ns(), TIMER_NS_MIN)
        self._timer_ns = due_ns
        self._timer = self._loop.call_later(wait_ns / limits.SECOND, self._on_timer)


def descriptor_of(loop: asyncio.AbstractEventLoop) -> int:
    """Readable when something is that the loop watches; -1: this loop has none. uvloop has."""
    find = getattr(loop, "_get_backend_id", None)
    return -1 if find is None else int(find())


def _no_turn_yet() -> None:
    raise RuntimeError("a turn was asked for, and there is none")


class Soon:
    """`ask` may be handed on at once; `begin` says what is run, `stop` that nothing is any more."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._run: Callable[[], None] = _no_turn_yet
        self._handle: asyncio.Handle | None = None
        self._stopped = False

    @property
    def asked(self) -> bool:
        return self._handle is not None

    def begin(self, run: Callable[[], None]) -> None:
        self._run = run

    def ask(self) -> None:
        """Run a turn at the next chance: someone outside of it has left something to do."""
        if self._handle is None and not self._stopped:
            self._handle = self._loop.call_soon(self._call)

    def _call(self) -> None:
        self._handle = None
        self._run()

    def stop(self) -> None:
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()
