"""Replicas that come to a node, leave it, and are found again by a start."""

import errno
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock import limits
from penstock.broker.replicas.aside import Aside
from penstock.broker.replicas.clustered_topic import when_held
from penstock.errors import NotFound, Refused, StorageError
from penstock.limits import ASIDE_KEPT_NS, SECOND
from sim.clock import FakeClock
from sim.disk import Fault, SimDisk

from ..world import World
from .cluster_world import ORDERS, PATH, Cluster, target

TWO = replace(ORDERS, partitions=2, hash_partitions=2)


def of_two(cluster: Cluster) -> Any:
    """A node that hosts both of the partitions."""
    node = cluster.nodes[0]
    for partition in range(2):
        node.replica_host.host(TWO, partition, 7)
    return node


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_another_replica_or_topic_is_not_overwritten(cluster: Cluster) -> None:
    replica_host = cluster.nodes[0].replica_host
    replica_host.host(ORDERS, 0, 7)
    with pytest.raises(Refused, match="another replica of orders is here"):
        replica_host.host(ORDERS, 0, 8)
    with pytest.raises(Refused, match="another topic orders is here"):
        replica_host.host(replace(ORDERS, identity="another"), 0, 8)
    with pytest.raises(NotFound):
        replica_host.adopt_channels(replace(ORDERS, identity="another"), [])


def test_a_released_replica_is_moved_aside_and_recreated_empty(cluster: Cluster) -> None:
    cluster.place([0])
    cluster.publish(0, b"kept aside")
    node = cluster.nodes[1]
    place = node.replica_host.release(target())
    assert node.disk.exists(f"{place}/replica.json")
    assert (node.replica_host.targets(), list(node.broker.topics)) == ([], [])
    node.replica_host.host(ORDERS, 0, 55)
    assert node.bodies() == b""
    assert node.replica_host.release(target()) != place
    cluster.kill(1)
    assert list(cluster.start(1).broker.topics) == []


def test_clients_stay_when_the_last_replica_goes_and_when_one_comes(cluster: Cluster) -> None:
    cluster.place([0])
    node = cluster.nodes[1]
    topic, consumer = node.topic, node.consume()
    outcome = node.put(b"on its way")
    fault = node.disk.inject(Fault("write", errno.ENOSPC, "topic.json", times=0))
    node.replica_host.release(target(), stays=True)
    assert node.topic is topic
    assert not node.disk.exists(topic.directory)
    with pytest.raises(StorageError):
        node.replica_host.host(ORDERS, 0, 55)
    node.disk.faults.remove(fault)
    assert not topic.store.kept
    node.replica_host.host(ORDERS, 0, 55)
    cluster.pass_ns(2 * SECOND)
    assert (node.topic, outcome.answers) == (topic, [])
    assert consumer.conn.serial in {conn.serial for conn in topic.find_channel("billing").consumers}
    assert node.broker.health == "OK"
    cluster.kill(1)
    assert list(cluster.start(1).broker.topics) == ["orders"]


def test_a_replica_that_cannot_be_moved_is_still_released(cluster: Cluster) -> None:
    node = of_two(cluster)
    node.disk.inject(Fault("rename", path_part="orders/1"))
    with pytest.raises(StorageError, match="cannot be moved aside"):
        node.replica_host.release(target(1))
    assert node.replica_host.targets() == [target(0)]
    node.replica_host.host(TWO, 1, 8)  # what is left there is moved aside first
    assert node.replica_host.targets() == [target(0), target(1)]


@pytest.mark.parametrize(
    "fault",
    [
        Fault("write", errno.ENOSPC, "orders/topic.json", times=0),
        Fault("rename", path_part="replica.json", times=0),
    ],
)
def test_a_replica_that_cannot_be_made_leaves_nothing(cluster: Cluster, fault: Fault) -> None:
    node = cluster.nodes[0]
    node.disk.inject(fault)
    with pytest.raises(StorageError):
        node.replica_host.host(ORDERS, 0, 7)
    assert node.replica_host.targets() == []
    node.disk.faults.remove(fault)
    node.replica_host.host(ORDERS, 0, 7)
    cluster.pass_ns(2 * SECOND)  # housekeeping makes no more attempts
    node.disk.inject(Fault("rename", path_part="1/producers"))
    with pytest.raises(StorageError):
        node.replica_host.host(TWO, 1, 7)
    assert node.replica_host.targets() == [target()]


