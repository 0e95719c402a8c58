"""A learner is given its leader's table of producers, before it may become a member."""

import pytest

from penstock import limits
from penstock.broker.replicas.producer_tables import ProducerTables
from penstock.broker.replicas.replicated_partition import ReplicatedPartition
from sim.disk import Fault

from .cluster_world import ORDERS, Cluster, target
from .test_replicated_partition import HOUR_NS, consume_much

JOINER = 2


@pytest.fixture
def cluster() -> Cluster:
    """Two replicas, whose logs begin behind what a producer has published."""
    cluster = Cluster(retain_age_ns=HOUR_NS, segment_bytes_max=64 * 1024)
    cluster.place([0], on=(0, 1))
    answers = cluster.nodes[0].put_stamped(0, b"first")
    cluster.run()
    assert answers == [None]
    consume_much(cluster)
    for _ in range(3):
        cluster.pass_ns(2 * HOUR_NS)
        cluster.pass_ns(limits.JOURNAL_SYNC_EVERY_NS)
    assert replicated(cluster, 0).replica.log.start_offset > 1
    return cluster


def replicated(cluster: Cluster, number: int) -> ReplicatedPartition:
    found = cluster.nodes[number].replica_host.replica(target())
    assert found is not None
    return found


def join(cluster: Cluster) -> None:
    """A third replica is wanted, on an empty disk."""
    node = cluster.nodes[JOINER]
    node.replica_host.host(ORDERS, 0, 102)
    cluster.announce_channels()
    cluster.write(target(), cluster.known[target()].record._replace(wanted=(0, 1, JOINER)))
    cluster.unlink(node)
    cluster.link(node)  # greeted again, now that it has a replica
    cluster.run()


def is_member(cluster: Cluster) -> bool:
    return cluster.known[target()].record.has(JOINER, 102)


def test_a_retry_is_known_after_retention_removed_its_batch(cluster: Cluster) -> None:
    join(cluster)
    cluster.pass_ns(limits.SECOND)
    assert is_member(cluster)
    cluster.kill(0)
    cluster.elect(JOINER, gone=[0])
    node = cluster.nodes[JOINER]
    log = node.leader().log
    end = log.written_end
    assert log.start_offset > 1
    again, following = node.put_stamped(0, b"first"), node.put_stamped(1, b"second")
    cluster.run()
    assert (again, following) == ([None], [None])
    assert log.written_end == end + 1


def test_a_replica_without_the_table_is_not_admitted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProducerTables, "_send", lambda *_: None)
    join(cluster)
    cluster.pass_ns(limits.SECOND)
    assert replicated(cluster, JOINER).replica.log.written_end > 0
    assert not is_member(cluster)


def test_a_failed_write_is_retried(cluster: Cluster) -> None:
    node = cluster.nodes[JOINER]
    node.replica_host.host(ORDERS, 0, 102)
    node.disk.inject(Fault("rename", path_part="producers"))
    join(cluster)
    assert "table of producers" in node.broker.health or "producers" in node.broker.health
    assert not is_member(cluster)
    cluster.pass_ns(limits.SECOND)
    assert is_member(cluster)
    assert node.broker.health == "OK"
