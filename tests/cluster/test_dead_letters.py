"""Dead letters of a cluster's topics: their topic is of the cluster, too, and may be led by another
node than the channel's partition."""

from collections.abc import Iterator

import pytest

from broker.world import bodies
from penstock import kernel
from penstock.broker.changes import skip
from penstock.broker.channels.dead_letter import origin
from penstock.broker.channels.skips import ANY
from penstock.cluster.creation import creation
from penstock.errors import ChannelUnconfirmed, NotFound, PenstockError, Refused
from penstock.log.messages import MessageReader
from sim.brokers.clients import Outcome
from sim.brokers.cluster import JoinedCluster, placement_node
from sim.brokers.node import JoinedNode

DEAD = "orders.billing.dead"


@pytest.fixture
def cluster() -> Iterator[JoinedCluster]:
    made = JoinedCluster(kernel)
    made.make("orders", durability="disk")
    made.make_channel("orders", "billing", max_attempts=1)
    yield made
    made.close()


def give_up(cluster: JoinedCluster, *wanted: bytes, partition: int = 0) -> None:
    """These messages are sent once, and come back."""
    leader = cluster.led_by("orders", partition)
    leader.broker.topics["orders"].publish([*wanted], 0, Outcome(), partition)
    consumer = leader.consume("orders", "billing")
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
    reader = MessageReader(topic.leader().log)
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


def with_another_leader(cluster: JoinedCluster) -> tuple[JoinedNode, int]:
    """The first message is a letter; by an operator's wish their topic is led by another node then.
    Who leads the channel's partition, and the number of that other one."""
    give_up(cluster, b"first")
    arrive(cluster, b"first")
    here = cluster.led_by("orders")
    other = (here.number + 1) % 3
    cluster.want(DEAD, 0, (other, here.number, (here.number + 2) % 3))
    cluster.until(lambda: cluster.leader(DEAD) is cluster.nodes[other])
    return here, other


@pytest.mark.parametrize("size", [10, 700_000])  # one frame, and several pieces
def test_the_leader_of_their_topic_may_be_another_node(cluster: JoinedCluster, size: int) -> None:
    with_another_leader(cluster)
    give_up(cluster, b"x" * size, b"second")
    arrive(cluster, b"first", b"x" * size, b"second")


def make_on(cluster: JoinedCluster, node: int, name: str) -> None:
    """A topic that has one replica."""
    here = placement_node(cluster.nodes[node])
    wanted = cluster.wanted(1, replicas=1)
    cluster.do(creation(cluster.nodes[node].view, name, wanted, [here], cluster.new_replica))
    cluster.until(lambda: cluster.leader(name) is cluster.nodes[node])


def test_the_dead_letter_topic_needs_no_local_partition(cluster: JoinedCluster) -> None:
    make_on(cluster, 0, "small")
    cluster.make_channel("small", "only", max_attempts=1, dead_letter_topic="elsewhere")
    cluster.make_channel("small", "other")
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
    there, counts = cluster.nodes[1].broker, list[int]()
    channel = there.replica_host.remote_topic("small").channels["only"]
    there.dead_letters.redrive(channel, 0, lambda count, _: counts.append(count))
    cluster.until(lambda: counts == [1])
    channels = cluster.nodes[0].broker.topics["small"].channels
    assert (channels["only"].unfinished, channels["other"].unfinished) == (1, 1)
    assert not there.topics["elsewhere"].channels["redrive"].unfinished


def test_while_their_leader_cannot_be_reached_they_wait_and_nothing_is_lost(
    cluster: JoinedCluster,
) -> None:
    here, other = with_another_leader(cluster)
    cluster.cut_between(here.number, other)
    give_up(cluster, b"second")
    cluster.run(3)
    assert unfinished(cluster) == 1
    assert "messages wait for the dead-letter topic" in here.broker.health
    cluster.heal()
    cluster.until(lambda: b"second" in letters(cluster) and not unfinished(cluster))
    assert "dead-letter" not in here.broker.health


