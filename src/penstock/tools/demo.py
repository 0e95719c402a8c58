"""`penstock demo`: one nsqd, a producer, two channels, nsqadmin, an archive, and live rates.

This is what `make run` starts. nsqd runs as a process of its own on the usual ports, so that
everything the demo suggests to try (curl, kill -9, the log tool) is done to the real thing. Every
command that it prints works when it is pasted as it is.
"""

import asyncio
import contextlib
import json
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from penstock.client import Consumer, Producer
from penstock.errors import ClientError, ConfigError, PenstockError
from penstock.net.listener import ListenAddress, parse_address
from penstock.tools.app import group, opt, switch, verb
from penstock.tools.nodes import Node, NodeFailed
from penstock.tools.output import DONE, FAILED, WrongUse
from penstock.tools.up_fleet import Program, daemon, lacks_web, taken
from penstock.tools.utility import pause

_END_SECONDS = 1.0  # how long a daemon that hung up may take to end

TOPIC = "demo"
TABLE = "messages"
CONSUMERS = {"archive": 1, "metrics": 2}  # channel: number of consumers
BATCHES_PER_SECOND = 50
IN_FLIGHT_MAX = 500
LATENCIES_MAX = 100_000  # per second of display; more say nothing new
STILL_STARTING_S = 5.0  # between two words about it: a busy machine needs half a minute
_ENDINGS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # as Ctrl-C; SIGHUP: the terminal closed
_SPARK = ("pyspark", "pyarrow", "deltalake")
_QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_REPORT_BYTES = 4096  # of the archive's output: its last reports

Listener = Annotated[str, opt("HOST:PORT")]
Where = Literal["auto", "off"]

app = group("")


@verb(app, "penstock demo", "penstock demo --data-path /tmp/demo --archive off")
def demo(
    data_path: Annotated[str, opt("DIR", "where messages are")] = "./data",
    seconds: Annotated[float, opt("SECONDS", "stop after this long; 0: Ctrl-C")] = 0,
    rate: Annotated[int, opt("N", "messages a second", min=1)] = 2000,
    size: Annotated[int, opt("BYTES", "of a message")] = 200,
    archive: Annotated[
        Where, opt("", "all messages into a Delta table, where Spark is installed")
    ] = "auto",
    spark: Annotated[
        bool, switch("--spark", "insist on the archive: without it, do not start")
    ] = False,
    admin: Annotated[Where, opt("", "the web UI, where it is installed")] = "auto",
    tcp_address: Listener = "127.0.0.1:4150",
    http_address: Listener = "127.0.0.1:4151",
    admin_address: Listener = "127.0.0.1:4171",
) -> int:
    """Start nsqd with a producer and two channels, and show their rates."""
    lacks_spark = missing_spark() if spark or archive == "auto" else "off"
    if spark and lacks_spark:
        raise PenstockError(f"--spark: {lacks_spark}")
    lacks_admin = lacks_web() if admin == "auto" else "off"
    tcp, http, web = map(_address, (tcp_address, http_address, admin_address))
    place = DemoSetup(Path(data_path), tcp, http, web, lacks_admin, lacks_spark)
    if said := place.taken():
        raise PenstockError(said)
    place.path.mkdir(parents=True, exist_ok=True)
    for number in _ENDINGS:  # also before the loop takes them: nothing is left running
        signal.signal(number, signal.default_int_handler)
    nsqd, others = place.nsqd(), place.others()
    try:
        for program in (nsqd, *others.values()):
            program.start()
        if not wait_until_it_listens(nsqd, place.tcp):
            raise PenstockError(nsqd.last_words())
        print(place.intro(nsqd), flush=True)
        return asyncio.run(_run(place, nsqd, others, rate, size, seconds))
    except KeyboardInterrupt:
        return DONE
    finally:
        for number in _ENDINGS:
            signal.signal(number, signal.SIG_IGN)  # it ends already
        for program in (nsqd, *others.values()):
            program.end()
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(place.farewell(), end="", flush=True)


def _address(text: str) -> ListenAddress:
    """Not what curl or a browser could not be given: a unix socket, any port."""
    try:
        found = parse_address(text)
    except ConfigError:
        found = ListenAddress("", 0, text)
    if found.path or not found.port:
        raise WrongUse(f"{text!r} is not host:port with a port of 1 to 65535")
    return found


def missing_spark() -> str:
    """What the archive lacks here, "" when nothing."""
    if any(find_spec(name) is None for name in _SPARK):
        return "Spark is not installed; `make run ARGS=--spark` installs it first"
    from penstock.spark.session import require_java

    try:
        require_java()
    except ConfigError as error:
        return str(error)
    return ""


