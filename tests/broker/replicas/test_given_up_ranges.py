"""What an operator gave up on a leader of several replicas: another replica may have it, so it is
asked for; where none has it the readers step over it."""

import pytest

from penstock import limits
from penstock.log.damage import LostRange, write_lost

from ..world import Consumer, bodies
from .cluster_world import Cluster

WORDS = (b"one", b"two", b"three")
LOST = "no replica has offsets 0 to 0"


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    for word in WORDS:
        cluster.publish(0, word)
    cluster.pass_ns(5 * limits.SECOND)
    return cluster


def give_up(cluster: Cluster, number: int, start: int, end: int) -> None:
    """As `penstock log repair` does, while the node is down."""
    path = cluster.nodes[number].topic.replicas[0].log.path
    cluster.kill(number)
    write_lost(cluster.nodes[number].disk, path, [LostRange(start, end, "corrupt", 1)])
    cluster.start(number)


def pass_rounds(cluster: Cluster, consumer: Consumer, count: int = 1) -> list[bytes]:
    got: list[bytes] = []
    for _ in range(count * (limits.REPAIR_PAUSE + 4 * limits.REPAIR_PATIENCE)):
        cluster.pass_ns(limits.SECOND)
        messages = consumer.take()
        got += bodies(messages)
        consumer.finish(*messages)
    cluster.run()
    return got


def test_what_was_stepped_over_stays_so_under_the_next_leader(cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.rot(b"one")
    give_up(cluster, 1, 0, 1)
    cluster.elect(1)
    consumer = cluster.nodes[1].consume()
    assert pass_rounds(cluster, consumer) == [b"two", b"three"]
    consumer.leave()
    cluster.elect(2)
    assert "no replica has" not in cluster.nodes[1].broker.health
    (window,) = cluster.nodes[2].topic.find_channel("billing").windows.values()
    assert (window.low, window.depth) == (3, 0)


def test_an_operators_word_ends_the_wait(cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.rot(b"one")
    cluster.elect(1)
    consumer = cluster.nodes[1].consume()
    assert pass_rounds(cluster, consumer) == []
    leader = cluster.nodes[1].leader()
    assert leader.concede_damage() == [(0, 1)]
    assert pass_rounds(cluster, consumer) == [b"two", b"three"]
    assert LOST in cluster.nodes[1].broker.health
    assert leader.concede_damage() == [(0, 1)]
