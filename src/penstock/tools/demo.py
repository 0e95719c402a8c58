"""`penstock demo`: one nsqd, a producer, two channels, nsqadmin, an archive, and live rates.

This is what `make run` starts.

nsqd runs as a process of its own on the usual ports, so that everything the demo suggests to try
(curl, kill -9, the log tool) is done to the real thing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from urllib.request import urlopen

from penstock.client import Consumer, Producer
from penstock.errors import ClientError, ConfigError
from penstock.net.listener import Address, listen, parse_address
from penstock.tools import demo_archive
from penstock.tools.demo_archive import ArchiveProcess
from penstock.tools.demo_words import Words
from penstock.tools.verbs import VerbParser

TOPIC = "demo"
CONSUMERS = {"archive": 1, "metrics": 2}  # channel: number of consumers
BATCHES_PER_SECOND = 50
IN_FLIGHT_MAX = 500
LATENCIES_MAX = 100_000  # per second of display; more say nothing new
STILL_STARTING_S = 5.0  # between two words about it: a busy machine needs half a minute
STOP_SECONDS_MAX = 15.0
_WEB_PACKAGES = ("nicegui", "fastapi", "uvicorn")
_ENDINGS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # as Ctrl-C; SIGHUP: the terminal closed


def demo_main(argv: Sequence[str]) -> int:
    options = parser().parse_args(argv)
    tcp, http, admin = options.tcp_address, options.http_address, options.admin_address
    web = options.admin == "auto"
    data_path = Path(options.data_path)
    words = Words(data_path, options.called_as, argv)
    wanted = (tcp, http, admin if web else None)
    if not all(is_free(one) for one in wanted if one is not None):
        print(words.taken(wanted, is_free), file=sys.stderr)
        return 1
    lacks_spark = demo_archive.missing() if options.spark or options.archive == "auto" else "off"
    if options.spark and lacks_spark:
        print(f"--spark: {lacks_spark}", file=sys.stderr)
        return 1
    data_path.mkdir(parents=True, exist_ok=True)
    for number in _ENDINGS:  # also before the loop takes them: nothing is left running
        signal.signal(number, _interrupt)
    daemon = _start_daemon(options, data_path)
    lacks_pages = lacks_web() if web else "off"
    pages = None if lacks_pages else WebUi(admin, http, data_path)
    try:
        if not _wait_until_it_listens(daemon, tcp):
            how = shlex.join(map(str, daemon.args))  # type: ignore[arg-type]
            said = f"nsqd ended with code {daemon.returncode} before it listened on {tcp}"
            print(f"{said}; it was started by:\n  {how}", file=sys.stderr)
            return 1
        lake = demo_archive.lake_of(data_path)
        print(words.intro(TOPIC, _consumers(), tcp, http, daemon.pid), end="")
        print(words.no_web(lacks_pages), end="")
        print(words.archive(http, demo_archive.TABLE, lake, lacks_spark), end="")
        print("Ctrl-C stops everything.", flush=True)
        archive = None if lacks_spark else ArchiveProcess(http, data_path)
        return asyncio.run(_run(options, tcp, daemon, archive, pages))
    except KeyboardInterrupt:
        return 0
    finally:
        for number in _ENDINGS:
            signal.signal(number, signal.SIG_IGN)  # it ends already
        stop_process(daemon)
        if pages is not None:
            pages.stop()
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(words.farewell(), end="", flush=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock demo",
        description="Start nsqd with a producer and two channels, and show their rates.",
        examples=["penstock demo", "penstock demo --data-path /tmp/demo --archive off"],
    )
    parser.add_argument("--data-path", default="./data", help="where messages are stored (made)")
    parser.add_argument("--seconds", type=float, default=0, help="stop after this long (0: Ctrl-C)")
    parser.add_argument("--rate", type=int, default=2000, help="messages a second")
    parser.add_argument("--size", type=int, default=200, help="bytes of a message")
    parser.add_argument(
        "--archive",
        choices=("auto", "off"),
        default="auto",
        help="archive all messages in a Delta table, where Spark and Java are installed",
    )
    parser.add_argument(
        "--spark", action="store_true", help="insist on the archive: without Spark, do not start"
    )
    parser.add_argument("--called-as", default="", help=argparse.SUPPRESS)  # by the Makefile
    parser.add_argument("--tcp-address", type=_address, default="127.0.0.1:4150")
    parser.add_argument("--http-address", type=_address, default="127.0.0.1:4151")
    parser.add_argument(
        "--admin-address", type=_address, default="127.0.0.1:4171", help="of the web UI"
    )
    parser.add_argument(
        "--admin", choices=("auto", "off"), default="auto", help="the web UI, where it is installed"
    )
    return parser


def _address(text: str) -> Address:
    """The demo's hints are for curl and a browser: a unix socket, or any free port, is none."""
    try:
        found = parse_address(text)
    except ConfigError:
        found = Address("", 0, text)
    if found.path or not found.port:
        raise argparse.ArgumentTypeError(f"{text!r} is not host:port with a port of 1 to 65535")
    return found


