"""Several daemons and etcd as one thing to measure: what a replicated publish costs all of them."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.daemon import (
    START_SECONDS_MAX,
    Contender,
    Cpu,
    Daemon,
    Memory,
    free_port,
    nats_peer,
    penstock,
)
from bench.dialect import HOST, DaemonFailed, Ports
from bench.machine import cores, pinned
from bench.nats import Nats
from bench.shape import PLAIN, Shape
from bench.v2 import V2
from penstock.tools.up import find_etcd

IN_SYNC_SECONDS_MAX = 60.0


def clustered(durability: str, nodes: int, handed_on: bool) -> Contender:
    """`handed_on`: clients publish to a node that does not lead the topic."""
    plain = penstock(durability)
    name = f"{plain.name}-{nodes}n" + ("-handed-on" if handed_on else "")
    return replace(plain, name=name, nodes=nodes, handed_on=handed_on)


def nats_clustered(durability: str, configs: Path, nodes: int) -> Contender:
    """A stream with as many replicas, and clients of its leader."""
    plain = nats_peer(durability, configs)
    return replace(plain, name=f"{plain.name}-{nodes}n", nodes=nodes)


def cluster_of(contender: Contender, data: Path) -> Several:
    return (NatsCluster if contender.dialect is Nats else Cluster)(contender, data)


class Node(Daemon):
    def __init__(self, contender: Contender, data: Path, number: int, etcd: str) -> None:
        super().__init__(contender, data)
        self._flags = [
            f"--node-id={number}",
            f"--cluster=etcd://{etcd}/bench",
            f"--replication-address={HOST}:{free_port()}",
            f"--broadcast-address={HOST}",
        ]

    def command(self) -> list[str]:
        return [*super().command(), *self._flags]

    def ask(self, method: str, path: str) -> Any:
        request = urllib.request.Request(f"http://{HOST}:{self.ports.http}{path}", method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            data = answer.read()
        return json.loads(data) if data else None


class ClusterDialect(V2):
    """Clients of the node that leads the topic; `prepare` finds it."""

    def __init__(self, nodes: Sequence[Node], handed_on: bool) -> None:
        super().__init__(nodes[0].ports)
        self._nodes = nodes
        self._handed_on = handed_on

    def prepare(self, topic: str, channels: Sequence[str], shape: Shape = PLAIN) -> None:
        count = len(self._nodes)
        self._nodes[0].ask("POST", f"/topic/create?topic={topic}&replicator={count}")
        deadline = time.monotonic() + IN_SYNC_SECONDS_MAX
        while (leader := self._leader(topic)) is None:
            if time.monotonic() > deadline:
                raise DaemonFailed(f"topic {topic} has no {count} replicas in sync")
            time.sleep(0.1)
        super().prepare(topic, channels, shape)
        chosen = (leader + 1) % count if self._handed_on else leader
        self._ports: Ports = self._nodes[chosen].ports
        self._leader_dialect = V2(self._nodes[leader].ports)

    def consumer(
        self, topic: str, channel: str, credit: int, shape: Shape = PLAIN
    ) -> tuple[socket.socket, bytes]:
        """Of the leader, as one that looks up: another node has nothing to send."""
        return self._leader_dialect.consumer(topic, channel, credit, shape)

    def _leader(self, topic: str) -> int | None:
        """Once all replicas are in sync, and the leader is the one that is to stay."""
        rows = self._nodes[0].ask("GET", "/cluster")["partitions"]
        found = next((row for row in rows if row["topic"] == topic), None)
        if found is None or len(found["in_sync"]) < len(self._nodes):
            return None
        leader: int | None = found["leader"]
        return leader if leader == found["preferred"][0] else None


class Several(Daemon):
    """Processor time and memory are those of all nodes, without a coordinator's."""

    nodes: Sequence[Daemon] = ()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def cpu(self) -> Cpu:
        each = [node.cpu() for node in self.nodes]
        return Cpu(sum(one.ran_ns for one in each), sum(one.waited_ns for one in each))

    def memory(self) -> Memory:
        each = [node.memory() for node in self.nodes]
        return Memory(sum(one.rss_kb for one in each), sum(one.anonymous_kb for one in each))

    def _start_nodes(self) -> None:
        for node in self.nodes:
            node.data.mkdir(parents=True, exist_ok=True)
            node.start()


