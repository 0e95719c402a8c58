"""NSQ's guid factory, for programs that make 64-bit ids of their own: one worker's ids, each above
the one before.

    id = tick << 22 | worker << 12 | sequence        (`guid.py` says what a tick is)

| part | bits | what it bounds |
|---|---|---|
| sign | 1 | 0, so an id is positive in any language |
| tick | 41 | 73 years from 2012: until 2085 |
| worker | 10 | 1,024 makers that need not talk to each other |
| sequence | 12 | 4,096 ids in a tick of 1.05 ms: 3.9 million a second for each worker |

The parts share 63 bits, so each bit for one is taken from another. Two bits more of worker (4,096
of them) leave 1,024 ids in a tick, or 18 years of ticks. What they do not do is fit beside the
others: NSQ took a worker id of 12 bits once, whose upper two then lay over the lowest bits of the
tick. Worker 1024 + 7 in an even tick made the ids of worker 7 in the next one. So the bound is
checked here, and a test shows the collision that it prevents.

nsqd's own ids come from `guid.IdRange`, which never waits. This factory does as NSQ's does: where
it cannot make an id that is new it says so, and the caller tries again a moment later. `IdPool`
does that for you: a thread makes ids ahead of time, and stops while nobody takes any. It is NSQ's
`idPump` with its channel. The pool holds a bounded number. Whoever takes from an empty
one waits, so a program gets no more ids than can be made (4,096 in 1.05 ms), and the time that a
clock steps back is waited for here, not in each caller. Every id was new when it was made; it may
have been in stock since then, so its time is not that of its use.
"""

import logging
import threading
from collections import deque
from typing import Self

from penstock import limits
from penstock.clock import Clock
from penstock.errors import (
    ConfigError,
    IdBackwards,
    IdNotMade,
    IdPoolClosed,
    IdPoolEmpty,
    SequenceExpired,
    TimeBackwards,
)
from penstock.ids.guid import SEQUENCES_PER_TICK, TICK_EPOCH, TICK_MAX, TICK_NS_BITS, make


class GuidFactory:
    """May be used from any thread. No two factories at a time may
    have the same worker id."""

    def __init__(self, worker_id: int, clock: Clock) -> None:
        """Raises ConfigError."""
        if not 0 <= worker_id <= limits.NODE_ID_MAX:
            # A wider one would run into the time, and two workers into each other.
            rule = f"must be between 0 and {limits.NODE_ID_MAX}: it has ten bits of an id"
            raise ConfigError("worker_id", worker_id, rule)
        self.worker_id = worker_id
        self.last_id = 0
        self._wall_ns = clock.wall_ns
        self._lock = threading.Lock()
        self._last_tick = 0
        self._sequence = 0

    def new_id(self) -> int:
        """Raises TimeBackwards, SequenceExpired or IdBackwards; a later call may succeed.

        As in NSQ, the sequence goes on from 0 once it has expired. What would be made in the rest
        of that tick was made before, which is what IdBackwards then says."""
        with self._lock:
            tick = (self._wall_ns() >> TICK_NS_BITS) - TICK_EPOCH
            # a clock before 2012 or after 2085, or one that was set back
            if not 0 < tick <= TICK_MAX or tick < self._last_tick:
                raise TimeBackwards(tick, self._last_tick)
            if tick == self._last_tick:
                self._sequence = (self._sequence + 1) % SEQUENCES_PER_TICK
                if self._sequence == 0:
                    raise SequenceExpired(tick, SEQUENCES_PER_TICK)
            else:
                self._sequence = 0
            self._last_tick = tick
            id = make(tick, self.worker_id, self._sequence)
            if id <= self.last_id:
                raise IdBackwards(id, self.last_id)
            self.last_id = id
            return id


log = logging.getLogger("penstock.ids")

_RETRY_S = 0.0011  # by then the next tick has begun


class IdPool:
    """`with IdPool(factory, clock) as pool:` starts its thread, and ends it. The clock is for the
    log: a failure is reported once a second."""

    def __init__(
        self, factory: GuidFactory, clock: Clock, count_max: int = limits.ID_POOL_COUNT
    ) -> None:
        if count_max < 1:
            raise ConfigError("count_max", count_max, "must be 1 or more")
        self._factory = factory
        self._mono_ns = clock.mono_ns
        self._count_max = count_max
        self._ids: deque[int] = deque()
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._quiet_until_ns = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        if self._thread is not None or self._closed.is_set():
            raise IdPoolClosed("an id pool is started once")
        self._thread = threading.Thread(target=self._pump, name="penstock ids", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waiting callers get IdPoolClosed."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def __len__(self) -> int:
        return len(self._ids)

    def take(self, timeout_s: float | None = None) -> int:
        """An id, above all earlier ones. Waits for one; raises IdPoolEmpty at the timeout,
        IdPoolClosed when the pool is not running."""
        with self._changed:
            if self._thread is None:
                raise IdPoolClosed("this id pool was not started")
            self._changed.wait_for(lambda: self._ids or self._closed.is_set(), timeout_s)
            if self._closed.is_set():
                raise IdPoolClosed("this id pool is closed")
            if not self._ids:
                raise IdPoolEmpty(timeout_s or 0)
            was_full = len(self._ids) == self._count_max
            id = self._ids.popleft()
            if was_full:
                self._changed.notify_all()
            return id

    def take_hex(self, timeout_s: float | None = None) -> str:
        """`take`, in the form of NSQ's message ids: 16 hex digits, which sort as the ids do."""
        return f"{self.take(timeout_s):016x}"

    def _pump(self) -> None:
        while self._has_room():
            try:
                id = self._factory.new_id()
            except IdNotMade as error:
                self._note(error)
                self._closed.wait(_RETRY_S)
                continue
            with self._changed:
                self._ids.append(id)
                self._changed.notify()
        log.debug("ids: closing")

    def _has_room(self) -> bool:
        """Waits until there is; False: the pool is closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._ids) < self._count_max or self._closed.is_set()
            )
            return not self._closed.is_set()

    def _note(self, error: IdNotMade) -> None:
        """A used-up tick only means a high rate."""
        now_ns = self._mono_ns()
        if isinstance(error, SequenceExpired) or now_ns < self._quiet_until_ns:
            return
        self._quiet_until_ns = now_ns + limits.SECOND
        log.warning("ids: %s; trying again", error)
