"""RocketMQ-style ids of this process (`ids/unique.py`): its address, pid and clock.

    ids = unique_ids()
    await producer.pub("orders", json.dumps({"key": ids.next(), ...}).encode())

On topics with headers a producer puts one into each message when it is asked to
(`ProducerOptions.unique_ids`). Elsewhere a key of the application's own travels in the body, in the
application's format, and nothing here puts it there.

And 64-bit ids as NSQ makes them, by this host's clock (`ids/factory.py`):

    with id_pool(worker_id=7) as ids:
        row_id = ids.take()
"""

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import tzinfo
from functools import lru_cache
from ipaddress import ip_address

from penstock import limits
from penstock.clock import SystemClock
from penstock.ids.factory import GuidFactory, IdPool
from penstock.ids.unique import Address, UniqueIds, choose_ip

# Documentation addresses: connecting a datagram socket sends nothing, but picks our own address.
_FAR: tuple[tuple[socket.AddressFamily, str], ...] = (
    (socket.AF_INET, "192.0.2.1"),
    (socket.AF_INET6, "2001:db8::1"),
)


def own_addresses() -> Iterator[Address]:
    """The addresses from which this host would send to the world. No name is looked up."""
    for family, far in _FAR:
        try:
            with closing(socket.socket(family, socket.SOCK_DGRAM)) as sock:
                sock.connect((far, 9))
                yield ip_address(sock.getsockname()[0].partition("%")[0])
        except OSError:
            continue  # no route there


def new_unique_ids(zone: tzinfo | None = None) -> UniqueIds:
    """A maker of its own, distinguished from others in this process by a random hash."""
    clock = SystemClock()
    ip = choose_ip(own_addresses(), clock.wall_ns() // limits.MS)
    return UniqueIds(ip, os.getpid(), secrets.randbits(32), clock, zone)


@lru_cache(maxsize=1)
def _of_process(pid: int) -> UniqueIds:
    return new_unique_ids()


def unique_ids() -> UniqueIds:
    """The maker of this process, in the host's time zone; a forked child gets its own."""
    return _of_process(os.getpid())


def guid_factory(worker_id: int) -> GuidFactory:
    """Raises ConfigError unless `worker_id` is from 0 to 1023."""
    return GuidFactory(worker_id, SystemClock())


def id_pool(worker_id: int, count_max: int = limits.ID_POOL_COUNT) -> IdPool:
    """A pool of at most `count_max` ids, not started. Raises ConfigError."""
    return IdPool(guid_factory(worker_id), SystemClock(), count_max)
