"""What /stats says of the replicas of a cluster's topic."""

from __future__ import annotations

from penstock import kernel
from penstock.broker.partitionrows import replica_rows
from sim.brokers.cluster import JoinedCluster


def test_role_leader_epoch_in_sync_set_and_lag() -> None:
    cluster = JoinedCluster(kernel)
    cluster.make("orders")
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", b"one", b"two")
    cluster.run(2)
    leader = cluster.led_by("orders")
    other = next(node for node in cluster.nodes if node is not leader)
    (row,) = replica_rows(leader.broker.topics["orders"])
    numbers = sorted(node.number for node in cluster.nodes if node is not leader)
    assert row["followers"] == [{"node": number, "lag": 0} for number in numbers]
    assert (row["role"], row["lag"]) == ("leader", 0)
    (its,) = replica_rows(other.broker.topics["orders"])
    assert (its["role"], "lag" in its) == ("follower", False)
    for one in (row, its):
        assert (one["leader"], one["end_offset"]) == (leader.number, 2)
        assert sorted(one["in_sync"]) == [node.number for node in cluster.nodes]
        assert one["epoch"] == cluster.record("orders").epoch
    cluster.close()
