"""Channels that keep an order: the setting, its incarnation, and messages that hold it up."""

from typing import Any

import pytest

from penstock import limits
from penstock.broker.channels import operator
from penstock.broker.topics.settings import ChannelOrder, ChannelSettings
from penstock.broker.topics.topic_file import ChannelEntry
from penstock.kernel import Section
from sim.disk import Fault

from ..replicas.cluster_world import BILLING, Cluster, ClusterChannel
from ..world import Consumer, World, bodies

SECOND = limits.SECOND


def ordered(world: World, order: str, **settings: Any) -> Any:
    channel = world.broker.topic("t").channel("ch")
    channel.configure({"order": order, **settings})
    return channel


def say(world: World, words: str) -> None:
    """The first letter is the key."""
    tail = world.broker.topic("t").leader(0).tail
    for word in words.split():
        tail.append(word.encode(), 0, {Section.KEY: word[:1].encode()})
    world.turns()


def heard(consumer: Any) -> list[str]:
    return [message.body.decode() for message in consumer.take()]


@pytest.mark.parametrize("order", ["key", "strict"])
def test_or_is_held_and_nothing_overtakes_it(world: World, order: str) -> None:
    channel = ordered(world, order, max_attempts=1, poison="hold")
    consumer = world.consumer("t", "ch")
    say(world, "a1 a2")
    (poison,) = consumer.take()
    consumer.requeue(poison)
    assert heard(consumer) == []
    assert (channel.held, channel.dead_letter_count) == (1, 0)
    place = f"id {poison.id.decode()} at offset 0 of partition 0"
    text = f"topic t: messages have used their attempts and are held: 1 in channel ch ({place})"
    assert world.broker.health == f"OK - warning: {text}"
    world = world.killed()
    channel = world.channel("t", "ch")
    consumer = world.consumer("t", "ch")
    assert (heard(consumer), channel.held) == ([], 1)
    assert world.broker.healthy
    operator.finish(channel, int(poison.id, 16))
    assert (heard(consumer), channel.held) == (["a2"], 0)
    world.pass_ns(SECOND)
    assert world.broker.health == "OK"


# --- strictly ordered channels of a partition of several replicas, whoever leads it ---


def strictly_ordered() -> Cluster:
    old, settings = BILLING.entry, ChannelSettings(order=ChannelOrder.STRICT)
    entry = ChannelEntry(old.name, old.number, old.created_ns, False, settings)
    cluster = Cluster(channels=[ClusterChannel(entry, BILLING.partitions_then)])
    cluster.place([0])
    return cluster


def take(cluster: Cluster, consumer: Consumer) -> list[bytes]:
    cluster.run()
    return bodies(consumer.take())


def test_the_next_message_waits_until_the_fin_is_replicated() -> None:
    cluster = strictly_ordered()
    cluster.publish(0, b"1", b"2", b"3")
    consumer = cluster.nodes[0].consume()
    assert take(cluster, consumer) == [b"1"]
    cluster.cut.add(2)
    consumer.finish(consumer.received[-1])
    assert take(cluster, consumer) == []
    cluster.cut.clear()
    cluster.unlink(cluster.nodes[2])
    cluster.link(cluster.nodes[2])
    assert take(cluster, consumer) == [b"2"]


def test_only_the_last_unfinished_message_may_be_redelivered() -> None:
    """The leader ends between any two steps; of what a consumer has seen, only the last one, which
    was not finished, may come again."""
    for steps in range(12):
        cluster = strictly_ordered()
        cluster.publish(0, b"1", b"2", b"3", b"4")
        consumer, seen = cluster.nodes[0].consume(), list[bytes]()
        for _ in range(steps):
            consumer.finish(*consumer.received[len(seen) :])
            seen = bodies(consumer.received)
            consumer.take()
            deliver_some(cluster)
        consumer.finish(*consumer.received[len(seen) :])
        consumer.take()
        seen = bodies(consumer.received)
        cluster.kill(0)
        cluster.elect(1, gone=[0])
        again = take(cluster, cluster.nodes[1].consume())
        for body in again:
            assert not seen or body >= max(seen), (steps, seen, again)
        for node in cluster.up():
            node.engine.close()


def deliver_some(cluster: Cluster) -> None:
    """What is on its way arrives, and no answer is on its way yet."""
    sent, cluster.sent = cluster.sent, []
    for one in sent:
        cluster._deliver(*one)
    for node in cluster.nodes[1:]:
        node.turn()


def test_the_next_message_waits_for_a_fin_that_failed_to_write() -> None:
    cluster = strictly_ordered()
    cluster.publish(0, b"1", b"2")
    consumer = cluster.nodes[0].consume()
    assert take(cluster, consumer) == [b"1"]
    cluster.nodes[0].disk.inject(Fault("write", path_part="channels."))
    consumer.finish(consumer.received[-1])
    assert take(cluster, consumer) == []
    cluster.pass_ns(limits.SECOND)
    assert take(cluster, consumer) == [b"2"]
