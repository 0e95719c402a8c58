"""This process as a maker of RocketMQ-style ids (`ids/unique.py`): its address, pid and clock.

    ids = unique_ids()
    await producer.pub("orders", json.dumps({"key": ids.next(), ...}).encode())

On topics with headers a producer puts one into each message when it is asked to
(`ProducerOptions.unique_ids`). Elsewhere a key of the application's own travels in the body, in the
application's format, and nothing here puts it there.

The addresses of this host's network interfaces, from the system's `getifaddrs`.

Nothing is asked over the network: a name server that is slow, or says something else about this
host's name, has no part in it. Where the C library has no such function there are no addresses
from here.

64-bit ids as NSQ makes them, for a program: the factory and the pool with this host's clock.

with id_pool(worker_id=7) as ids:
    row_id = ids.take()
"""

from __future__ import annotations

import ctypes
import logging
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import tzinfo
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from penstock import limits
from penstock.clock import SystemClock
from penstock.ids.factory import GuidFactory, IdPool
from penstock.ids.unique import Address, UniqueIds, choose_ip

log = logging.getLogger("penstock.client")

# Documentation addresses: connecting a datagram socket sends nothing, but picks our own address.
_FAR: tuple[tuple[socket.AddressFamily, str], ...] = (
    (socket.AF_INET, "192.0.2.1"),
    (socket.AF_INET6, "2001:db8::1"),
)


def own_addresses() -> Iterator[Address]:
    """The addresses of this host: first those from which it would send to the world, then those of
    every interface. No name is looked up."""
    for family, far in _FAR:
        try:
            with closing(socket.socket(family, socket.SOCK_DGRAM)) as sock:
                sock.connect((far, 9))
                yield _address(sock.getsockname()[0])
        except OSError:
            continue  # no route there
    try:
        yield from interface_addresses()
    except OSError as error:
        log.warning("the interfaces of this host cannot be listed: %s", error)


def _address(text: str) -> IPv4Address | IPv6Address:
    return ip_address(text.partition("%")[0])


def new_unique_ids(zone: tzinfo | None = None) -> UniqueIds:
    """A maker of its own, told from others in this process by a random hash."""
    clock = SystemClock()
    ip = choose_ip(own_addresses(), clock.wall_ns() // limits.MS)
    return UniqueIds(ip, os.getpid(), secrets.randbits(32), clock, zone)


@lru_cache(maxsize=1)
def _of_process(pid: int) -> UniqueIds:
    return new_unique_ids()


def unique_ids() -> UniqueIds:
    """The maker of this process, in the host's time zone; a forked child gets its own."""
    return _of_process(os.getpid())


_IS_UP = 1  # IFF_UP
_HAS_LENGTH = sys.platform != "linux"  # BSD's sockaddr begins with its length, and a family byte
_V4_AT, _V4_END = 4, 8  # in a sockaddr_in
_V6_AT, _V6_END = 8, 24  # in a sockaddr_in6


class _IfAddrs(ctypes.Structure):
    """The beginning of `struct ifaddrs`, as far as it is looked at."""


_IfAddrs._fields_ = [
    ("next", ctypes.POINTER(_IfAddrs)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def interface_addresses() -> Iterator[Address]:
    """Of the interfaces that are up, in the system's order. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "getifaddrs"):
        return
    first = ctypes.POINTER(_IfAddrs)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        raise OSError(ctypes.get_errno(), "getifaddrs failed")
    try:
        entry = first
        while entry:
            one = entry.contents
            address = (
                _interface_address(one.address) if one.address and one.flags & _IS_UP else None
            )
            if address is not None:
                yield address
            entry = one.next
    finally:
        libc.freeifaddrs(first)


def _interface_address(place: int) -> Address | None:
    """None: of another family, such as a hardware address."""
    head = ctypes.string_at(place, 2)
    family = head[1] if _HAS_LENGTH else int.from_bytes(head, sys.byteorder)
    if family == socket.AF_INET:
        return IPv4Address(ctypes.string_at(place, _V4_END)[_V4_AT:])
    if family == socket.AF_INET6:
        return IPv6Address(ctypes.string_at(place, _V6_END)[_V6_AT:])
    return None


def guid_factory(worker_id: int) -> GuidFactory:
    """Raises ConfigError unless `worker_id` is from 0 to 1023."""
    return GuidFactory(worker_id, SystemClock())


def id_pool(worker_id: int, count_max: int = limits.ID_POOL_COUNT) -> IdPool:
    """A pool of at most `count_max` ids, not started. Raises ConfigError."""
    return IdPool(guid_factory(worker_id), SystemClock(), count_max)
