"""Dead letters of a cluster's topics: their topic is of the cluster, too, and may be led by another
node than the channel's partition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import kernel
from penstock.broker.letters import origin
from penstock.broker.stored import Reader
from penstock.cluster.creation import creation
from penstock.errors import Refused
from sim.brokers.cluster import JoinedCluster, place_of
from sim.brokers.node import JoinedNode

DEAD = "orders.billing.dead"


@pytest.fixture
def cluster() -> Iterator[JoinedCluster]:
    made = JoinedCluster(kernel)
    made.make("orders", durability="disk")
    made.make_channel("orders", "billing", max_attempts=1)
    yield made
    made.close()


def lead_from(cluster: JoinedCluster, name: str, node: int) -> None:
    """As an operator's wish: that node is the first one."""
    others = tuple(number for number in range(3) if number != node)
    cluster.want(name, 0, (node, *others))
    cluster.until(lambda: cluster.leader(name) is cluster.nodes[node])


def give_up(cluster: JoinedCluster, *wanted: bytes) -> None:
    """These messages are sent once, and come back."""
    cluster.publish("orders", *wanted)
    consumer = cluster.led_by("orders").consume("orders", "billing")
    left = set(wanted)

    def all_came() -> bool:
        for message in consumer.take():
            left.discard(message.body)
            consumer.requeue(message)
        return not left

    cluster.until(all_came)
    consumer.leave()


def letters(cluster: JoinedCluster) -> list[bytes]:
    """What the dead-letter topic has, by its leader."""
    if cluster.leader(DEAD) is None:
        return []
    topic = cluster.led_by(DEAD).broker.topics[DEAD]
    reader = Reader(topic.leader().log)
    found = [reader.read(offset) for offset in range(topic.leader().tail.committed_end)]
    for stored in found:
        known = origin(stored)
        assert known is not None
        assert (known.topic, known.channel, known.attempts) == ("orders", "billing", 1)
    return [stored.body for stored in found]


def unfinished(cluster: JoinedCluster) -> int:
    return cluster.led_by("orders").broker.topics["orders"].channels["billing"].unfinished


def arrive(cluster: JoinedCluster, *wanted: bytes) -> None:
    cluster.until(lambda: sorted(letters(cluster)) == sorted(wanted) and not unfinished(cluster))


@pytest.mark.parametrize("size", [10, 700_000])  # one frame, and several pieces
def test_the_leader_of_their_topic_may_be_another_node(cluster: JoinedCluster, size: int) -> None:
    give_up(cluster, b"first")
    arrive(cluster, b"first")
    leader = cluster.led_by("orders").number
    lead_from(cluster, DEAD, (leader + 1) % 3)
    give_up(cluster, b"x" * size, b"second")
    arrive(cluster, b"first", b"x" * size, b"second")


def make_on(cluster: JoinedCluster, node: int, name: str) -> None:
    """A topic that has one replica."""
    place = place_of(cluster.nodes[node])
    wanted = cluster.wanted(name, 1, replicas=1)
    cluster.do(creation(cluster.nodes[node].view, wanted, [place], cluster.new_replica))
    cluster.until(lambda: cluster.leader(name) is cluster.nodes[node])


def test_no_partition_of_it_needs_to_be_here(cluster: JoinedCluster) -> None:
    make_on(cluster, 0, "small")
    cluster.make_channel("small", "only", max_attempts=1, dead_letter_topic="elsewhere")
    make_on(cluster, 1, "elsewhere")
    assert "elsewhere" not in cluster.nodes[0].broker.topics
    cluster.publish("small", b"m")
    consumer = cluster.led_by("small").consume("small", "only")
    cluster.until(lambda: [consumer.requeue(message) for message in consumer.take()])
    consumer.leave()

    def is_there() -> bool:
        topic = cluster.led_by("elsewhere").broker.topics["elsewhere"]
        return bool(topic.leader().tail.committed_end == 1)

    cluster.until(is_there)


def test_while_their_leader_cannot_be_reached_they_wait_and_nothing_is_lost(
    cluster: JoinedCluster,
) -> None:
    give_up(cluster, b"first")
    arrive(cluster, b"first")
    here: JoinedNode = cluster.led_by("orders")
    other = (here.number + 1) % 3
    lead_from(cluster, DEAD, other)
    cluster.cut_between(here.number, other)
    give_up(cluster, b"second")
    cluster.run(3)
    assert unfinished(cluster) == 1
    assert "messages wait for the dead-letter topic" in here.broker.health
    cluster.heal()
    cluster.until(lambda: b"second" in letters(cluster) and not unfinished(cluster))
    assert "dead-letter" not in here.broker.health


def test_an_answer_that_is_lost_may_bring_a_second_letter_and_never_none(
    cluster: JoinedCluster,
) -> None:
    give_up(cluster, b"first")
    arrive(cluster, b"first")
    here = cluster.led_by("orders")
    other = (here.number + 1) % 3
    lead_from(cluster, DEAD, other)
    give_up(cluster, b"second")
    cluster.kill(other, power=True)
    cluster.until(lambda: b"second" in letters(cluster) and not unfinished(cluster), 60)
    assert letters(cluster).count(b"second") <= 2
    assert letters(cluster).count(b"first") == 1


def test_a_redrive_where_no_letters_are_led_is_refused_each_time(cluster: JoinedCluster) -> None:
    give_up(cluster, b"one")
    arrive(cluster, b"one")
    other = cluster.nodes[(cluster.led_by(DEAD).number + 1) % 3].broker
    channel = other.topics["orders"].channels["billing"]
    for _ in range(2):
        with pytest.raises(Refused, match=f"no partition of topic {DEAD} is led by this node"):
            other.redrive(channel, 0, lambda count, error: None)
