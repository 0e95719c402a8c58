"""Channels that clients make and delete, at any node of a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.world import bodies
from penstock import kernel
from penstock.broker.changes import skip
from penstock.broker.skips import ANY, Skipped
from penstock.cluster.creation import creation
from penstock.errors import (
    ChannelUnconfirmed,
    NotFound,
    PenstockError,
)
from sim.brokers.clients import Outcome
from sim.brokers.cluster import JoinedCluster, place_of
from sim.brokers.node import JoinedNode


@pytest.fixture
def cluster() -> Iterator[JoinedCluster]:
    made = JoinedCluster(kernel)
    made.make("orders", partitions=3)
    yield made
    made.close()


class Asked:
    """A client's wish at one node, and what it was answered."""

    def __init__(self, node: JoinedNode, channel: str, deletes: bool = False) -> None:
        self.answers: list[PenstockError | None] = []
        metadata = node.joined.hosting.metadata
        assert metadata is not None
        act = metadata.delete_channel if deletes else metadata.make_channel
        act("orders", channel, self.answers.append)

    @property
    def is_made(self) -> bool:
        return self.answers == [None]

    @property
    def error(self) -> PenstockError:
        (error,) = self.answers
        assert error is not None
        return error


def make(cluster: JoinedCluster, node: JoinedNode, channel: str) -> None:
    asked = Asked(node, channel)
    cluster.until(lambda: asked.answers)
    assert asked.is_made, asked.answers


def delete(cluster: JoinedCluster, node: JoinedNode, channel: str) -> None:
    asked = Asked(node, channel, deletes=True)
    cluster.until(lambda: asked.answers)
    assert asked.is_made, asked.answers


def publish(cluster: JoinedCluster, body: bytes, partition: int) -> bool:
    """Is it stored? Asked at the partition's leader."""
    cluster.until(lambda: cluster.leader("orders", partition))
    leader, outcome = cluster.led_by("orders", partition), Outcome()
    leader.broker.topics["orders"].publish([body], 0, outcome, partition)
    leader.turn()
    cluster.until(lambda: outcome.told or not leader.is_up)
    return outcome.stored


def received(cluster: JoinedCluster, channel: str, count: int) -> list[bytes]:
    """What comes out of a channel, from whichever nodes lead, in the end."""
    found: set[bytes] = set()
    cluster.until(
        lambda: all(cluster.has_channel(node, "orders", channel) for node in cluster.up())
    )
    consumers = [node.consume("orders", channel) for node in cluster.up()]

    def all_came() -> bool:
        for consumer in consumers:
            messages = consumer.take()
            found.update(bodies(messages))
            consumer.finish(*messages)
        return len(found) >= count

    cluster.until(all_came)
    return sorted(found)


def test_a_known_channel_costs_no_wait_though_the_coordinator_is_away(
    cluster: JoinedCluster,
) -> None:
    make(cluster, cluster.nodes[0], "known")
    cluster.away.update(range(3))
    assert Asked(cluster.nodes[0], "known").is_made
    elsewhere = Asked(cluster.nodes[1], "known")  # which asks the leaders once
    cluster.until(lambda: elsewhere.answers)
    assert elsewhere.is_made
    assert Asked(cluster.nodes[1], "known").is_made


def test_a_leader_that_does_not_know_it_yet_is_waited_for(cluster: JoinedCluster) -> None:
    """It would begin the channel behind what it acknowledges meanwhile."""
    make(cluster, cluster.nodes[0], "first")
    leader = cluster.led_by("orders", 0)
    cluster.away.add(leader.number)
    other = next(node for node in cluster.nodes if node is not leader)
    asked = Asked(other, "second")
    cluster.run(2)
    assert asked.answers == []
    cluster.away.clear()
    cluster.until(lambda: asked.answers)
    assert asked.is_made
    assert publish(cluster, b"a", 0)
    assert received(cluster, "second", 1) == [b"a"]


