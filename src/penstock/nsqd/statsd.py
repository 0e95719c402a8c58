"""Figures for a statsd daemon, over UDP, in NSQ's names.

After each interval every topic and channel is looked at, in slices, and the lines go out in packets
spread over the next interval less a second, so that the receiver is not flooded. Counters are told
as what came on top since the last push, gauges as they are. Nobody answers, and nobody is waited
for: a host that is not there costs a log line when that changes, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.broker import stats as broker_stats
from penstock.broker.broker import Broker
from penstock.errors import ConfigError
from penstock.net.listener import parse_address
from penstock.nsqd.stats import memory_row
from penstock.wire.names import is_ephemeral

if TYPE_CHECKING:
    from penstock.nsqd.options import Options

log = logging.getLogger("penstock.nsqd")

Row = dict[str, Any]
_TOPIC = (("message_count", "c"), ("message_bytes", "c"), ("depth", "g"), ("backend_depth", "g"))
_CHANNEL = (
    *(("message_count", "c"), ("depth", "g"), ("backend_depth", "g"), ("in_flight_count", "g")),
    *(("deferred_count", "g"), ("requeue_count", "c"), ("timeout_count", "c")),
    ("client_count", "g"),
)
_NAMES = {"client_count": "clients"}  # where it is not that of /stats


def expand_prefix(prefix: str, broadcast_address: str, http_port: int) -> str:
    """`%s` stands for this daemon; the prefix ends with a dot."""
    host = f"{broadcast_address}:{http_port}".replace(".", "_").replace(":", "_")
    expanded = prefix.replace("%s", host)
    return expanded if not expanded or expanded.endswith(".") else expanded + "."


def check_address(address: str) -> None:
    if address and parse_address(address, "statsd-address").path:
        raise ConfigError("statsd-address", address, "host:port")


class Lines:
    """The lines of one push after another; it remembers the last counters."""

    def __init__(self, options: Options, http_port: int) -> None:
        self._options = options
        prefix, host = options.statsd_prefix, options.broadcast_address
        self._prefix = expand_prefix(prefix, host, http_port)
        self._last: dict[str, int] = {}
        self._now: dict[str, int] = {}

    def push(self, broker: Broker) -> Iterator[bytes]:
        self._now = {}
        for name in sorted(broker.topics):
            topic = broker.topics.get(name)
            if topic is None or (self._options.statsd_exclude_ephemeral and topic.ephemeral):
                continue
            row = broker_stats.topic_row(topic, [])
            yield from self._figures(f"topic.{name}", row, _TOPIC)
            for channel in broker_stats.chosen_channels(topic) or ():
                if not (self._options.statsd_exclude_ephemeral and is_ephemeral(channel.name)):
                    row = broker_stats.channel_row(channel, None)
                    prefix = f"topic.{name}.channel.{channel.name}"
                    yield from self._figures(prefix, row, _CHANNEL)
        if self._options.statsd_mem_stats:
            for key, value in memory_row().items():
                found, kind = ("gc_runs", "c") if key == "gc_total_runs" else (key, "g")
                yield self._line(f"mem.{found}", value, kind)
        self._last = self._now

    def _figures(
        self, prefix: str, row: Row, figures: tuple[tuple[str, str], ...]
    ) -> Iterator[bytes]:
        for key, kind in figures:
            yield self._line(f"{prefix}.{_NAMES.get(key, key)}", row[key], kind)
        for percentile in row["e2e_processing_latency"]["percentiles"] or ():
            name = f"{prefix}.e2e_processing_latency_{percentile['quantile'] * 100:.0f}"
            yield self._line(name, int(percentile["value"]), "g")

    def _line(self, name: str, value: int, kind: str) -> bytes:
        if kind == "c":
            self._now[name] = value
            last = self._last.get(name, 0)
            value = value - last if value >= last else value  # made anew since
        return f"{self._prefix}{name}:{value}|{kind}\n".encode()


def packets(lines: list[bytes], bytes_max: int) -> list[bytes]:
    """Lines joined, none cut; a line longer than a packet goes alone."""
    found: list[bytes] = []
    packet = b""
    for line in lines:
        if packet and len(packet) + len(line) > bytes_max:
            found.append(packet)
            packet = b""
        packet += line
    return [*found, packet] if packet else found


class Statsd:
    def __init__(self, broker: Broker, options: Options, http_port: int) -> None:
        self._broker = broker
        self._options = options
        self._address = options.statsd_address  # empty: nothing is sent
        self._lines = Lines(options, http_port)
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""

    def start(self) -> None:
        if self._address:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Pushes begin an interval apart; sending one takes a second less than that."""
        loop = asyncio.get_running_loop()
        interval_s = self._options.statsd_interval_ns / limits.SECOND
        next_s = loop.time() + interval_s
        while True:
            await asyncio.sleep(next_s - loop.time())
            next_s = max(next_s + interval_s, loop.time())
            try:
                await self._push(max(interval_s - 1, 0))
            except OSError as error:
                self._note(str(error))

    async def _push(self, spread_s: float) -> None:
        pending = packets(await self._gathered(), self._options.statsd_udp_packet_size)
        address = parse_address(self._address)
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)
        family, _, _, _, target = found[0]
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            for packet in pending:
                sock.sendto(packet, target)
                await asyncio.sleep(spread_s / len(pending))
        self._note("")

    async def _gathered(self) -> list[bytes]:
        loop = asyncio.get_running_loop()
        slice_s = limits.STATS_SLICE_NS / limits.SECOND
        lines: list[bytes] = []
        end_s = loop.time() + slice_s
        for line in self._lines.push(self._broker):
            lines.append(line)
            if loop.time() >= end_s:
                await asyncio.sleep(0)
                end_s = loop.time() + slice_s
        return lines

    def _note(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            if trouble:
                log.error("statsd %s: %s", self._address, trouble)
            else:
                log.info("statsd %s: reached again", self._address)