def wait_until_it_listens(nsqd: Program, tcp: ListenAddress) -> bool:
    """As long as it lives. False: it has ended."""
    begun_s, told = time.monotonic(), 0
    while nsqd.state == "running":
        with contextlib.suppress(OSError), socket.create_connection((tcp.host, tcp.port), 1):
            return True
        time.sleep(0.05)
        if time.monotonic() - begun_s > STILL_STARTING_S * (told + 1):
            told += 1
            print(f"nsqd is starting, since {STILL_STARTING_S * told:.0f} s", flush=True)
    return False


# --- where it runs, and what it says of that ---


@dataclass
class DemoSetup:
    path: Path
    tcp: ListenAddress
    http: ListenAddress
    admin: ListenAddress
    lacks_admin: str  # "off": nobody wants it
    lacks_spark: str

    def nsqd(self) -> Program:
        return daemon("nsqd", "penstock.nsqd.main", self.path, f"--data-path={self.path}",
                      f"--tcp-address={self.tcp}", f"--http-address={self.http}",
                      "--log-level=warn")  # fmt: skip

    def others(self) -> dict[str, Program]:
        """Beside nsqd: the web UI, and the archive as anybody starts it."""
        found = {}
        if not self.lacks_admin:
            found["admin"] = daemon(
                "nsqadmin", "penstock.nsqadmin.main", self.path, f"--http-address={self.admin}",
                f"--nsqd-http-address={self.http}", f"--data-path={self.path / 'nsqadmin'}",
                f"--lake={self.path / 'lake'}", "--log-level=warn",
            )  # fmt: skip
        if not self.lacks_spark:
            found["archive"] = daemon(
                "pipeline", "penstock.pipelines", self.path, "archive", f"--url=http://{self.http}",
                "--pattern=[A-Za-z0-9].*",  # not the topics that nsqd keeps for itself
                f"--table={self.path / 'lake' / TABLE}", "--json", "--report-every=500ms",
                "--conf=spark.driver.memory=1g",
                f"--conf=spark.driver.extraJavaOptions={_QUICK_JVM}",
            )  # fmt: skip
        return found

    @property
    def _penstock(self) -> str:
        return shlex.quote(str(Path(sys.executable).with_name("penstock")))

    def intro(self, nsqd: Program) -> str:
        pid = nsqd.process.pid if nsqd.process else 0
        consumers = ", ".join(f"{name} with {count}" for name, count in CONSUMERS.items())
        http, place = self.http, shlex.quote(str(self.path.absolute()))
        return f"""\
nsqd is up: TCP {self.tcp}, HTTP {http}, data in {self.path}, process {pid}.
Every OK below came after the message was on disk. Topic {TOPIC}; consumers: {consumers}.

Try, in another terminal:
  curl 'http://{http}/stats'                          everything it knows, as text
  curl -d 'hello' 'http://{http}/pub?topic=greetings'  publish; stored before it says OK
  curl -X POST 'http://{http}/channel/pause?topic={TOPIC}&channel=archive'   (then unpause)
  {self._penstock} log dump {place} --topic {TOPIC} --count 5 --bodies   what is stored
  kill -9 {pid}; {self._penstock} log verify {place}   every acknowledged message is there
{self._beside()}Ctrl-C stops everything."""

    def _beside(self) -> str:
        words = ""
        if self.lacks_admin not in ("", "off"):
            words += f"No web UI: {self.lacks_admin}\n"
        if not self.lacks_spark:
            query = f"SELECT topic, count(*), max(timestamp) FROM {TABLE} GROUP BY topic"
            lake = self.path / "lake"
            sql = f"sql --url http://{self.http} --lake {shlex.quote(str(lake.absolute()))}"
            words += f"All messages also go into the Delta table {lake / TABLE}, each exactly once:"
            words += f'\n  {self._penstock} {sql} "{query}"\n'
        elif self.lacks_spark != "off":
            words += f"No archive in a Delta table: {self.lacks_spark}\n"
        return words

    def farewell(self) -> str:
        if not self.path.exists():
            return ""
        place = shlex.quote(str(self.path.absolute()))
        return (
            f"Stopped: nsqd in order, every message and channel stays in {self.path}.\n"
            f"  {self._penstock} demo --data-path {place}   goes on with them\n"
            f"  rm -r {place}   deletes them\n"
        )

    def taken(self) -> str:
        """Which ports somebody has, and how to go on; "" when none."""
        wanted = {"--tcp-address": self.tcp, "--http-address": self.http}
        if self.lacks_admin != "off":
            wanted["--admin-address"] = self.admin
        found = taken(list(wanted.values()))
        flags = ", ".join(flag for flag, one in wanted.items() if one in found)
        asked = "Is another nsqd running? Stop it, or choose other ports by"
        return f"{' and '.join(map(str, found))}: taken. {asked} {flags}" if found else ""


# --- what is seen ---


