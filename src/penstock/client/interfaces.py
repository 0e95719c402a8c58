"""The addresses of this host's network interfaces, from the system's `getifaddrs`.

Nothing is asked over the network: a name server that is slow, or says something else about this
host's name, has no part in it. Where the C library has no such function there are no addresses
from here.
"""

from __future__ import annotations

import ctypes
import socket
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address

from penstock.ids.unique import Address

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
            address = _address(one.address) if one.address and one.flags & _IS_UP else None
            if address is not None:
                yield address
            entry = one.next
    finally:
        libc.freeifaddrs(first)


def _address(place: int) -> Address | None:
    """None: of another family, such as a hardware address."""
    head = ctypes.string_at(place, 2)
    family = head[1] if _HAS_LENGTH else int.from_bytes(head, sys.byteorder)
    if family == socket.AF_INET:
        return IPv4Address(ctypes.string_at(place, _V4_END)[_V4_AT:])
    if family == socket.AF_INET6:
        return IPv6Address(ctypes.string_at(place, _V6_END)[_V6_AT:])
    return None