def test_a_lost_answer_duplicates_a_dead_letter_and_never_loses_one(cluster: JoinedCluster) -> None:
    _, other = with_another_leader(cluster)
    give_up(cluster, b"second")
    cluster.kill(other, power=True)
    cluster.until(lambda: b"second" in letters(cluster) and not unfinished(cluster), 60)
    assert letters(cluster).count(b"second") <= 2
    assert letters(cluster).count(b"first") == 1


def test_a_redrive_without_local_dead_letters_is_refused(cluster: JoinedCluster) -> None:
    give_up(cluster, b"one")
    arrive(cluster, b"one")
    other = cluster.nodes[(cluster.led_by(DEAD).number + 1) % 3].broker
    channel = other.topics["orders"].channels["billing"]
    for _ in range(2):
        with pytest.raises(Refused, match=f"no partition of topic {DEAD} is led by this node"):
            other.dead_letters.redrive(channel, 0, lambda count, error: None)


def test_a_redrive_stays_where_other_channels_can_step_over_it(world: JoinedCluster) -> None:
    for name, attempts in ("billing", 1), ("other", 0):
        world.make_channel("orders", name, max_attempts=attempts)
    for number in range(3):
        give_up(world, b"%d" % number, partition=number)
    arrive(world, b"0", b"1", b"2")
    node, counts = world.led_by(DEAD), list[int]()
    channels = node.broker.topics["orders"].channels
    node.broker.dead_letters.redrive(channels["billing"], 0, lambda count, _: counts.append(count))
    world.until(lambda: counts == [3] and channels["billing"].unfinished == 3)
    leaders = {world.led_by("orders", number) for number in range(3)}
    assert sum(one.broker.topics["orders"].channels["other"].unfinished for one in leaders) == 3


# --- channels that clients make and delete, at any node of a cluster ---


@pytest.fixture
def world() -> Iterator[JoinedCluster]:
    made = JoinedCluster(kernel)
    made.make("orders", partitions=3)
    yield made
    made.close()


class Asked:
    """A client's wish at one node, and what it was answered."""

    def __init__(
        self, node: JoinedNode, channel: str, deletes: bool = False, topic: str = "orders"
    ) -> None:
        self.answers: list[PenstockError | None] = []
        metadata = node.cluster_node.replica_host.metadata
        assert metadata is not None
        act = metadata.delete_channel if deletes else metadata.make_channel
        act(topic, channel, self.answers.append)

    @property
    def is_made(self) -> bool:
        return self.answers == [None]

    @property
    def error(self) -> PenstockError:
        (error,) = self.answers
        assert error is not None
        return error


def make(world: JoinedCluster, node: JoinedNode, channel: str, deletes: bool = False) -> None:
    asked = Asked(node, channel, deletes)
    world.until(lambda: asked.answers)
    assert asked.is_made, asked.answers


def publish(world: JoinedCluster, body: bytes, partition: int) -> bool:
    """Is it stored? Asked at the partition's leader."""
    world.until(lambda: world.leader("orders", partition))
    leader, outcome = world.led_by("orders", partition), Outcome()
    leader.broker.topics["orders"].publish([body], 0, outcome, partition)
    leader.turn()
    world.until(lambda: outcome.answers or not leader.is_up)
    return outcome.stored


def received(world: JoinedCluster, channel: str, count: int) -> list[bytes]:
    """What comes out of a channel, from whichever nodes lead, in the end."""
    found: set[bytes] = set()
    world.until(lambda: all(world.has_channel(node, "orders", channel) for node in world.up()))
    consumers = [node.consume("orders", channel) for node in world.up()]

    def all_came() -> bool:
        for consumer in consumers:
            messages = consumer.take()
            found.update(bodies(messages))
            consumer.finish(*messages)
        return len(found) >= count

    world.until(all_came)
    return sorted(found)


