"""The controller at work, with processes. It waits until nodes are steady: this takes minutes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.lookupd import Lookupd
from e2e.v2client import Refused, V2Client

from .processes import Cluster, Node
from .test_stories import check
from .traffic import Traffic

pytestmark = pytest.mark.long


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, 4) as cluster:
        flag = f"--cluster=etcd://{cluster.etcd.endpoint}/stories"
        with Lookupd(tmp_path / "lookupd", flag):
            yield cluster
        assert cluster.faults() == []


def is_alive(cluster: Cluster, node: Node) -> bool:
    rows = cluster.nodes[0].ask("/cluster")["nodes"]
    return next(bool(one["alive"]) for one in rows if one["node"] == node.number)


def test_a_topic_gets_the_replicas_that_it_was_made_without(cluster: Cluster) -> None:
    for node in cluster.nodes[2:]:
        node.stop()
    cluster.until(lambda: not any(is_alive(cluster, node) for node in cluster.nodes[2:]))
    with Traffic(cluster, "short") as traffic:
        time.sleep(1)
        for node in cluster.nodes[2:]:
            node.start()
        cluster.until(lambda: len(cluster.partition("short")["in_sync"]) == 3, 120)
    check(traffic.told(), 0)


def test_a_node_is_drained_and_forgotten(cluster: Cluster) -> None:
    """Nothing is lost, and no publish is refused anywhere; then it has nothing to be asked for."""
    drained = cluster.nodes[1]
    cluster.nodes[0].ask("/topic/create?topic=drained&partition_num=6", "POST")
    with Traffic(cluster, "drained") as traffic:
        time.sleep(1)
        cluster.nodes[0].ask("/cluster/node?node=1&state=draining", "POST")
        cluster.until(lambda: not _has_any(cluster, drained), 120)
        time.sleep(1)
        with V2Client(drained.ports[0]) as client, pytest.raises(Refused) as refused:
            client.sub("drained", "work")
        assert refused.value.data.startswith(b"E_FAILED_ON_NOT_LEADER SUB: no partition of topic")
    told = traffic.told(drained)
    check(told)
    assert not any(one.refused for one in traffic.publishers)
    assert drained.stop() == 0
    cluster.until(lambda: not is_alive(cluster, drained))
    cluster.nodes[0].ask("/cluster/node?node=1&state=removed", "POST")


def _has_any(cluster: Cluster, node: Node) -> bool:
    rows = cluster.nodes[0].ask("/cluster")["partitions"]
    return any(node.number in [*row["in_sync"], *row["preferred"]] for row in rows)
