"""Which publishes a topic takes: where a partition is led elsewhere or has stopped, and while an
operator has turned publishes off."""

from typing import Any

import pytest
from msgspec.structs import replace

from penstock import limits
from penstock.broker.partition.appends import content
from penstock.broker.partition.idempotent import Stamp
from penstock.broker.ports import Led
from penstock.broker.replicas.forwarding import Forwarding
from penstock.broker.topics.settings import WritesDisabledFor
from penstock.errors import (
    PartitionElsewhere,
    PartitionUnknown,
    PenstockError,
    Refused,
    WritesDisabled,
)

from ..replicas.cluster_world import ORDERS, Cluster, target
from ..world import Outcome, Start, World


def nothing(*_: Any) -> None:
    raise AssertionError("a publish that was refused is answered")


class TestOfACluster:
    """Two partitions: node 0 leads the first one, node 1 the second, node 2 none."""

    @pytest.fixture
    def cluster(self) -> Cluster:
        cluster = Cluster(replace(ORDERS, partitions=2, hash_partitions=2))
        cluster.place([0, 1])
        return cluster

    def test_each_node_stores_for_the_partitions_it_leads(self, cluster: Cluster) -> None:
        topics = [node.topic for node in cluster.nodes]
        assert [[topic.leads(number) for number in range(3)] for topic in topics] == [
            [True, False, False],
            [False, True, False],
            [False, False, False],
        ]
        assert [sorted(topic.outboxes) for topic in topics] == [[1], [0], [0, 1]]
        for topic in topics:
            topic.check_taken()
            assert topic.takes(0)
            assert topic.takes(1)
        with pytest.raises(PartitionUnknown):
            topics[0].partition(2)

    def test_a_publish_to_a_partition_led_elsewhere_waits_for_its_leader(
        self, cluster: Cluster
    ) -> None:
        topic = cluster.nodes[0].topic
        topic.publish([b"a", b"b"], 0, nothing, partition=1)
        topic.publish_located([content(b"a", 42)], 0, nothing, partition=1)
        assert topic.outboxes[1].tail.open_count == 3
        assert topic.refusal_by({0: 1, 1: 1}) == ""
        cluster.run()
        assert cluster.nodes[1].bodies(1) == b""  # nobody says here who leads it

    def test_publishes_that_may_go_anywhere_do_not_wait_for_a_leader_out_of_reach(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        node = cluster.nodes[0]
        outbox, refused = node.topic.outboxes[1], Outcome()
        node.topic.publish([b"waits"], 0, refused, partition=1)
        for _ in range(3):
            cluster.run()
            outcome = Outcome()
            node.topic.publish([b"a"], 0, outcome)
            cluster.run()
            assert outcome.stored
            assert outbox.tail.open_count == (refused.answers == [])
            node.broker.replica_host.tick(cluster.clock.mono_ns())
            cluster.clock.pass_ns(limits.FORWARD_WAIT_NS)
        assert "no leader of partition 1 was reached" in str(refused.answers)
        monkeypatch.setattr(Forwarding, "leader_of", lambda *_: Led(1, target(1)))
        node.broker.replica_host.tick(cluster.clock.mono_ns())
        node.topic.publish([b"b"], 0, nothing)
        assert (outbox.tail.open_count, outbox.tail.sealed_max) == (1, 1)
        monkeypatch.undo()
        node.broker.replica_host.unlinked(1)  # no publish has come upon it yet
        assert outbox.tail.sealed_max == 0

    def test_an_idempotent_producer_is_routed_to_the_partition_that_knows_it(
        self, cluster: Cluster
    ) -> None:
        topic = cluster.nodes[0].topic
        homes = {number: topic.partition_of_key(number.to_bytes(8, "big")) for number in range(50)}
        here = next(number for number, home in homes.items() if home == 0)
        there = next(number for number, home in homes.items() if home == 1)
        answers: list[PenstockError | None] = []
        topic.publish_stamped(Stamp(here, 0, 0), [b"a"], 0, lambda error, _: answers.append(error))
        cluster.run()
        assert answers == [None]
        with pytest.raises(PartitionElsewhere):
            topic.publish_stamped(Stamp(there, 0, 0), [b"a"], 0, nothing)


@pytest.fixture
def broken(simulate: Start) -> World:
    """Partition 1 of two has stopped: a sync failed."""
    world = simulate(durability="disk")
    world.broker.topic("t", 2)
    world.fail("sync", "topics/t/1/")
    outcomes = [world.publish("t", b"%d" % number).stored for number in range(2)]
    assert outcomes == [True, False]
    return world


def test_a_stopped_partition_refuses_only_its_own_publishes(broken: World) -> None:
    topic = broken.broker.topic("t")
    reason = topic.partition(1).refusal
    assert reason != ""
    with pytest.raises(Refused) as caught:
        topic.publish([b"x"], 0, nothing, partition=1)
    assert str(caught.value) == reason
    with pytest.raises(Refused):
        topic.publish_located([content(b"x", 42)], 0, nothing, partition=1)
    keys = {topic.partition_of_key(number.to_bytes(8, "big")): number for number in range(50)}
    with pytest.raises(Refused):
        topic.publish_stamped(Stamp(keys[1], 0, 0), [b"x"], 0, nothing)
    assert topic.refusal_by({0: 1, 1: 1}) == reason
    outcome = Outcome()
    topic.publish([b"y"], 0, outcome, partition=0)
    broken.turns()
    assert outcome.stored


def test_disabled_publishing_is_reported_by_every_command(world: World) -> None:
    topic = world.broker.topic("t")
    world.broker.refuse(writes_disabled=WritesDisabledFor.ALL)
    for publish in (
        lambda: topic.publish([b"x"], 0, nothing),
        lambda: topic.publish_located([content(b"x", 42)], 0, nothing),
        lambda: topic.publish_stamped(Stamp(1, 0, 0), [b"x"], 0, nothing),
    ):
        with pytest.raises(WritesDisabled):
            publish()
    world.broker.refuse(writes_disabled=WritesDisabledFor.ORDERED)
    assert world.publish("t", b"y").stored
    world.broker.refuse(writes_disabled=WritesDisabledFor.NONE)
    assert topic.refusal_of(1) == ""