def test_a_known_channel_costs_no_wait_though_the_coordinator_is_away(world: JoinedCluster) -> None:
    make(world, world.nodes[0], "known")
    world.away.update(range(3))
    assert Asked(world.nodes[0], "known").is_made
    elsewhere = Asked(world.nodes[1], "known")  # which asks the leaders once
    world.until(lambda: elsewhere.answers)
    assert elsewhere.is_made
    assert Asked(world.nodes[1], "known").is_made


def test_a_leader_that_does_not_know_it_yet_is_waited_for(world: JoinedCluster) -> None:
    """It would begin the channel behind what it acknowledges meanwhile."""
    make(world, world.nodes[0], "first")
    leader = world.led_by("orders", 0)
    world.away.add(leader.number)
    other = next(node for node in world.nodes if node is not leader)
    asked = Asked(other, "second")
    world.run(2)
    assert asked.answers == []
    world.away.clear()
    world.until(lambda: asked.answers)
    assert asked.is_made
    assert publish(world, b"a", 0)
    assert received(world, "second", 1) == [b"a"]


def test_a_partition_without_a_leader_is_named(world: JoinedCluster) -> None:
    """Two nodes of three are gone: what they led cannot confirm, and no partition commits."""
    leader = world.led_by("orders", 2)
    for node in world.nodes:
        if node is not leader:
            world.kill(node.number)
    asked = Asked(leader, "alone")
    took_s = world.until(lambda: asked.answers)
    assert 4.9 <= took_s <= 5.2
    assert isinstance(asked.error, ChannelUnconfirmed)
    assert asked.error.partitions == (0, 1, 2)
    assert "alone" in leader.broker.topics["orders"].channels


def test_a_recreated_channel_is_younger_than_added_partitions(world: JoinedCluster) -> None:
    """Its key is older than the partition."""
    make(world, world.nodes[0], "stays")
    make(world, world.nodes[0], "goes")
    make(world, world.nodes[0], "goes", deletes=True)
    world.grow("orders", 4)
    assert publish(world, b"old", 3)
    make(world, world.nodes[0], "goes")
    assert publish(world, b"new", 3)
    assert received(world, "goes", 1) == [b"new"]
    assert received(world, "stays", 2) == [b"new", b"old"]


def test_unknown_topics_and_channels_are_not_found(world: JoinedCluster) -> None:
    for channel, deletes, topic in (("c", False, "nothing"), ("c", True, "nothing"),
                                    ("nothing", True, "orders")):  # fmt: skip
        assert isinstance(Asked(world.nodes[0], channel, deletes, topic).error, NotFound)


def test_a_topic_that_is_deleted_while_a_channel_is_made(world: JoinedCluster) -> None:
    world.cut_off(0)
    asked = Asked(world.nodes[0], "lost")
    world.run(0.2)
    world.delete("orders")
    world.until(lambda: asked.answers, seconds=6)
    assert isinstance(asked.error, NotFound)


def test_partitions_that_are_skipped_at_two_nodes_at_once_are_both_skipped(
    world: JoinedCluster,
) -> None:
    make(world, world.nodes[0], "c")
    answers: list[PenstockError | None] = []
    for node, partition in zip(world.nodes[:2], (0, 2), strict=True):
        channel = node.broker.topics["orders"].channels["c"]
        skip(channel, lambda before, n=partition: before.begun(n, 3), answers.append)
    world.until(lambda: len(answers) == 2)
    assert answers == [None, None]
    world.run(1)
    for node in world.nodes:
        assert node.broker.topics["orders"].channels["c"].skips.state.chosen == {0, 2}
    channel = world.nodes[2].broker.topics["orders"].channels["c"]
    skip(channel, lambda before: before.ended(ANY, 3), answers.append)
    world.until(lambda: len(answers) == 3)
    world.run(1)
    channels = [node.broker.topics["orders"].channels["c"] for node in world.nodes]
    assert not any(channel.skips.state.some for channel in channels)
