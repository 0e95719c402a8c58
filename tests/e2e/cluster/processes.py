"""A cluster of real processes: etcd and nsqds on loopback, with what hurts them."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.daemon import Daemon
from e2e.ports import kept_port
from net.etcd.server import Etcd

UNTIL_S = 60.0  # two cores that others use too


class Node(Daemon):
    """`inside`: the network namespace that it runs in."""

    def __init__(
        self,
        path: Path,
        number: int,
        etcd: Etcd,
        *flags: str,
        host: str = "127.0.0.1",
        inside: str = "",
    ) -> None:
        self.number = number
        self.host = host
        self.inside = inside
        self.forgotten = 0  # lines of its log
        self.ports = kept_port(), kept_port(), kept_port()
        tcp, http, replication = self.ports
        super().__init__(
            path,
            f"--node-id={number}",
            f"--cluster=etcd://{etcd.endpoint}/stories",
            f"--tcp-address={host}:{tcp}",
            f"--http-address={host}:{http}",
            f"--replication-address={host}:{replication}",
            f"--broadcast-address={host}",
            *flags,
        )

    def command(self) -> list[str]:
        prefix = ["ip", "netns", "exec", self.inside] if self.inside else []
        return [*prefix, *super().command()]

    def forget_faults(self) -> None:
        """What its log says by now was meant."""
        self.forgotten = len(self._stderr_path.read_text().splitlines())

    def faults(self) -> list[str]:
        lines = self._stderr_path.read_text().splitlines()[self.forgotten :]
        return [line for line in lines if "CRITICAL" in line or "Traceback" in line]

    def lines_with(self, text: str) -> list[str]:
        return [line for line in self._stderr_path.read_text().splitlines() if text in line]

    def ask(self, path: str, method: str = "GET", body: bytes | None = None) -> Any:
        status, data = self._request(path, method, body)
        assert status < 400, f"{path}: {status} {data!r}"
        return json.loads(data) if data.startswith((b"{", b"[")) else data

    def status(self, path: str, method: str = "POST", body: bytes | None = None) -> int:
        return self._request(path, method, body)[0]

    def _request(self, path: str, method: str, body: bytes | None) -> tuple[int, bytes]:
        url = f"http://{self.host}:{self.ports[1]}{path}"
        request = urllib.request.Request(url, data=body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def leads(self, topic: str) -> int | None:
        """Who does, as this node has it."""
        rows = self.ask("/cluster")["partitions"]
        leader: int | None = next(one["leader"] for one in rows if one["topic"] == topic)
        return leader

    @property
    def is_up(self) -> bool:
        return self.process is not None

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)


class Cluster:
    def __init__(self, path: Path, count: int = 3, *flags: str, etcd: Etcd | None = None) -> None:
        self.path = path
        self.etcd = etcd or Etcd(path / "etcd")
        self.nodes = [self.node(number, *flags) for number in range(count)]

    def node(self, number: int, *flags: str) -> Node:
        return Node(self.path / str(number), number, self.etcd, *flags)

    def __enter__(self) -> Cluster:
        self.etcd.start()
        try:
            for node in self.nodes:
                node.spawn()
            for node in self.nodes:
                node.wait_until_ready()
            self.wait_until_linked()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.kill()
        self.etcd.kill()

    def wait_until_linked(self) -> None:
        self.until(lambda: all(self.links(node) == len(self.nodes) for node in self.nodes))

    def links(self, node: Node) -> int:
        """Nodes that it is linked to and knows to live, itself among them."""
        return sum(one["linked"] and one["alive"] for one in node.ask("/cluster")["nodes"])

    def until(self, holds: Callable[[], object], seconds: float = UNTIL_S) -> float:
        begun = time.monotonic()
        while not holds():
            assert time.monotonic() - begun < seconds, f"not within {seconds} s: {self.report()}"
            time.sleep(0.05)
        return time.monotonic() - begun

    def report(self) -> str:
        """What each node says of itself and the others, for a story that failed."""
        states = [json.dumps(node.ask("/cluster")) for node in self.up()]
        return "\n".join(states + [node.stderr()[-3000:] for node in self.nodes])

    def is_alive(self, node: Node) -> bool:
        return bool(self.row(node)["alive"])

    def row(self, node: Node) -> dict[str, Any]:
        """As another one that is up has it."""
        rows = next(one for one in self.up() if one is not node).ask("/cluster")["nodes"]
        return next(one for one in rows if one["node"] == node.number)

    def up(self) -> list[Node]:
        return [node for node in self.nodes if node.is_up]

    def partition(self, topic: str, number: int = 0) -> dict[str, Any]:
        """As any node that is up has it in the metadata."""
        found = [
            one
            for one in self.up()[0].ask("/cluster")["partitions"]
            if (one["topic"], one["partition"]) == (topic, number)
        ]
        return found[0] if found else {"leader": None, "in_sync": []}

    def make(self, path: str) -> None:
        """A topic or a channel, asked for until all partitions have it: a machine may be slow."""
        self.until(lambda: self.nodes[0].status(path) == 200)

    def leader(self, topic: str) -> Node:
        self.until(lambda: self.partition(topic)["leader"] is not None)
        return self.nodes[self.partition(topic)["leader"]]

    def is_whole(self, topic: str) -> bool:
        return len(self.partition(topic)["in_sync"]) == min(len(self.nodes), 3)

    def faults(self) -> list[str]:
        """Lines of the logs that no story may write."""
        return [line for node in self.nodes for line in node.faults()]