def is_free(address: Address) -> bool:
    try:
        listen(address).close()
    except OSError:
        return False
    return True


def _start_daemon(options: argparse.Namespace, data_path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "penstock.nsqd.main",
            f"--data-path={data_path}",
            f"--tcp-address={options.tcp_address}",
            f"--http-address={options.http_address}",
            "--log-level=warn",
        ],
        start_new_session=True,  # Ctrl-C is ours to pass on, once
    )


def _wait_until_it_listens(daemon: subprocess.Popen[bytes], tcp: Address) -> bool:
    """As long as it lives. False: it has ended."""
    begun_s, told = time.monotonic(), 0
    while daemon.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((tcp.host, tcp.port), 1):
            return True
        time.sleep(0.05)
        if time.monotonic() - begun_s > STILL_STARTING_S * (told + 1):
            told += 1
            print(f"nsqd is starting, since {STILL_STARTING_S * told:.0f} s", flush=True)
    return False


def stop_process(daemon: subprocess.Popen[bytes]) -> None:
    if daemon.poll() is None:
        daemon.terminate()
    try:
        daemon.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _consumers() -> str:
    return ", ".join(f"{name} with {count}" for name, count in CONSUMERS.items())


async def _run(
    options: argparse.Namespace,
    tcp: Address,
    daemon: subprocess.Popen[bytes],
    archive: ArchiveProcess | None,
    pages: WebUi | None,
) -> int:
    producer = Meter("producer")
    meters = {name: Meter(name) for name in CONSUMERS}
    tasks = [asyncio.create_task(produce(str(tcp), TOPIC, options.rate, options.size, producer))]
    tasks += [
        asyncio.create_task(consume(str(tcp), TOPIC, name, meters[name]))
        for name, count in CONSUMERS.items()
        for _ in range(count)
    ]
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, *_ENDINGS):
        loop.add_signal_handler(number, stop.set)
    shown = asyncio.create_task(_show(producer, meters, options.seconds, stop, archive, pages))
    beside = [asyncio.create_task(archive.run())] if archive else []
    try:
        done, _ = await asyncio.wait([shown, *tasks], return_when=asyncio.FIRST_COMPLETED)
        return _verdict(done - {shown}, daemon)
    finally:
        for task in (shown, *tasks, *beside):
            task.cancel()
        await asyncio.gather(shown, *tasks, *beside, return_exceptions=True)


def _verdict(broken: set[asyncio.Task[None]], daemon: subprocess.Popen[bytes]) -> int:
    """The exit code: clients run until they are stopped, so one that ended has failed."""
    for task in broken:
        error = task.exception()
        if isinstance(error, (ClientError, OSError)):
            gone = f" (nsqd ended with code {daemon.poll()})" if daemon.poll() is not None else ""
            print(f"the demo stops: {error}{gone}", file=sys.stderr)
        elif error is not None:
            raise error
    return 1 if broken else 0


async def _show(
    producer: Meter,
    meters: dict[str, Meter],
    seconds: float,
    stop: asyncio.Event,
    archive: ArchiveProcess | None,
    pages: WebUi | None,
) -> None:
    """One line per client group, drawn over each second on a terminal."""
    redraws = sys.stdout.isatty()
    started_s = time.monotonic()
    first = True
    while not stop.is_set() and (not seconds or time.monotonic() - started_s < seconds):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 1.0)
            return  # before the second is over: its numbers would be halves
        lines = [_line(producer, "published", "OK after")]
        lines += [
            _line(meter, f"{CONSUMERS[name]} consumer{'s' * (CONSUMERS[name] > 1)}", "delay")
            for name, meter in meters.items()
        ]
        lines += [archive.line()] if archive else []
        if redraws and not first:
            print(f"\x1b[{len(lines)}A", end="")
        if pages is not None and (news := await asyncio.to_thread(pages.news)):
            print(f"\x1b[J{news}" if redraws else news)
        print("\n".join(f"\x1b[K{line}" if redraws else line for line in lines), flush=True)
        first = False


