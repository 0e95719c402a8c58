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
(`pool.py`) does that for you.
"""

from __future__ import annotations

import threading

from penstock import limits
from penstock.clock import Clock
from penstock.errors import ConfigError, IdBackwards, SequenceExpired, TimeBackwards
from penstock.ids.guid import SEQUENCES_PER_TICK, TICK_EPOCH, TICK_MAX, TICK_NS_BITS, make


def check_worker_id(worker_id: int) -> int:
    """Raises ConfigError: a wider one would run into the time, and two workers into each other."""
    if not 0 <= worker_id <= limits.NODE_ID_MAX:
        rule = f"must be between 0 and {limits.NODE_ID_MAX}: it has ten bits of an id"
        raise ConfigError("worker_id", worker_id, rule)
    return worker_id


class GuidFactory:
    """May be used from any thread. No two factories at a time may
    have the same worker id."""

    def __init__(self, worker_id: int, clock: Clock) -> None:
        self.worker_id = check_worker_id(worker_id)
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