def test_a_partition_without_a_leader_is_named(cluster: JoinedCluster) -> None:
    """Two nodes of three are gone: what they led cannot confirm, and no partition commits."""
    leader = cluster.led_by("orders", 2)
    for node in cluster.nodes:
        if node is not leader:
            cluster.kill(node.number)
    asked = Asked(leader, "alone")
    took_s = cluster.until(lambda: asked.answers)
    assert 4.9 <= took_s <= 5.2
    assert isinstance(asked.error, ChannelUnconfirmed)
    assert asked.error.partitions == (0, 1, 2)
    assert "alone" in leader.broker.topics["orders"].channels


def test_one_that_is_made_again_is_younger_than_what_has_grown_meanwhile(
    cluster: JoinedCluster,
) -> None:
    """Its key is older than the partition."""
    make(cluster, cluster.nodes[0], "stays")
    make(cluster, cluster.nodes[0], "goes")
    delete(cluster, cluster.nodes[0], "goes")
    cluster.grow("orders", 4)
    assert publish(cluster, b"old", 3)
    make(cluster, cluster.nodes[0], "goes")
    assert publish(cluster, b"new", 3)
    assert received(cluster, "goes", 1) == [b"new"]
    assert received(cluster, "stays", 2) == [b"new", b"old"]


def test_what_is_not_there_is_not_found(cluster: JoinedCluster) -> None:
    for deletes in (False, True):
        answers: list[PenstockError | None] = []
        metadata = cluster.nodes[0].joined.hosting.metadata
        assert metadata is not None
        act = metadata.delete_channel if deletes else metadata.make_channel
        act("nothing", "c", answers.append)
        assert isinstance(answers[0], NotFound)
    assert isinstance(Asked(cluster.nodes[0], "nothing", deletes=True).error, NotFound)


def test_a_topic_that_is_deleted_while_a_channel_is_made(cluster: JoinedCluster) -> None:
    cluster.cut_off(0)
    asked = Asked(cluster.nodes[0], "lost")
    cluster.run(0.2)
    cluster.delete("orders")
    cluster.until(lambda: asked.answers, seconds=6)
    assert isinstance(asked.error, NotFound)


def test_partitions_that_are_skipped_at_two_nodes_at_once_are_both_skipped(
    cluster: JoinedCluster,
) -> None:
    make(cluster, cluster.nodes[0], "c")
    answers: list[PenstockError | None] = []
    for node, partition in zip(cluster.nodes[:2], (0, 2), strict=True):
        channel = node.broker.topics["orders"].channels["c"]
        skip(channel, lambda before, n=partition: before.begun(n, 3), answers.append)
    cluster.until(lambda: len(answers) == 2)
    assert answers == [None, None]
    cluster.run(1)
    for node in cluster.nodes:
        assert node.broker.topics["orders"].channels["c"].skips.chosen == [0, 2]
    skip(cluster.nodes[2].broker.topics["orders"].channels["c"], end_all, answers.append)
    cluster.until(lambda: len(answers) == 3)
    cluster.run(1)
    assert not any(node.broker.topics["orders"].channels["c"].skips.some for node in cluster.nodes)


def test_a_node_without_a_replica_makes_and_deletes_channels_too(cluster: JoinedCluster) -> None:
    place = place_of(cluster.nodes[0])
    wanted = cluster.wanted("alone", 1, replicas=1)
    cluster.do(creation(cluster.nodes[0].view, wanted, [place], cluster.new_replica))
    cluster.until(lambda: cluster.leader("alone") is cluster.nodes[0])
    node = cluster.nodes[1]
    assert "alone" not in node.broker.topics
    metadata = node.joined.hosting.metadata
    assert metadata is not None
    answers: list[PenstockError | None] = []
    metadata.make_channel("alone", "c", answers.append)
    cluster.until(lambda: answers, seconds=4)
    metadata.delete_channel("alone", "c", answers.append)
    cluster.until(lambda: len(answers) == 2, seconds=4)
    assert answers == [None, None]
    cluster.until(lambda: "c" not in cluster.nodes[0].broker.topics["alone"].channels)


def end_all(before: Skipped) -> Skipped:
    return before.ended(ANY, 3)
