"""RocketMQ-style ids, made by clients: unique without asking anybody, and readable afterwards.

    ip 4 or 16 | pid 2 | hash 4 | time 4 | counter 2        bytes, big-endian, as upper-case hex

32 hex digits with an IPv4 address, 56 with IPv6. `hash` tells two instances on one host apart.
`time` is milliseconds since the first of the month, midnight, in the maker's time zone. RocketMQ
keeps it in a signed 32-bit number, which turns negative after 24.8 days; the bits are the same and
are read as unsigned, so it holds for the 31 days it needs. The month is not in the id: a reader
takes the present one, or the one before when that would lie in the future, so an id that is older
than a month reads as a wrong time.

A clock that steps back over midnight of the first gives a negative time; up to 1,000 s of that
count as midnight itself. Within a month a step back is not seen, and uniqueness rests on the
counter: 65,536 ids before it repeats.

A second kind, the offset id, is what a RocketMQ broker calls a message: address, port and position
in its log. It has 32 or 56 digits too; only the context tells the kinds apart.
"""

import struct
import threading
from collections.abc import Iterable
from datetime import datetime, tzinfo
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple

from penstock import limits
from penstock.clock import Clock
from penstock.errors import ConfigError

KEY = "UNIQ_KEY"  # the property under which RocketMQ keeps it
STEP_BACK_MS_MAX = 1_000_000  # of the clock, over a month's start: still counts as the start

_TAIL = struct.Struct(">HIIH")  # pid, hash, time, counter
_OFFSET_TAIL = struct.Struct(">IQ")  # port, offset
_HEX_DIGITS = (32, 56)
_DAY_MS = 86_400_000
_U16 = 0xFFFF
_U32 = 0xFFFFFFFF
_INTERNAL_IPV4 = ("10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
_INTERNAL = tuple(map(ip_network, (*_INTERNAL_IPV4, "::/127", "fe80::/10", "fec0::/10")))

Address = IPv4Address | IPv6Address


class UniqueParts(NamedTuple):
    ip: Address
    pid: int  # its low 16 bits
    hash: int
    span_ms: int  # since the start of the month
    counter: int

    @property
    def ip_text(self) -> str:
        """In RocketMQ's form: IPv6 in full."""
        return self.ip.exploded


class OffsetParts(NamedTuple):
    ip: Address
    port: int
    offset: int


def make(ip: Address, pid: int, hash: int, span_ms: int, counter: int) -> str:
    """The id of these parts, each cut to its width."""
    tail = _TAIL.pack(pid & _U16, hash & _U32, span_ms & _U32, counter & _U16)
    return (ip.packed + tail).hex().upper()


def decode(id: str) -> UniqueParts:
    """Raises ConfigError when `id` cannot be one."""
    data = _bytes_of(id)
    pid, hash, span_ms, counter = _TAIL.unpack(data[-_TAIL.size :])
    return UniqueParts(ip_address(data[: -_TAIL.size]), pid, hash, span_ms, counter)


def time_ms(parts: UniqueParts, now_ms: int, zone: tzinfo | None = None) -> int:
    """The time at which the id was made, in UNIX milliseconds, as seen at `now_ms` by a reader in
    the maker's time zone (None: this host's). Right for ids of less than a month."""
    start_ms = month_start_ms(now_ms, zone)
    if start_ms + parts.span_ms >= now_ms:
        start_ms = month_start_ms(start_ms - 1, zone)
    return start_ms + parts.span_ms


def decode_offset_id(id: str) -> OffsetParts:
    """Raises ConfigError when `id` cannot be one."""
    data = _bytes_of(id)
    port, offset = _OFFSET_TAIL.unpack(data[-_OFFSET_TAIL.size :])
    return OffsetParts(ip_address(data[: -_OFFSET_TAIL.size]), port, offset)


def _bytes_of(id: str) -> bytes:
    try:
        data = bytes.fromhex(id) if len(id) in _HEX_DIGITS and id.isalnum() else b""
    except ValueError:
        data = b""
    if not data:
        raise ConfigError("id", id, "must be 32 or 56 hex digits")
    return data


# --- months ---


def month_start_ms(at_ms: int, zone: tzinfo | None = None) -> int:
    """The first instant of the month that `at_ms` lies in."""
    at = datetime.fromtimestamp(at_ms // 1000, zone)
    start = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)
    return round(start.timestamp() * 1000)


# --- making them ---


class UniqueIds:
    """The ids of one process. May be used from any thread."""

    def __init__(
        self, ip: Address, pid: int, hash: int, clock: Clock, zone: tzinfo | None = None
    ) -> None:
        """`zone` None is this host's time zone."""
        self._fixed = ip, pid, hash
        self._clock = clock
        self._zone = zone
        self._lock = threading.Lock()
        self._counter = 0
        self._set_month(self._now_ms())

    def next(self) -> str:
        with self._lock:
            now_ms = self._now_ms()
            if now_ms >= self._next_start_ms:
                self._set_month(now_ms)
            span_ms = now_ms - self._start_ms
            if -STEP_BACK_MS_MAX < span_ms < 0:
                span_ms = 0
            counter = self._counter
            self._counter = counter + 1 & _U16
        return make(*self._fixed, span_ms, counter)

    def _now_ms(self) -> int:
        return self._clock.wall_ns() // limits.MS

    def _set_month(self, now_ms: int) -> None:
        self._start_ms = month_start_ms(now_ms, self._zone)
        self._next_start_ms = month_start_ms(self._start_ms + 32 * _DAY_MS, self._zone)


# --- which address stands in them ---


def choose_ip(addresses: Iterable[Address], now_ms: int) -> Address:
    """The first address that is valid outside of its own network; else a private IPv4, the loopback
    one last; else four bytes of the clock, which are no address but distinguish hosts."""
    private: IPv4Address | None = None
    for address in addresses:
        if not any(address in network for network in _INTERNAL):
            return address
        if isinstance(address, IPv4Address) and (private is None or private.is_loopback):
            private = address
    return private if private is not None else IPv4Address(now_ms & _U32)