async def _run(
    place: DemoSetup,
    nsqd: Program,
    others: dict[str, Program],
    rate: int,
    size: int,
    seconds: float,
) -> int:
    published, tcp = Meter("producer"), str(place.tcp)
    meters = {name: Meter(name) for name in CONSUMERS}
    tasks = [asyncio.create_task(produce(tcp, TOPIC, rate, size, published))]
    tasks += [
        asyncio.create_task(consume(tcp, TOPIC, name, meters[name]))
        for name, count in CONSUMERS.items()
        for _ in range(count)
    ]
    stop = asyncio.Event()
    for number in (signal.SIGINT, *_ENDINGS):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def lines() -> Iterator[str]:
        yield published.line("published", "OK after")
        for name, meter in meters.items():
            yield meter.line(f"{CONSUMERS[name]} consumer{'s' * (CONSUMERS[name] > 1)}", "delay")
        if archive := others.get("archive"):
            yield archive_line(archive)

    tasks.append(asyncio.create_task(_show(lines, place, others.get("admin"), seconds, stop)))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        failures = [one.exception() for one in tasks if one.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    failure = next(filter(None, failures), None)  # clients run until they are stopped
    if isinstance(failure, (ClientError, OSError)):
        nsqd.await_end(_END_SECONDS)
        gone = "" if nsqd.state == "running" else f" (nsqd {nsqd.state})"
        print(f"the demo stops: {failure}{gone}", file=sys.stderr)
        return FAILED
    if failure is not None:
        raise failure
    return DONE


async def _show(
    lines: Callable[[], Iterator[str]], place: DemoSetup, admin: Program | None, seconds: float,
    stop: asyncio.Event,
) -> None:  # fmt: skip
    """One line per client group, drawn over each second on a terminal."""
    redraws, before = sys.stdout.isatty(), 0
    started_s = time.monotonic()
    while not stop.is_set() and (not seconds or time.monotonic() - started_s < seconds):
        if not await pause(stop, 1.0):
            return  # before the second is over: its numbers would be halves
        shown = list(lines())
        if redraws and before:
            print(f"\x1b[{before}A", end="")
        if admin is not None and (news := await asyncio.to_thread(_news_of, admin, place.admin)):
            admin = None  # it is told once
            print(f"\x1b[J{news}" if redraws else news)
        print("\n".join(f"\x1b[K{line}" if redraws else line for line in shown), flush=True)
        before = len(shown)


def _news_of(admin: Program, address: ListenAddress) -> str:
    """When it answers or has ended; else "". It may take half a second."""
    if admin.state != "running":
        return f"No web UI: nsqadmin {admin.state}."
    try:
        Node(str(address), 0.5).get("/ping")
    except NodeFailed:
        return ""
    return f"See and steer it all in a browser:  http://{address}"


def archive_line(archive: Program) -> str:
    """For the display of rates: of its last report."""
    with archive.said.open("rb") as said:
        said.seek(max(0, said.seek(0, 2) - _REPORT_BYTES))
        text = said.read().decode("utf-8", "replace")
    if archive.state != "running":
        last = (text.strip().splitlines() or ["without a word"])[-1]
        return f"{'table':<9} stopped: {last}"
    event, rows, rate, lag_s = "Spark is starting", None, 0.0, None
    for line in text.splitlines():
        with contextlib.suppress(ValueError):  # what Java says, or half of a line
            report = json.loads(line)
            if isinstance(report, dict):
                event, rows = report.get("event", event), report.get("rows", rows)
                rate = report.get("rows_per_second", rate)
                lag_s = report["lag_seconds"] if "rows" in report else lag_s
    if rows is None:
        return f"{'table':<9} {event}"
    behind = event if lag_s is None else f"lag {lag_s:.1f} s"
    return f"{'table':<9} {'archived':<12} {rate:>7,.0f}/s  total {rows:>11,}  {behind}"


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

    def line(self, what: str, delay: str) -> str:
        """Of what came since the last call."""
        count, delays = self.recent, sorted(self.delays_ms) or [0.0]
        self.recent, self.delays_ms = 0, []
        return (
            f"{self.name:<9} {what:<12} {count:>7,}/s  total {self.total:>11,}  {delay} p50 "
            f"{delays[len(delays) // 2]:7.2f} ms  p99 {delays[len(delays) * 99 // 100]:7.2f} ms"
        )


async def produce(address: str, topic: str, rate: int, body_bytes: int, meter: Meter) -> None:
    """Publish `rate` messages a second in small batches; each batch waits for its OK."""
    batch_count = max(1, rate // BATCHES_PER_SECOND)
    loop = asyncio.get_running_loop()
    next_s, number = loop.time(), 0

    def body() -> bytes:
        nonlocal number
        number += 1
        head = json.dumps({"number": number, "made_at": time.time()})[:-1]
        return f'{head}, "pad": "'.encode().ljust(body_bytes - 2, b".") + b'"}'

    async with Producer(address, client_id="producer") as producer:
        while True:
            bodies = [body() for _ in range(batch_count)]
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