def _line(meter: Meter, what: str, delay: str) -> str:
    count, median_ms, high_ms = meter.take()
    return (
        f"{meter.name:<9} {what:<12} {count:>7,}/s  total {meter.total:>11,}  "
        f"{delay} p50 {median_ms:7.2f} ms  p99 {high_ms:7.2f} ms"
    )


# --- clients, and what they measure ---


@dataclass
class Meter:
    """Counts and delays since the last look, and in total."""

    name: str
    total: int = 0
    recent: int = 0
    delays_ms: list[float] = field(default_factory=list)

    def add(self, count: int, delay_ms: float) -> None:
        self.total += count
        self.recent += count
        if len(self.delays_ms) < LATENCIES_MAX:
            self.delays_ms.append(delay_ms)

    def take(self) -> tuple[int, float, float]:
        """(count, median delay, 99th percentile) since the last call."""
        count, delays = self.recent, sorted(self.delays_ms)
        self.recent, self.delays_ms = 0, []
        if not delays:
            return count, 0.0, 0.0
        high = delays[len(delays) * 99 // 100]
        return count, delays[len(delays) // 2], high


async def produce(address: str, topic: str, rate: int, body_bytes: int, meter: Meter) -> None:
    """Publish `rate` messages a second in small batches; each batch waits for its OK."""
    batch_count = max(1, rate // BATCHES_PER_SECOND)
    loop = asyncio.get_running_loop()
    next_s, number = loop.time(), 0
    async with Producer(address, client_id="producer") as producer:
        while True:
            bodies = []
            for _ in range(batch_count):
                number += 1
                head = json.dumps({"number": number, "made_at": time.time()})[:-1]
                bodies.append(f'{head}, "pad": "'.encode().ljust(body_bytes - 2, b".") + b'"}')
            sent_s = loop.time()
            await producer.mpub(topic, bodies)
            meter.add(batch_count, (loop.time() - sent_s) * 1000)
            next_s = max(next_s + batch_count / rate, loop.time() - 1.0)
            await asyncio.sleep(next_s - loop.time())


async def consume(address: str, topic: str, channel: str, meter: Meter) -> None:
    async with Consumer(
        topic, channel, address, client_id=f"{channel}-consumer", max_in_flight=IN_FLIGHT_MAX
    ) as consumer:
        async for message in consumer:
            message.fin()
            meter.add(1, (time.time_ns() - message.timestamp_ns) / 1e6)


# --- the web UI, in a process of its own ---


def lacks_web() -> str:
    """What nsqadmin lacks here, "" when nothing."""
    if any(importlib.util.find_spec(name) is None for name in _WEB_PACKAGES):
        return "its packages are not installed (the extra `admin`; `make run` installs them)"
    return ""


class WebUi:
    """The process."""

    def __init__(self, address: Address, nsqd: Address, data_path: Path) -> None:
        self._address = address
        self._is_told = False
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "penstock.nsqadmin.main",
                f"--http-address={address}",
                f"--nsqd-http-address={nsqd}",
                f"--data-path={data_path / 'nsqadmin'}",
                f"--lake={data_path / 'lake'}",
                "--log-level=warn",
            ],
            start_new_session=True,  # Ctrl-C is the demo's to pass on, once
        )

    def news(self) -> str:
        """Once, when it answers or has ended; else "". It may take half a second."""
        if self._is_told:
            return ""
        code = self._process.poll()
        if code is not None:
            said = f"No web UI: nsqadmin ended with code {code}."
        elif self._answers():
            said = f"See and steer it all in a browser:  http://{self._address}"
        else:
            return ""
        self._is_told = True
        return said

    def _answers(self) -> bool:
        try:
            with urlopen(f"http://{self._address}/ping", timeout=0.5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stop(self) -> None:
        stop_process(self._process)