def test_a_directory_without_its_replica_file_is_not_a_replica(cluster: Cluster) -> None:
    node = of_two(cluster)
    node.disk.unlink(f"{PATH}/topics/orders/1/replica.json")
    cluster.kill(0)
    again = cluster.start(0)
    assert again.replica_host.targets() == [target(0)]
    again.replica_host.host(TWO, 1, 9)
    assert again.replica_host.targets() == [target(0), target(1)]
    assert again.disk.listdir(f"{PATH}/aside") == ["orders-1"]


def unreadable_one_of_two(cluster: Cluster) -> Any:
    """A node that was started with the `replica.json` of partition 0 corrupt."""
    node = of_two(cluster)
    node.disk.flip(f"{PATH}/topics/orders/0/replica.json", 20, 3)
    cluster.kill(0)
    return cluster.start(0)


def test_only_the_partition_with_the_corrupt_replica_file_is_set_aside(cluster: Cluster) -> None:
    again = unreadable_one_of_two(cluster)
    assert again.replica_host.targets() == [target(1)]
    assert "orders/0: set aside until it is repaired" in again.broker.health
    assert [again.replica_host.is_set_aside(target(number)) for number in range(2)] == [True, False]
    with pytest.raises(Refused, match="orders/0 is set aside"):
        again.replica_host.host(TWO, 0, 9)
    again.replica_host.host(replace(TWO, partitions=3), 2, 9)
    assert again.replica_host.targets() == [target(1), target(2)]
    again.disk.flip(f"{PATH}/topics/orders/0/replica.json", 20, 3)  # it is repaired
    cluster.kill(0)
    repaired = cluster.start(0)
    assert repaired.replica_host.targets() == [target(0), target(1), target(2)]
    assert repaired.broker.health == "OK"


