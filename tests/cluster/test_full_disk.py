"""A node whose disk is full leads nothing, and hands on what its clients publish."""

from __future__ import annotations

import errno

from penstock import kernel
from penstock.limits import FULL_DISK_NS, REPLICA_TIMEOUT_NS, SECOND
from sim.brokers.cluster import JoinedCluster
from sim.brokers.node import JoinedNode
from sim.disk import Fault


def full(node: JoinedNode, is_full: bool = True) -> None:
    """Less is free than is to stay free, which is nothing here."""
    node.disk.free_bytes = lambda path: -1 if is_full else 1 << 40  # type: ignore[method-assign]


def test_leaderships_go_to_a_node_that_has_room_and_come_back() -> None:
    cluster = JoinedCluster(kernel)
    cluster.make("orders")
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", b"before")
    node = cluster.led_by("orders")
    full(node)
    cluster.until(lambda: cluster.leader("orders") not in (None, node))
    outcome = node.put("orders", b"by the full node")
    cluster.until(lambda: outcome.told)
    full(node, False)
    cluster.run(2)
    assert cluster.leader("orders") is not node  # not at once: it may be full again
    cluster.until(lambda: cluster.leader("orders") is node, FULL_DISK_NS / SECOND + 60)


def test_where_all_are_full_the_leader_stays_and_refuses() -> None:
    cluster = JoinedCluster(kernel)
    cluster.make("orders")
    cluster.make_channel("orders", "billing")
    node = cluster.led_by("orders")
    for each in cluster.nodes:
        full(each)
    cluster.run(20)
    assert cluster.leader("orders") is node
    assert "disk almost full" in node.broker.topics["orders"].refusal


def test_no_commit_waits_for_a_follower_that_can_write_nothing() -> None:
    cluster = JoinedCluster(kernel)
    cluster.make("orders")
    cluster.publish("orders", b"before")
    follower = next(node for node in cluster.nodes if node is not cluster.led_by("orders"))
    follower.disk.inject(Fault("write", errno.ENOSPC, ".log", times=0))
    outcome = cluster.led_by("orders").put("orders", b"then")
    assert cluster.until(lambda: outcome.told) < REPLICA_TIMEOUT_NS / SECOND / 2
    assert outcome.told == [None]
    assert cluster.record("orders").member_on(follower.number) is None
