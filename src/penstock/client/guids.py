"""64-bit ids as NSQ makes them, for a program: the factory and the pool with this host's clock.

with id_pool(worker_id=7) as ids:
    row_id = ids.take()
"""

from __future__ import annotations

from penstock import limits
from penstock.clock import SystemClock
from penstock.ids.factory import GuidFactory
from penstock.ids.pool import IdPool


def guid_factory(worker_id: int) -> GuidFactory:
    """Raises ConfigError unless `worker_id` is from 0 to 1023."""
    return GuidFactory(worker_id, SystemClock())


def id_pool(worker_id: int, count_max: int = limits.ID_POOL_COUNT) -> IdPool:
    """A pool of at most `count_max` ids, not started. Raises ConfigError."""
    return IdPool(guid_factory(worker_id), SystemClock(), count_max)