def test_a_topic_with_a_corrupt_file_can_be_discarded_and_replaced(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    node.replica_host.host(ORDERS, 0, 7)
    node.disk.flip(f"{PATH}/topics/orders/topic.json", 20, 3)
    cluster.kill(0)
    again = cluster.start(0)
    with pytest.raises(Refused, match="topic orders is set aside"):
        again.replica_host.host(ORDERS, 0, 9)
    assert again.replica_host.discard("orders") == f"{PATH}/aside/orders"
    assert again.broker.health == "OK"
    again.replica_host.host(ORDERS, 0, 9)
    assert again.replica_host.targets() == [target()]
    assert again.disk.exists(f"{PATH}/aside/orders/0/replica.json")


def test_an_unreadable_replica_outlives_its_topic(cluster: Cluster) -> None:
    again = unreadable_one_of_two(cluster)
    again.replica_host.release(target(1))
    assert "orders" not in again.broker.topics
    assert again.disk.exists(f"{PATH}/aside/orders-0/replica.json")
    assert again.broker.health == "OK"
    assert not again.replica_host.is_set_aside(target(0))


def test_a_replica_that_cannot_be_moved_survives_its_topic(cluster: Cluster) -> None:
    again = unreadable_one_of_two(cluster)
    again.disk.inject(Fault("rename", path_part="orders/0"))
    with pytest.raises(StorageError, match="cannot be moved aside"):
        again.replica_host.release(target(1))
    assert again.disk.exists(f"{PATH}/topics/orders/0/replica.json")
    assert again.replica_host.is_set_aside(target(0))


def test_a_single_node_does_not_serve_a_replicated_topic(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    node.replica_host.host(ORDERS, 0, 7)
    cluster.kill(0)
    alone = World(Path(PATH), [], disk=node.disk, clock=cluster.clock)
    with pytest.raises(StorageError, match="a cluster places its replicas"):
        alone.broker.open()


def test_a_node_refuses_changes_that_the_cluster_makes(cluster: Cluster) -> None:
    cluster.place([0])
    broker, topic = cluster.nodes[0].broker, cluster.nodes[0].topic
    for act in (
        lambda: topic.channel("new"),
        lambda: topic.delete_channel("billing"),
        lambda: broker.delete_topic("orders"),
        lambda: broker.grow_topic(topic, 2),
    ):
        with pytest.raises(Refused, match="cluster"):
            act()
    assert topic.channel("new#ephemeral").windows.keys() == {0}
    cluster.publish(0, b"x")
    cluster.elect(1)
    assert topic.find_channel("new#ephemeral").windows == {}
    cluster.elect(0)
    assert topic.find_channel("new#ephemeral").windows.keys() == {0}


def test_a_failed_sync_of_the_journal_stops_the_replica(cluster: Cluster) -> None:
    cluster.place([0])
    node = cluster.nodes[0]
    node.disk.inject(Fault("sync", path_part="channels."))
    node.topic.find_channel("billing").empty()
    when_held(node.topic.leaders, lambda error: None)
    cluster.run()
    assert node.role() == "stopped"
    replicated = node.replica_host.replica(target())
    assert replicated is not None
    assert replicated.own.state == "stopped"
    cluster.kill(0)
    cluster.elect(1, gone=[0])
    cluster.publish(1, b"x")
    assert cluster.start(0).role() == "stopped"


def test_a_failing_epoch_ledger_is_shown(cluster: Cluster) -> None:
    cluster.place([0])
    node = cluster.nodes[1]
    node.disk.inject(Fault("write", path_part="ledger", times=100))
    cluster.elect(1)
    assert node.role() == "follower"
    cluster.pass_ns(limits.SECOND)
    assert "no leadership can begin" in node.broker.health


# --- files that are not wanted any more: how long they stay ---


class AsideNode:
    def __init__(self) -> None:
        self.disk, self.clock = SimDisk(), FakeClock()
        self.disk.mkdir("/d")
        self.aside = Aside(self.disk, "/d", self.clock)

    def move(self, kept_ns: int = ASIDE_KEPT_NS) -> str:
        self.disk.mkdir("/d/r")
        self.disk.create("/d/r/log").close()
        self.disk.mkdir("/d/r/inner")
        return self.aside.move("/d/r", "r", kept_ns)


@pytest.fixture
def node() -> AsideNode:
    return AsideNode()


def test_moved_files_stay_for_a_day_or_until_the_disk_is_full(node: AsideNode) -> None:
    first, second = node.move(), node.move()
    assert first != second
    node.clock.pass_ns(ASIDE_KEPT_NS - 1)
    third = node.move()
    node.aside.settle(False)
    assert node.disk.exists(first)
    node.clock.pass_ns(1)
    node.aside.settle(False)
    assert [node.disk.exists(one) for one in (first, second, third)] == [False, False, True]
    node.aside.settle(True)
    assert not node.disk.exists(third)


def test_files_found_at_a_start_stay_for_another_day(node: AsideNode) -> None:
    found = node.move()
    again = Aside(node.disk, "/d", node.clock)
    again.settle(False)
    node.clock.pass_ns(ASIDE_KEPT_NS)
    again.settle(False)
    assert not node.disk.exists(found)


def test_failed_removals_of_a_deleted_topic_are_retried(node: AsideNode) -> None:
    first, second = node.move(0), node.move(0)
    fault = node.disk.inject(Fault("unlink", path_part="r/log", times=0))
    for _ in range(2):
        node.aside.settle(False)
    assert [node.disk.exists(one) for one in (first, second)] == [True, False]
    node.disk.faults.remove(fault)
    node.aside.settle(False)
    assert not node.disk.exists(first)
