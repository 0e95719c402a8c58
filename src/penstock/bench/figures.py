"""`penstock figures`: what is around the engine, measured: HTTP, stats, idle connections, the
client library, a reader beside publishers, and nsqadmin.

Each figure has a target, and the daemon a core of its own where there are two. The engine's own
figures are `penstock bench`'s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from penstock.bench import admin_figures, machine, reader_cost, tracing
from penstock.bench.daemon import Daemon, penstock
from penstock.bench.dialect import HOST, DaemonFailed
from penstock.bench.web_load import Load, exchange, request
from penstock.client import Consumer, Message, Producer
from penstock.command.run import loop_factory, raise_descriptor_limit

BODY_BYTES = 200
ROUNDS = 5
HTTP_CONNECTIONS = 50
MPUB_CONNECTIONS = 4
MPUB_MESSAGES = 1000
STATS_TOPICS, STATS_CHANNELS, STATS_CLIENTS = 1000, 3, 2
IDLE_CONNECTIONS = 10_000
WINDOW = 500
SUBSCRIBE_SECONDS_MAX = 60
TRACE_SCENARIOS = ("pub500", "mpub", "consume")


class Figure(NamedTuple):
    name: str
    value: float
    unit: str
    target: str
    cpu_us: float = 0.0  # of the daemon, for each message or request


class Sizes(NamedTuple):
    """How much of each to do."""

    requests: int
    batches: int
    client_messages: int
    topics: int
    idle: int
    beside: reader_cost.Windows
    tracing: tracing.Rounds
    admin: admin_figures.Plan


FULL = Sizes(
    100_000, 2_000, 300_000, STATS_TOPICS, IDLE_CONNECTIONS, reader_cost.FULL, tracing.FULL,
    admin_figures.FULL,
)  # fmt: skip
QUICK = Sizes(2_000, 50, 5_000, 20, 200, reader_cost.QUICK, tracing.QUICK, admin_figures.QUICK)


@contextmanager
def daemon(durability: str = "os", *flags: str, directory: Path | None = None) -> Iterator[Daemon]:
    contender = penstock(durability)
    contender = contender.__class__(
        contender.name, (*contender.command, *flags), contender.dialect, contender.keeps_all
    )
    with (
        tempfile.TemporaryDirectory("-figures", dir=directory) as path,
        Daemon(contender, Path(path)) as running,
    ):
        yield running


# --- HTTP ---


def http_rate(data: bytes, connections: int, count: int, each: int) -> tuple[float, float]:
    """(messages a second, CPU microseconds for each)."""
    with daemon() as running:
        exchange(running.ports.http, request("POST", "/topic/create?topic=t"))
        load = Load(running.ports.http, data, connections)
        try:
            before = running.cpu().ran_ns
            seconds = load.run(count)
            cpu_ns = running.cpu().ran_ns - before
        finally:
            load.close()
    return count * each / seconds, cpu_ns / 1000 / (count * each)


def pub(sizes: Sizes) -> Iterator[Figure]:
    data = request("POST", "/pub?topic=t", b"x" * BODY_BYTES)
    rate, cpu_us = http_rate(data, HTTP_CONNECTIONS, sizes.requests, 1)
    yield Figure("HTTP /pub, keep-alive", rate, "/s", ">= 25,000", cpu_us)


def mpub(sizes: Sizes) -> Iterator[Figure]:
    message = struct.pack(">I", BODY_BYTES) + b"x" * BODY_BYTES
    body = struct.pack(">I", MPUB_MESSAGES) + message * MPUB_MESSAGES
    data = request("POST", "/mpub?topic=t&binary=true", body)
    rate, cpu_us = http_rate(data, MPUB_CONNECTIONS, sizes.batches, MPUB_MESSAGES)
    yield Figure("HTTP /mpub?binary=true", rate, "messages/s", ">= 1,000,000", cpu_us)


# --- many topics, many connections ---


def consumer_socket(port: int, topic: str, channel: str) -> socket.socket:
    sock = socket.create_connection((HOST, port))
    sock.sendall(f"  V2SUB {topic} {channel}\n".encode())
    return sock


def stats(sizes: Sizes) -> Iterator[Figure]:
    """The time of a whole /stats, and how long a message is held up by one."""
    with daemon() as running:
        socks = [
            consumer_socket(running.ports.tcp, f"topic{topic:04d}", f"channel{channel}")
            for topic in range(sizes.topics)
            for channel in range(STATS_CHANNELS)
            for _ in range(STATS_CLIENTS)
        ]
        try:
            ask = request("GET", "/stats?format=json")
            _until_subscribed(running.ports.http, ask, len(socks))
            seconds = []
            for _ in range(ROUNDS):
                began = time.perf_counter()
                exchange(running.ports.http, ask)
                seconds.append(time.perf_counter() - began)
            held_up_s = asyncio.run(_held_up(running.ports.tcp, running.ports.http, ask))
        finally:
            for sock in socks:
                sock.close()
    yield Figure("/stats of 6,000 clients", 1000 * sorted(seconds)[ROUNDS // 2], "ms", "<= 100")
    yield Figure("longest delivery meanwhile", 1000 * held_up_s, "ms", "<= 20")


def _until_subscribed(port: int, ask: bytes, count: int) -> None:
    deadline = time.monotonic() + SUBSCRIBE_SECONDS_MAX
    while time.monotonic() < deadline:
        shown = json.loads(exchange(port, ask))
        channels = [channel for topic in shown["topics"] for channel in topic["channels"]]
        if sum(channel["client_count"] for channel in channels) == count:
            return
        time.sleep(0.1)
    raise DaemonFailed(f"{count} consumers are not subscribed after {SUBSCRIBE_SECONDS_MAX} s")


async def _held_up(tcp_port: int, http_port: int, ask: bytes) -> float:
    """The longest way of a message while /stats is asked for again and again."""
    address = f"{HOST}:{tcp_port}"
    longest = 0.0
    async with (
        Consumer("latency", "c", address) as consumer,
        Producer(address) as producer,
    ):

        async def receive() -> None:
            nonlocal longest
            async for message in consumer:
                sent = struct.unpack("d", message.body)[0]
                longest = max(longest, time.perf_counter() - sent)
                message.fin()

        receiving = asyncio.create_task(receive())
        for _ in range(20):  # the path is warm
            await producer.pub("latency", struct.pack("d", time.perf_counter()))
        longest = 0.0
        asking = asyncio.create_task(_ask(http_port, ask))
        while not asking.done():
            await producer.pub("latency", struct.pack("d", time.perf_counter()))
            await asyncio.sleep(0.001)
        await asking
        receiving.cancel()
        await asyncio.wait([receiving])
    return longest


async def _ask(http_port: int, ask: bytes) -> None:
    """Reads without looking, so that this process is not what holds messages up."""
    for _ in range(ROUNDS):
        reader, writer = await asyncio.open_connection(HOST, http_port, limit=1 << 20)
        writer.write(ask)
        head = await reader.readuntil(b"\r\n\r\n")
        left = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while left:
            left -= len(await reader.read(min(left, 1 << 16)))
        writer.close()
        await writer.wait_closed()


def idle(sizes: Sizes) -> Iterator[Figure]:
    with daemon() as running:
        socks = []
        try:
            for _ in range(sizes.idle):
                sock = socket.create_connection((HOST, running.ports.tcp))
                sock.sendall(b"  V2NOP\n")
                socks.append(sock)
            sock = consumer_socket(running.ports.tcp, "t", "c")
            socks.append(sock)
            sock.settimeout(30)
            sock.recv(100)  # the answer: all before it have been accepted
            rss_mb = running.memory().rss_kb / 1000
        finally:
            for sock in socks:
                sock.close()
    yield Figure(f"memory with {sizes.idle:,} idle connections", rss_mb, "MB", "<= 400")


# --- the client library ---


def client(sizes: Sizes) -> Iterator[Figure]:
    with daemon() as running:
        address = f"{HOST}:{running.ports.tcp}"
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            published, consumed = runner.run(_client(address, sizes.client_messages))
    yield Figure("client: pub awaited in windows of 500", published, "/s", ">= 100,000")
    yield Figure("client: a handler that does nothing", consumed, "/s", ">= 100,000")


async def _client(address: str, count: int) -> tuple[float, float]:
    body = b"x" * BODY_BYTES
    async with Producer(address) as producer:
        began = time.perf_counter()
        for _ in range(count // WINDOW):
            await asyncio.gather(*[producer.pub("t", body) for _ in range(WINDOW)])
        published = count / (time.perf_counter() - began)
    async with Consumer("t", "c", address, max_in_flight=2500) as consumer:
        seen = 0

        async def handle(message: Message) -> None:
            nonlocal seen
            seen += 1
            if seen == count:
                consumer.stop()

        began = time.perf_counter()
        await consumer.run(handle)
        consumed = seen / (time.perf_counter() - began)
    return published, consumed


# --- a reader of the log beside publishers ---


def reader(sizes: Sizes) -> Iterator[Figure]:
    """How many times as long, and how much less, beside a reader that fetches in a loop."""
    windows = sizes.beside
    for pinned in (True, False):
        where = "pinned" if pinned else "free"
        with daemon() as running, running.placed(pinned):
            reader_cost.prepare(running, windows)
            found = reader_cost.cost(running, windows, reader_cost.publish_ms)
            name = f"/pub beside a reader, {where}: {found.alone:.3f} to {found.beside:.3f} ms"
            yield _cost(name, found, "<= 1.1")
            found = reader_cost.cost(running, windows, reader_cost.publish_rate)
            name = f"mpub beside a reader, {where}: {found.alone:,.0f} to {found.beside:,.0f}/s"
            yield _cost(name, found, ">= 0.9")


def _cost(name: str, found: reader_cost.Cost, target: str) -> Figure:
    name = f"{name}, read {found.read_mb:,.0f} MB/s, half of the pairs {found.spread}"
    return Figure(name, found.ratios[1], "x", target)


# --- what tracing costs ---


def trace(sizes: Sizes) -> Iterator[Figure]:
    """Throughput a CPU second beside that of a topic that was never traced, in one daemon."""
    targets = {tracing.TRACED: ">= 0.75", tracing.SWITCHED_OFF: ">= 0.98"}
    with daemon() as running:
        bench = tracing.Bench(running, sizes.tracing, BODY_BYTES)
        for name in TRACE_SCENARIOS:
            for cost in bench.costs(name):
                spread = f"{cost.least:.2f} to {cost.most:.2f}"
                about = f"{name}, {cost.state}, of the throughput without (rounds: {spread})"
                yield Figure(about, cost.ratio, "x", targets[cost.state], cost.cpu_ns / 1000)


def admin(sizes: Sizes) -> Iterator[Figure]:
    for found in admin_figures.measure(sizes.admin):
        yield Figure(*found)


FIGURES: dict[str, Callable[[Sizes], Iterator[Figure]]] = {
    "pub": pub,
    "mpub": mpub,
    "stats": stats,
    "idle": idle,
    "client": client,
    "reader": reader,
    "admin": admin,
    "trace": trace,
}


# --- the command ---


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock figures",
        description="Measure HTTP, stats, connections and the client.",
        epilog="examples:\n  penstock figures --quick\n  penstock figures trace --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}")
    parser.add_argument("--quick", action="store_true", help="a short look")
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser


def figures_main(argv: Sequence[str]) -> int:
    arguments = parser().parse_args(argv)
    unknown = [name for name in arguments.name if name not in FIGURES]
    if unknown:
        print(f"penstock figures: {unknown[0]!r} is none of {', '.join(FIGURES)}", file=sys.stderr)
        return 2
    raise_descriptor_limit()
    sizes = QUICK if arguments.quick else FULL
    found: list[Figure] = []
    try:
        with machine.pinned(machine.cores()[1]):
            for name in arguments.name or FIGURES:
                for figure in FIGURES[name](sizes):
                    found.append(figure)
                    if not arguments.json:
                        print(line(figure), flush=True)
    except (DaemonFailed, OSError) as error:
        print(f"penstock figures: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps([figure._asdict() for figure in found], indent=2))
    return 0


def line(figure: Figure) -> str:
    digits = 2 if figure.value < 10 else 1
    value = f"{figure.value:,.0f}" if figure.value >= 1000 else f"{figure.value:.{digits}f}"
    cpu = f", {figure.cpu_us:.2f} CPU us each" if figure.cpu_us else ""
    return f"{figure.name}: {value} {figure.unit} (target {figure.target}{cpu})"
