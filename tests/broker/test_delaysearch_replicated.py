"""The search for delayed messages in a log of several replicas: it waits at what is corrupt."""

from __future__ import annotations

from types import ModuleType

import pytest

from penstock import limits
from penstock.broker.channel import Channel

from .hostedworld import BILLING, Cluster, Node

HOUR_NS = 3600 * limits.SECOND


@pytest.fixture
def cluster(kernel: ModuleType) -> Cluster:
    """Two delayed messages, a batch each, and no channel that has been given them."""
    cluster = Cluster(kernel, channels=())
    cluster.place([0])
    for word in (b"first", b"second"):
        cluster.publish(0, word, due_ns=cluster.clock.wall_ns() + HOUR_NS)
    return cluster


def rot(node: Node, word: bytes) -> None:
    segment = node.topic.replicas[0].log.segments[0].path
    node.disk.flip(segment, node.disk.content(segment).index(word), 0)


def make_channel(cluster: Cluster) -> None:
    cluster.channels.append(BILLING)
    cluster.announce_channels()
    for _ in range(3):
        cluster.pass_ns(limits.SECOND)


def delayed(node: Node) -> int:
    channel: Channel = node.topic.find_channel("billing")
    return channel.delayed


def test_a_delayed_message_is_found_when_it_was_repaired(cluster: Cluster) -> None:
    rot(cluster.nodes[1], b"first")
    cluster.elect(1)
    cluster.cut.update((0, 2))
    make_channel(cluster)
    before = delayed(cluster.nodes[1])
    cluster.cut.clear()
    for _ in range(2 * limits.REPAIR_PAUSE):
        cluster.pass_ns(limits.SECOND)
    assert (before, delayed(cluster.nodes[1])) == (0, 2)


def test_what_was_conceded_is_passed(cluster: Cluster) -> None:
    for node in cluster.nodes:
        rot(node, b"first")
    cluster.elect(1)
    make_channel(cluster)
    assert delayed(cluster.nodes[1]) == 0
    cluster.nodes[1].leader().concede_damage()
    for _ in range(3):
        cluster.pass_ns(limits.SECOND)
    assert delayed(cluster.nodes[1]) == 1
