"""This process as a maker of RocketMQ-style ids (`ids/unique.py`): its address, pid and clock.

    ids = unique_ids()
    await producer.pub("orders", json.dumps({"key": ids.next(), ...}).encode())

On topics with headers a producer puts one into each message when it is asked to
(`ProducerOptions.unique_ids`). Elsewhere a key of the application's own travels in the body, in the
application's format, and nothing here puts it there.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import tzinfo
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from penstock import limits
from penstock.client.interfaces import interface_addresses
from penstock.clock import SystemClock
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
