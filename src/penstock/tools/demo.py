"""`penstock demo`: one nsqd, a producer, two channels, nsqadmin, an archive, and live rates.

This is what `make run` starts. nsqd runs as a process of its own on the usual ports, so that
everything the demo suggests to try (curl, kill -9, the log tool) is done to the real thing. Every
command that it prints works when it is pasted as it is.
"""

import asyncio
import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from penstock.errors import ConfigError, PenstockError
from penstock.net.listener import ListenAddress, parse_address
from penstock.tools import programs
from penstock.tools.app import app, opt, switch, verb
from penstock.tools.nodes import Node, NodeFailed
from penstock.tools.output import DONE, FAILED, WrongUse
from penstock.tools.programs import Program, Programs, check_free, daemon, lacks_web
from penstock.tools.traffic import TOPIC, Traffic

TABLE = "messages"
CONSUMERS = {"archive": 1, "metrics": 2}  # channel: number of consumers
_SPARK = ("pyspark", "pyarrow", "deltalake")
_QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_OUTPUT_BYTES = 4096  # of the archive's output: its last lines
_READY_S_MAX = 3600.0  # an nsqd that has much to recover may take its time
_ANSWER_S_MAX = 0.5

Listener = Annotated[str, opt("HOST:PORT")]
Where = Literal["auto", "off"]


