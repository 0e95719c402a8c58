"""An nsqd that has worked by itself becomes the first node of a cluster, with its topics."""

import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.daemon import Daemon
from e2e.v2client import Refused, V2Client
from penstock.tools.main import main

from .processes import Cluster, Node

COUNT = 60
FINISHED = 20


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    with Daemon(tmp_path / "0", "--node-id=0") as alone:
        _fill(alone)
    cluster = Cluster(tmp_path)
    cluster.nodes[0].flags.append("--cluster-import-topics")
    return cluster


def test_a_cluster_goes_on_with_the_topics_of_a_node(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster:
        first, second, third = cluster.nodes
        cluster.until(lambda: cluster.leader("orders") is first)
        positions = first.ask("/log/positions?topic=orders")["topics"]["orders"]
        assert positions["identity"].startswith("000-")  # Spark goes on where it was
        second.ask("/pub?topic=orders", "POST", b"new")
        got = Counter(_received([first], "one", COUNT - FINISHED + 2))
        assert got == Counter([b"%d" % n for n in range(FINISHED, COUNT)] + [b"late", b"new"])
        assert third.ask("/topic/config?topic=orders")["topic_name"] == "orders"
        address = f"--nsqd-http-address={third.host}:{third.ports[1]}"
        assert main(["topic", "peek", "orders", address]) == 0
        assert " new\n" in capsys.readouterr().out
        third.ask("/channel/delete?topic=orders&channel=one", "POST")
        first.stop()
        first.start()  # the flag is still there
        assert len(set(_received([first], "two", COUNT + 2))) == COUNT + 2
        assert cluster.faults() == []


def _fill(alone: Daemon) -> None:
    """A message that is due later is in the second partition."""
    alone.post("/topic/create?topic=orders&partition_num=2")
    for channel in ("one", "two"):
        alone.post(f"/channel/create?topic=orders&channel={channel}")
    alone.post("/mpub?topic=orders", b"\n".join(b"%d" % n for n in range(COUNT)))
    alone.post("/pub?topic=orders&defer=6000", b"late")
    with V2Client(alone.tcp_port) as client:
        client.sub("orders", "one")
        client.rdy(FINISHED)
        messages = client.messages(FINISHED)
        client.rdy(0)
        client.fin(*(message.id for message in messages))
        client.settle()


def _received(nodes: list[Node], channel: str, count: int) -> list[bytes]:
    """Until so many different ones have come."""
    clients = [V2Client(node.ports[0], host=node.host).__enter__() for node in nodes]
    got: list[bytes] = []
    try:
        for client in clients:
            client.sub("orders", channel)
            client.rdy(COUNT)
        until = time.monotonic() + 30
        while len(set(got)) < count and time.monotonic() < until:
            for client in clients:
                with suppress(Refused):  # a leadership has moved: what was not finished comes again
                    while (message := client.message(0.1)) is not None:
                        got.append(message.body)
                        client.fin(message.id)
    finally:
        for client in clients:
            client.__exit__(None, None, None)
    return got
