"""A cluster of three nsqds and two nsqlookupds: clients hear of the next leader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from net.etcd.server import Etcd

from .daemon import Daemon
from .lookupd import Lookupd, eventually
from .ports import kept_port

NEXT_S = 40.0  # less than a second on a quiet machine, 4 at most where the kill is not seen


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path / "etcd").start()
    yield server
    server.kill()


def test_both_name_the_next_leader(tmp_path: Path, etcd: Etcd) -> None:
    flag = f"--cluster=etcd://{etcd.endpoint}/test"
    nodes = [
        Daemon(
            tmp_path / str(number), flag, f"--node-id={number}", "--broadcast-address=127.0.0.1",
            f"--replication-address=127.0.0.1:{kept_port()}",
        )
        for number in range(3)
    ]  # fmt: skip
    lookups = [Lookupd(tmp_path / name, flag) for name in ("l1", "l2")]
    with ExitStack() as stack:
        for one in (*nodes, *lookups):
            stack.callback(one.kill)
            one.spawn()
        for one in (*nodes, *lookups):
            one.wait_until_ready()
        by_port = {node.tcp_port: node for node in nodes}
        eventually(lambda: len(lookups[0].get("/nodes")["producers"]) == 3)
        lookups[0].post("/topic/create?topic=t&replicator=3")
        (port,) = lookups[0].producer_ports("t")
        eventually(lambda: lookups[1].producer_ports("t") == [port])
        assert by_port[port].http("POST", "/pub?topic=t", b"before")[0] == 200
        by_port[port].kill()
        for lookup in lookups:
            eventually(lambda at=lookup: at.producer_ports("t") not in ([], [port]), NEXT_S)
        assert lookups[0].producer_ports("t") == lookups[1].producer_ports("t")
        (following,) = lookups[0].producer_ports("t")
        assert by_port[following].http("POST", "/pub?topic=t", b"after")[0] == 200
        assert len(lookups[0].get("/listlookup")["lookupdnodes"]) == 2
        assert lookups[0].stop() == 0
        eventually(lambda: len(lookups[1].get("/listlookup")["lookupdnodes"]) == 1)
