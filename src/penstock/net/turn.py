"""A turn of the loop: the calls of kernel and broker in order, and its time.

    poll     what the sockets brought; events that are no publishes go to `handle`
    synced   batches whose sync has ended are acknowledged
    write    the open batches are sealed and written, and those that waited for more publishers
    trace    events about traced messages are stored, when it is time
    flush    messages and answers go out; what the kernel lacks for them is loaded, and again
    stay     after publishes to one partition and nothing else: the next ones, without a turn
    journal  what changed in channels is stored, also when it has gathered for long enough
    links    connections without a socket of the kernel's take their output
    after    a node of a cluster: what the turn has begun is reported to the others

`TurnOrder` has no timer and no descriptor: a call is a turn. The daemon's loop says when it runs,
and so do the worlds of the tests: what they show, they show of the daemon's own turn.

Events about traced messages are stored within TRACE_GATHER_NS, or when the kernel has a chunk of
them: a small write in every turn would cost more than all the rest of tracing. So publishers do not
wait for them, and a kill may take the last few milliseconds of them along.

Whoever sets `stopped` ends the turn before anything more is written or sent.

**When it is.** A turn of the daemon's loop (`Turn`) runs when the kernel's descriptor is readable
(a socket, or `wake` from a sync thread), when someone asks for it (`soon`), or when a timer is due.

**Timers.** `Engine.tick` looks at every window, so it does not run in every turn: after a turn that
a socket or a caller started, it is due within TICK_NS; after a tick, at the time that the tick
itself named. A busy daemon so ticks every few milliseconds, and an idle one sleeps until there is
something to do.

An exception that comes out of a turn is a fault of the program, in a place where acknowledged data
is at stake: it goes to `on_fault`, which stops the daemon. A handler that reports one itself stops
the turn, too, before anything more is written or sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock import limits
from penstock.clock import NEVER_NS, Clock
from penstock.kernel import Conn, Engine, Event

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


LOAD_ROUNDS_MAX = 8  # flushes in one turn: a deep backlog must not starve the sockets

_NEED = Event.NEED


class TurnLinks(Protocol):
    again: dict[Any, None]  # links that want to be served though the engine names none

    def serve(self, conns: list[Conn]) -> None: ...


@dataclass(eq=False)
class TurnOrder:
    _engine: Engine
    _broker: Broker
    _links: TurnLinks
    _clock: Clock
    _done: deque[Any]  # of the sync pool: looked at before `synced` is called
    _handle: Callable[[tuple[Any, ...]], None]

    def __post_init__(self) -> None:
        self._mono_ns = self._clock.mono_ns
        self._wall_ns = self._clock.wall_ns
        self.after: Callable[[], None] | None = None  # each turn: a cluster's part of it
        self.trace_due_ns = NEVER_NS  # when the events that were noted are stored
        self.stopped = False

    def run(self, mono_ns: int, alone: bool = False) -> bool:
        """One turn. True: there is more to do at once, in another. `alone`: nothing else waits for
        the loop."""
        engine, broker, handle = self._engine, self._broker, self._handle
        for event in engine.poll(mono_ns):
            handle(event)
        if self._done and not self.stopped:
            broker.synced()
        if self.stopped:  # by a fault in one of these: nothing is stored or acknowledged any more
            return False
        tails = engine.dirty_tails()
        began_ns, wall_ns = self._mono_ns(), self._wall_ns()
        if tails:
            broker.write(tails, wall_ns)
            if self._done:  # a sync that was run at once
                broker.synced()
                if self.stopped:
                    return False
        if mono_ns >= broker.gathering.due_ns:
            broker.write_gathered(mono_ns, wall_ns)
        if self.trace_due_ns != NEVER_NS and (engine.trace_full or mono_ns >= self.trace_due_ns):
            self.trace_due_ns = NEVER_NS
            broker.write_trace()
        # The time anew: a message's timeout counts from when it is sent, and a turn can be long.
        now_ns = self._mono_ns()
        events = engine.flush(now_ns, wall_ns + now_ns - began_ns)
        stayed = False
        due = mono_ns >= broker.records.due_ns
        if engine.quiet and not (events or self._links.again or due):
            # All there was is a publish: what follows would ask for each.
            if not (alone and len(tails) == 1 and engine.staying and self.after is None):
                return self._end(False)
            events = broker.stay(tails[0])
            if engine.quiet and not events:
                return engine.has_work
            stayed = True
        unsettled = self._settle(events) if events else False
        windows = engine.dirty_windows()
        if windows or due:
            broker.journal(windows)
        conns = engine.dirty_detached()
        if conns or self._links.again:
            self._links.serve(conns)
        if self.trace_due_ns == NEVER_NS and engine.trace_pending:
            self.trace_due_ns = mono_ns + limits.TRACE_GATHER_NS
        return self._end(unsettled or engine.busy or (stayed and engine.has_work))

    def _end(self, more: bool) -> bool:
        if self.after is None:
            return more
        self.after()
        return more or bool(self._done)

    def _settle(self, events: list[tuple[Any, ...]]) -> bool:
        """Handle the requests of a flush, and flush again, a bounded number of times. True: the
        kernel may need more."""
        for _ in range(LOAD_ROUNDS_MAX):
            self._answer(events)
            events = self._engine.flush(self._mono_ns(), self._wall_ns())
            if not events:
                return False
        self._answer(events)
        return True

    def _answer(self, events: list[tuple[Any, ...]]) -> None:
        load, handle = self._broker.load, self._handle
        for event in events:
            if event[0] == _NEED:
                load(event[1], event[2], event[3])
            else:
                handle(event)

    def tick(self) -> tuple[bool, int]:
        """Look at all timers, with a turn before and after. Whether there is more to do at once,
        and when the timers are to be looked at again."""
        # What has arrived is heard first: after a stall (a slow disk, a sleeping machine) a FIN
        # that came in time must not find its message timed out.
        more = self.run(self._mono_ns())
        if self.stopped:
            return False, NEVER_NS
        engine, mono_ns = self._engine, self._mono_ns()
        wait_ns = engine.tick(mono_ns, self._wall_ns())
        if engine.has_work:
            more = self.run(mono_ns) or more
            # Nothing more can fire at this same instant; this counts in what the turn has sent.
            wait_ns = engine.tick(mono_ns, self._wall_ns())
        return more, self.due_ns(mono_ns + wait_ns if wait_ns else NEVER_NS)

    @property
    def gathers(self) -> bool:
        """Appends wait for more publishers, within APPEND_GATHER_NS."""
        return self._broker.gathering.due_ns != NEVER_NS

    def due_ns(self, latest_ns: int) -> int:
        """The time of the next turn, `latest_ns` at most."""
        due_ns = min(self.trace_due_ns, self._broker.records.due_ns, latest_ns)
        deadline_ns = self._engine.deadline_ns
        return deadline_ns if deadline_ns and deadline_ns < due_ns else due_ns


TIMER_NS_MIN = limits.MS  # a timer shorter than this would only spin


class Turn:
    """`soon` may be passed on before there is an `order`, whose parts need it."""

    order: TurnOrder  # set before the first turn

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        clock: Clock,
        on_fault: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._mono_ns = clock.mono_ns
        self._on_fault = on_fault
        self._asked: asyncio.Handle | None = None  # of the turn that `soon` has asked for
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = NEVER_NS
        self._gathers = False  # a turn without a tick is due

    def soon(self) -> None:
        """Run a turn at the next chance: there is work from outside of it."""
        if self._asked is None and not self.order.stopped:
            self._asked = self._loop.call_soon(self._on_asked)

    def _on_asked(self) -> None:
        self._asked = None
        self._on_ready()

    def start(self) -> None:
        self._loop.add_reader(self._descriptor, self._on_ready)
        self.soon()

    def stop(self) -> None:
        if self.order.stopped:
            return
        self.order.stopped = True
        self._loop.remove_reader(self._descriptor)
        if self._asked is not None:
            self._asked.cancel()
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
            more = order.run(mono_ns, self._asked is None)
        except Exception as error:
            self._on_fault(error)
            return
        if more:
            self.soon()
        due_ns = order.due_ns(mono_ns + limits.TICK_NS)
        if due_ns < self._timer_ns:
            self._arm(due_ns)
        if order.gathers and not self._gathers:
            self._gathers = True
            self._loop.call_later(limits.APPEND_GATHER_NS / limits.SECOND, self._on_gathered)

    def _on_gathered(self) -> None:
        self._gathers = False
        if not self.order.stopped:
            self._on_ready()

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
