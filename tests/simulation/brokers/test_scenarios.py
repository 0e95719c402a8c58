"""What fails one thing at a time, on a clock: who may be replaced, and how soon.

`publish` shows that the partition takes messages again, and `settle` that all is whole and that
then no record changes any more.
"""

from collections.abc import Iterator

import pytest

from penstock import kernel
from penstock.errors import PenstockError
from sim.brokers.clients import Outcome
from sim.brokers.cluster import JoinedCluster
from sim.brokers.node import JoinedNode

WHOLE_S = 150.0  # a node that was dropped waits before it counts, and leads, again


@pytest.fixture
def cluster() -> Iterator[JoinedCluster]:
    made = JoinedCluster(kernel, validated_every=200)
    made.make("orders")
    made.until(lambda: made.is_whole("orders") and made.leader("orders"), 60)
    made.run(10)  # now absence may be acted upon
    yield made
    made.close()


def others(cluster: JoinedCluster, node: JoinedNode) -> list[JoinedNode]:
    return [one for one in cluster.nodes if one is not node]


def is_led_elsewhere(cluster: JoinedCluster, node: JoinedNode) -> bool:
    """And commits."""
    leader = cluster.leader("orders")
    if leader is None or leader is node:
        return False
    try:
        outcome: Outcome = leader.put("orders", b"x")
    except PenstockError:
        return False
    cluster.run(0.2)
    return outcome.answers == [None]


def settle(cluster: JoinedCluster) -> None:
    cluster.heal()
    first = cluster.record("orders").wanted[0]

    def is_settled() -> bool:
        leader = cluster.leader("orders")
        return leader is not None and leader.number == first and cluster.is_whole("orders")

    cluster.until(is_settled, WHOLE_S)
    before = cluster.record("orders")
    cluster.run(10)
    assert cluster.record("orders") == before, "a record changes, and nothing is wrong"


def test_an_outage_of_the_coordinator_replaces_nobody(cluster: JoinedCluster) -> None:
    """It comes back to one node after the other, to the leader last; and the first one has lost its
    link to it."""
    leader, epoch = cluster.led_by("orders"), cluster.record("orders").epoch
    cluster.away = {0, 1, 2}
    cluster.run(20)
    first, second = others(cluster, leader)
    cluster.cut_between(leader.number, first.number)
    for node in (first, second, leader):
        cluster.away.discard(node.number)
        cluster.run(0.8)
    cluster.run(5)
    assert cluster.record("orders").epoch == epoch
    settle(cluster)


def test_a_leaders_process_that_is_back_at_once(cluster: JoinedCluster) -> None:
    leader = cluster.led_by("orders")
    cluster.kill(leader.number)
    cluster.run(0.2)
    cluster.start(leader.number)
    cluster.until(lambda: cluster.leader("orders"), 4)
    settle(cluster)


def test_a_leader_without_followers_gives_way(cluster: JoinedCluster) -> None:
    leader = cluster.led_by("orders")
    cluster.cut_off(leader.number)
    cluster.until(lambda: is_led_elsewhere(cluster, leader), 30)
    settle(cluster)


def test_a_leader_that_hangs_is_replaced(cluster: JoinedCluster) -> None:
    leader = cluster.led_by("orders")
    cluster.hang(leader.number)
    cluster.until(lambda: is_led_elsewhere(cluster, leader), 30)
    cluster.wake(leader.number)
    settle(cluster)


def test_a_follower_that_comes_and_goes_is_not_added_each_time(cluster: JoinedCluster) -> None:
    leader = cluster.led_by("orders")
    node = others(cluster, leader)[0]
    revision = cluster.store.revision
    for _ in range(8):
        cluster.cut_between(leader.number, node.number)
        cluster.run(4)
        cluster.heal()
        cluster.run(6)
    changes = cluster.store.revision - revision
    assert changes <= 10, f"{changes} changes by a follower that comes and goes"
    settle(cluster)


def test_one_nodes_word_is_not_enough_to_replace_another(cluster: JoinedCluster) -> None:
    """A link is cut, and one side finds its attempts refused."""
    leader, epoch = cluster.led_by("orders"), cluster.record("orders").epoch
    node = others(cluster, leader)[0]
    cluster.cut_between(leader.number, node.number)
    for _ in range(3):
        node.cluster_node.refused(leader.number, leader.incarnation)
        cluster.run(0.5)
    assert cluster.record("orders").epoch == epoch
    settle(cluster)