class Cluster(Several):
    def __init__(self, contender: Contender, data: Path) -> None:
        super().__init__(contender, data)
        self._etcd_ports = free_port(), free_port()
        etcd = f"{HOST}:{self._etcd_ports[0]}"
        self.nodes: list[Node] = [
            Node(contender, data / str(number), number, etcd) for number in range(contender.nodes)
        ]
        self.dialect = ClusterDialect(self.nodes, contender.handed_on)
        self._etcd: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        began = time.monotonic()
        self._start_etcd()
        self._start_nodes()
        while any(one["linked"] + one["alive"] < 2 for one in self._known()):
            if time.monotonic() - began > START_SECONDS_MAX:
                raise DaemonFailed("the nodes do not find one another")
            time.sleep(0.1)
        return time.monotonic() - began

    def _known(self) -> list[dict[str, Any]]:
        found = [one for node in self.nodes for one in node.ask("GET", "/cluster")["nodes"]]
        lacking = len(self.nodes) ** 2 - len(found)
        return [*found, *[{"linked": False, "alive": False}] * lacking]

    def _start_etcd(self) -> None:
        client, peer = (f"http://{HOST}:{port}" for port in self._etcd_ports)
        command = [
            find_etcd()[0], "--name=bench", f"--data-dir={self.data / 'etcd'}",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=bench={peer}",
        ]  # fmt: skip
        with self._log_path.open("ab") as log, pinned(cores()[0]):
            self._etcd = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self) -> None:
        super().stop()
        self._stop_etcd()

    def kill(self) -> None:
        super().kill()
        self._stop_etcd()

    def _stop_etcd(self) -> None:
        if self._etcd is not None:
            self._etcd.kill()
            self._etcd.wait()


# --- NATS ---


class NatsNode(Daemon):
    def __init__(self, contender: Contender, data: Path, number: int) -> None:
        super().__init__(contender, data)
        self.name, self.route = f"n{number}", f"{HOST}:{free_port()}"
        self.routes: list[str] = []  # of all nodes

    def command(self) -> list[str]:
        routes = ",".join(f"nats://{route}" for route in self.routes)
        return [
            *super().command(), "--name", self.name, "--cluster_name", "bench",
            "--cluster", f"nats://{self.route}", "--routes", routes,
        ]  # fmt: skip


class NatsClusterDialect(Nats):
    """Clients of the server that leads the stream; `prepare` finds it."""

    def __init__(self, nodes: Sequence[NatsNode]) -> None:
        super().__init__(nodes[0].ports)
        self._nodes = nodes
        self.replicas = len(nodes)

    def prepare(self, topic: str, channels: Sequence[str], shape: Shape = PLAIN) -> None:
        super().prepare(topic, channels, shape)
        deadline = time.monotonic() + IN_SYNC_SECONDS_MAX
        while (leader := self._leader(topic)) is None:
            if time.monotonic() > deadline:
                raise DaemonFailed(f"stream {topic} has no {self.replicas} replicas in sync")
            time.sleep(0.1)
        self._port = leader.ports.tcp

    def _leader(self, topic: str) -> NatsNode | None:
        """Once all replicas are in sync."""
        found = self.info(topic)["cluster"]
        if not all(one["current"] for one in found.get("replicas", [])):
            return None
        return next((node for node in self._nodes if node.name == found.get("leader")), None)


class NatsCluster(Several):
    def __init__(self, contender: Contender, data: Path) -> None:
        super().__init__(contender, data)
        self.nodes: list[NatsNode] = [
            NatsNode(contender, data / str(number), number) for number in range(contender.nodes)
        ]
        for node in self.nodes:
            node.routes = [one.route for one in self.nodes]
        self.dialect = NatsClusterDialect(self.nodes)

    def start(self) -> float:
        began = time.monotonic()
        self._start_nodes()
        while not self._is_ready():
            if time.monotonic() - began > START_SECONDS_MAX:
                raise DaemonFailed("the servers elect no leader of JetStream")
            time.sleep(0.2)
        return time.monotonic() - began

    def _is_ready(self) -> bool:
        """It makes a stream of all replicas."""
        try:
            self.dialect.prepare("ready", ())
        except (DaemonFailed, OSError):
            return False
        return True