@verb(app, "demo", "demo --data-path /tmp/demo --archive off")
def demo(
    data_path: Annotated[str, opt("DIR", "where messages are")] = "./data",
    seconds: Annotated[float, opt("SECONDS", "stop after this long; 0: Ctrl-C")] = 0,
    rate: Annotated[int, opt("N", "messages a second", min=1)] = 2000,
    size: Annotated[int, opt("BYTES", "of a message")] = 200,
    archive: Annotated[
        Where, opt("", "all messages into a Delta table, where Spark is installed")
    ] = "auto",
    spark: Annotated[bool, switch("insist on the archive: without it, do not start")] = False,
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
    addresses = [_address(one) for one in (tcp_address, http_address, admin_address)]
    daemons = Demo(Path(data_path), addresses, lacks_admin, lacks_spark)
    check_free(
        addresses[:2] if lacks_admin else addresses,
        "--tcp-address, --http-address, --admin-address",
    )
    daemons.path.mkdir(parents=True, exist_ok=True)
    try:
        return programs.run(daemons, lambda ended: _live(daemons, ended, rate, size, seconds))
    finally:
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(daemons.farewell(), end="", flush=True)


def _address(text: str) -> ListenAddress:
    """None for addresses that curl or a browser cannot use: a unix socket, any port."""
    try:
        found = parse_address(text)
    except ConfigError:
        found = ListenAddress("", 0, text)
    if found.path or not found.port:
        raise WrongUse(f"{text!r} is not host:port with a port of 1 to 65535")
    return found


def missing_spark() -> str:
    """The packages missing for the archive, "" without any."""
    if any(find_spec(name) is None for name in _SPARK):
        return "Spark is not installed; `make run ARGS=--spark` installs it first"
    from penstock.spark.session import require_java

    try:
        require_java()
    except ConfigError as error:
        return str(error)
    return ""


async def _live(daemons: "Demo", ended: asyncio.Event, rate: int, size: int, seconds: float) -> int:
    if not await daemons.until_ready(ended, daemons.answers, _READY_S_MAX):
        return DONE
    print(daemons.intro(), flush=True)
    traffic = Traffic([str(daemons.tcp)], rate, CONSUMERS, size)
    with programs.screen() as put:

        async def draw() -> bool:
            put(await asyncio.to_thread(lambda: list(_lines(traffic, daemons))))
            return daemons.nsqd.state == "running"

        await programs.show(ended, seconds, draw)
    await traffic.end()
    if daemons.nsqd.state != "running":
        print(f"the demo stops: nsqd {daemons.nsqd.state}", file=sys.stderr)
        return FAILED
    return DONE


# --- addresses and hints ---


class Demo(Programs):
    """nsqd, and beside it the web UI, and the archive as anybody starts it."""

    def __init__(
        self, path: Path, addresses: Sequence[ListenAddress], lacks_admin: str, lacks_spark: str
    ) -> None:
        """`addresses`: TCP, HTTP, the web UI's. `lacks_…` is "off" where it is not wanted."""
        tcp, http, admin = addresses
        self.path, self.tcp, self._http, self._admin = path, tcp, http, admin
        self._lacks_admin, self._lacks_spark = lacks_admin, lacks_spark
        self.nsqd = daemon(
            "nsqd", "penstock.nsqd.main", path, f"--data-path={path}", f"--tcp-address={tcp}",
            f"--http-address={http}", "--log-level=warn",
        )  # fmt: skip
        self._web = None if lacks_admin else daemon(
            "nsqadmin", "penstock.nsqadmin.main", path, f"--http-address={admin}",
            f"--nsqd-http-address={http}", f"--data-path={path / 'nsqadmin'}",
            f"--lake={path / 'lake'}", "--log-level=warn",
        )  # fmt: skip
        self.archive = None if lacks_spark else daemon(
            "pipeline", "penstock.pipelines", path, "archive", f"--url=http://{http}",
            "--pattern=[A-Za-z0-9].*",  # not the topics that nsqd keeps for itself
            f"--table={path / 'lake' / TABLE}", "--report-every=500ms",
            "--conf=spark.driver.memory=1g", f"--conf=spark.driver.extraJavaOptions={_QUICK_JVM}",
        )  # fmt: skip
        every = self.nsqd, self._web, self.archive
        super().__init__([one for one in every if one is not None], [self.nsqd])

    def answers(self) -> bool:
        return _pings(self._http)

    def web_line(self) -> str:
        """ "" without a web UI."""
        if self._web is None:
            return ""
        if self._web.state != "running":
            return f"{'web UI':<9} nsqadmin {self._web.state}"
        line = f"see and steer it all in a browser:  http://{self._admin}"
        return f"{'web UI':<9} {line if _pings(self._admin) else 'nsqadmin is starting'}"

    @property
    def _penstock(self) -> str:
        return shlex.quote(str(Path(sys.executable).with_name("penstock")))

    def intro(self) -> str:
        pid = self.nsqd.process.pid if self.nsqd.process else 0
        consumers = ", ".join(f"{name} with {count}" for name, count in CONSUMERS.items())
        http, data = self._http, shlex.quote(str(self.path.absolute()))
        return f"""\
nsqd is up: TCP {self.tcp}, HTTP {http}, data in {self.path}, process {pid}.
Every OK below came after the message was on disk. Topic {TOPIC}; consumers: {consumers}.
{self._beside()}
Ctrl-C stops everything. Try, in another terminal:
  1. curl -d 'hello' 'http://{http}/pub?topic=greetings'   publish; stored before it says OK
  2. {self._penstock} log dump {data} --topic {TOPIC} --count 5 --bodies   what is stored
  3. kill -9 {pid}; {self._penstock} log verify {data}   every acknowledged message is there"""

    def _beside(self) -> str:
        words = ""
        if self._lacks_admin not in ("", "off"):
            words += f"No web UI: {self._lacks_admin}\n"
        if not self._lacks_spark:
            query = f"SELECT topic, count(*), max(timestamp) FROM {TABLE} GROUP BY topic"
            lake = self.path / "lake"
            sql = f"sql --url http://{self._http} --lake {shlex.quote(str(lake.absolute()))}"
            words += f"All messages also go into the Delta table {lake / TABLE}, each exactly once:"
            words += f'\n  {self._penstock} {sql} "{query}"\n'
        elif self._lacks_spark != "off":
            words += f"No archive in a Delta table: {self._lacks_spark}\n"
        return words

    def farewell(self) -> str:
        if not self.path.exists():
            return ""
        data = shlex.quote(str(self.path.absolute()))
        return (
            f"Stopped: every message and channel stays in {self.path}.\n"
            f"  {self._penstock} demo --data-path {data}   goes on with them\n"
            f"  rm -r {data}   deletes them\n"
        )


def _pings(address: ListenAddress) -> bool:
    try:
        Node(str(address), _ANSWER_S_MAX).get("/ping")
    except NodeFailed:
        return False
    return True


# --- output ---


def _lines(traffic: Traffic, daemons: Demo) -> Iterator[str]:
    if line := daemons.web_line():
        yield line
    yield traffic.published.line("published", "OK after")
    for name, meter in traffic.consumed.items():
        yield meter.line(f"{CONSUMERS[name]} consumer{'s' * (CONSUMERS[name] > 1)}", "delay")
    if daemons.archive is not None:
        yield archive_line(daemons.archive)


def archive_line(archive: Program) -> str:
    """The last line of its output."""
    with archive.output.open("rb") as output:
        output.seek(max(0, output.seek(0, 2) - _OUTPUT_BYTES))
        lines = output.read().decode("utf-8", "replace").splitlines()
    own = [line for line in lines if line.startswith(("archive: ", "penstock pipeline"))]
    last = own[-1].removeprefix("archive: ") if own else "Spark is starting"
    return f"{'table':<9} {last if archive.state == 'running' else f'stopped: {last}'}"
