"""One turn of the loop: the order in which kernel and broker are called, and when the next turn is.

The kernel's interface names the sequence: poll, decide, write, flush, load, journal. This shell
keeps it and adds the timing. A turn runs when the kernel's descriptor is readable (a socket, or
`wake` from a sync thread), when someone calls `soon`, or when a timer is due.

Timers. `Engine.tick` looks at every window, so it does not run in every turn: after a turn that a
socket or a caller started, it is due within TICK_NS; after a tick, at the time that the tick
itself named. A busy daemon so ticks every few milliseconds, and an idle one sleeps until there is
something to do.

Events about traced messages are stored within TRACE_GATHER_NS, or when the kernel has a chunk of
them: a small write in every turn would cost more than all the rest of tracing. So publishers do not
wait for them, and a kill may take the last few milliseconds of them along.

An exception that comes out of a turn is a fault of the program, in a place where acknowledged data
is at stake: it goes to `on_fault`, which stops the daemon. A handler that reports one itself stops
the turn, too, before anything more is written or sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from penstock import limits
from penstock.kernel import Conn, Event, Tail, Window

NEVER_NS = 1 << 62
TIMER_NS_MIN = limits.MS  # a timer shorter than this would only spin
LOAD_ROUNDS_MAX = 8  # flushes in one turn: a deep backlog must not starve the sockets

_NEED = Event.NEED


class TurnEngine(Protocol):
    busy: bool
    trace_pending: bool
    trace_full: bool
    deadline_ns: int

    def fileno(self) -> int: ...
    def poll(self, mono_ns: int) -> list[tuple[Any, ...]]: ...
    def dirty_tails(self) -> list[Tail]: ...
    def flush(self, mono_ns: int, wall_ns: int) -> list[tuple[Any, ...]]: ...
    def dirty_windows(self) -> list[Window]: ...
    def dirty_detached(self) -> list[Conn]: ...
    def tick(self, mono_ns: int, wall_ns: int) -> int: ...


class TurnLinks(Protocol):
    again: dict[Any, None]  # links that want to be served though the engine names none

    def serve(self, conns: list[Conn]) -> None: ...


class TurnBroker(Protocol):
    def write(self, tails: list[Tail]) -> None: ...
    def load(self, window: Window, which: int, offset: int) -> None: ...
    def journal(self, windows: list[Window]) -> None: ...
    def synced(self) -> None: ...
    def write_trace(self) -> None: ...


class TurnClock(Protocol):
    def mono_ns(self) -> int: ...
    def wall_ns(self) -> int: ...


class Turn:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        engine: TurnEngine,
        broker: TurnBroker,
        clock: TurnClock,
        done: deque[Any],
        handle: Callable[[tuple[Any, ...]], None],
        on_fault: Callable[[Exception], None],
        links: TurnLinks,
    ) -> None:
        self._loop = loop
        self._links = links
        self._engine = engine
        self._broker = broker
        self._mono_ns = clock.mono_ns
        self._wall_ns = clock.wall_ns
        self._done = done  # of the sync pool: looked at before `synced` is called
        self._handle = handle
        self._on_fault = on_fault
        self._scheduled: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = NEVER_NS
        self._trace_due_ns = NEVER_NS  # when the events that were noted are stored
        self._stopped = False

    def start(self) -> None:
        self._loop.add_reader(self._engine.fileno(), self._on_ready)
        self.soon()

    def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._loop.remove_reader(self._engine.fileno())
        for handle in (self._scheduled, self._timer):
            if handle is not None:
                handle.cancel()

    def soon(self) -> None:
        """Run a turn at the next chance: someone outside of it has left something to do."""
        if self._scheduled is None and not self._stopped:
            self._scheduled = self._loop.call_soon(self._on_scheduled)

    def tick(self) -> None:
        """Look at all timers now, and run a turn."""
        if self._stopped:
            return
        try:
            self._tick()
        except Exception as error:
            self._on_fault(error)

    def _on_scheduled(self) -> None:
        self._scheduled = None
        self._on_ready()

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_ns = NEVER_NS
        self.tick()

    def _on_ready(self) -> None:
        mono_ns = self._mono_ns()
        try:
            self._run(mono_ns)
        except Exception as error:
            self._on_fault(error)
            return
        due_ns = min(mono_ns + limits.TICK_NS, self._trace_due_ns)
        deadline_ns = self._engine.deadline_ns
        if deadline_ns and deadline_ns < due_ns:
            due_ns = deadline_ns
        if due_ns < self._timer_ns:
            self._arm(due_ns)

    def _run(self, mono_ns: int) -> None:
        engine, broker, handle = self._engine, self._broker, self._handle
        for event in engine.poll(mono_ns):
            handle(event)
        if self._done and not self._stopped:
            broker.synced()
        if self._stopped:  # by a fault in one of these: nothing is stored or acknowledged any more
            return
        tails = engine.dirty_tails()
        if tails:
            broker.write(tails)
            if self._done:  # a sync that was run at once
                broker.synced()
                if self._stopped:
                    return
        if self._trace_due_ns != NEVER_NS and (engine.trace_full or mono_ns >= self._trace_due_ns):
            self._trace_due_ns = NEVER_NS
            broker.write_trace()
        # The time anew: a message's timeout counts from when it is sent, and a turn can be long.
        events = engine.flush(self._mono_ns(), self._wall_ns())
        if events:
            self._settle(events)
        windows = engine.dirty_windows()
        if windows:
            broker.journal(windows)
        conns = engine.dirty_detached()
        if conns or self._links.again:
            self._links.serve(conns)
        if self._trace_due_ns == NEVER_NS and engine.trace_pending:
            self._trace_due_ns = mono_ns + limits.TRACE_GATHER_NS
        if engine.busy:
            self.soon()

    def _settle(self, events: list[tuple[Any, ...]]) -> None:
        """Answer what a flush asked for, and flush again, a bounded number of times."""
        engine, load, handle = self._engine, self._broker.load, self._handle
        for _ in range(LOAD_ROUNDS_MAX):
            for event in events:
                if event[0] == _NEED:
                    load(event[1], event[2], event[3])
                else:
                    handle(event)
            events = engine.flush(self._mono_ns(), self._wall_ns())
            if not events:
                return
        for event in events:
            if event[0] == _NEED:
                load(event[1], event[2], event[3])
            else:
                handle(event)
        self.soon()

    def _tick(self) -> None:
        engine = self._engine
        # What has arrived is heard first: after a stall (a slow disk, a sleeping machine) a FIN
        # that came in time must not find its message timed out.
        self._run(self._mono_ns())
        if self._stopped:
            return
        mono_ns = self._mono_ns()
        engine.tick(mono_ns, self._wall_ns())
        self._run(mono_ns)
        # Nothing more can fire at this same instant; the answer counts in what the turn has sent.
        wait_ns = engine.tick(mono_ns, self._wall_ns())
        due_ns = min(mono_ns + wait_ns if wait_ns else NEVER_NS, self._trace_due_ns)
        deadline_ns = engine.deadline_ns
        if deadline_ns and deadline_ns < due_ns:
            due_ns = deadline_ns
        if due_ns < self._timer_ns:
            self._arm(due_ns)

    def _arm(self, due_ns: int) -> None:
        if self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        wait_ns = max(due_ns - self._mono_ns(), TIMER_NS_MIN)
        self._timer_ns = due_ns
        self._timer = self._loop.call_later(wait_ns / limits.SECOND, self._on_timer)
