"""Topics that are made at any node of a cluster, because a client wants them."""

from typing import Any

from penstock.broker.ports import NewTopic
from penstock.cluster import keys
from penstock.cluster.documents import TOPIC, Topic
from penstock.errors import ChangeUnknown, GrowthRefused, NotFound, PenstockError, Refused
from penstock.limits import ATTEMPT_NS, SECOND
from sim.brokers.clients import Outcome
from sim.brokers.cluster import JoinedCluster
from sim.brokers.node import JoinedNode

TWO = NewTopic(2)  # partitions


def ask(node: JoinedNode, verb: str, *wanted: Any) -> list[PenstockError | None]:
    """Of the topic `new` at one node: `make_topic`, `grow_topic` or `delete_topic`. What it has
    answered."""
    answers: list[PenstockError | None] = []
    getattr(node.cluster_node.replica_host.metadata, verb)("new", *wanted, answers.append)
    return answers


def document(cluster: JoinedCluster, name: str = "new") -> Topic:
    entry = cluster.store.entries[keys.topic(name)]
    return TOPIC.decode(entry.key, entry.value)


def test_all_partitions_have_leaders_when_the_client_is_answered(cluster: JoinedCluster) -> None:
    asked = ask(cluster.nodes[1], "make_topic", NewTopic(3))
    cluster.until(lambda: asked)
    assert asked == [None]
    leaders = [cluster.led_by("new", number) for number in range(3)]
    assert len({leader.number for leader in leaders}) == 3  # spread over the nodes
    for number, leader in enumerate(leaders):
        outcome = Outcome()
        leader.broker.topics["new"].publish([b"m"], 0, outcome, number)
        cluster.until(lambda outcome=outcome: outcome.answers)
        assert outcome.stored
        assert len(cluster.record("new", number).members) == 3


def test_an_unreachable_coordinator_makes_the_outcome_unknown(cluster: JoinedCluster) -> None:
    node = cluster.nodes[0]
    cluster.away.add(0)
    asked = ask(node, "make_topic", TWO)
    cluster.run(ATTEMPT_NS / SECOND - 1)
    assert asked == []
    cluster.run(3)
    (error,) = asked
    assert isinstance(error, ChangeUnknown)
    assert "the outcome is unknown, ask again" in str(error)
    cluster.away.clear()
    again = ask(node, "make_topic", TWO)
    cluster.until(lambda: again)
    assert again == [None]


def test_a_failed_creation_reports_its_reason(cluster: JoinedCluster) -> None:
    cluster.make("new", partitions=1)
    cluster.kill(1)
    cluster.kill(2)
    cluster.delete("new")  # two nodes can't confirm it
    asked = ask(cluster.nodes[0], "make_topic", TWO)
    cluster.run(ATTEMPT_NS / SECOND + 1)
    (error,) = asked
    assert isinstance(error, Refused)  # known: it is not made
    assert str(error) == (
        "topic new is being deleted, and nodes 1, 2 are down: start or remove what is down"
    )


# --- more partitions ---


def test_any_node_adds_partitions(cluster: JoinedCluster) -> None:
    cluster.make("new", partitions=1)
    cluster.publish("new", b"before")
    grown = ask(cluster.nodes[2], "grow_topic", 4)
    cluster.until(lambda: grown)
    assert grown == [None]
    assert {cluster.led_by("new", number).number for number in range(4)} == {0, 1, 2}
    assert [node.broker.topics["new"].partition_count for node in cluster.nodes] == [4, 4, 4]
    assert document(cluster).hash_partitions == 1


def test_a_topic_never_gets_fewer(cluster: JoinedCluster) -> None:
    cluster.make("new", partitions=2)
    (error,) = ask(cluster.nodes[0], "grow_topic", 1)
    assert isinstance(error, GrowthRefused)
    assert "new has 2 partitions, not 1" in str(error)
    same = ask(cluster.nodes[0], "grow_topic", 2)
    cluster.until(lambda: same)
    assert same == [None]


# --- its end ---


def test_a_deleted_topic_is_removed_everywhere_and_its_name_is_free(cluster: JoinedCluster) -> None:
    cluster.make("new", partitions=3)
    cluster.make_channel("new", "c")
    cluster.publish("new", b"of the first life")
    gone = ask(cluster.nodes[1], "delete_topic")
    cluster.until(lambda: gone)
    assert gone == [None]
    cluster.run(2)
    assert not any("new" in node.broker.topics for node in cluster.nodes)
    left = list(cluster.store.entries_of(keys.PARTITIONS + "new/"))
    assert left == []
    asked = ask(cluster.nodes[0], "make_topic", TWO)
    cluster.until(lambda: asked)
    assert asked == [None]
    assert cluster.led_by("new").broker.topics["new"].leader().log.written_end == 0


def test_deleting_an_unknown_topic_fails(cluster: JoinedCluster) -> None:
    (error,) = ask(cluster.nodes[0], "delete_topic")
    assert isinstance(error, NotFound)
    asked = ask(cluster.nodes[0], "make_topic", TWO)
    cluster.until(lambda: asked)
    first, second = ask(cluster.nodes[0], "delete_topic"), ask(cluster.nodes[1], "delete_topic")
    cluster.until(lambda: first and second)
    assert (first, second) == ([None], [None])  # both wanted the same end


def test_a_deletion_is_answered_while_a_node_is_away(cluster: JoinedCluster) -> None:
    cluster.make("new", partitions=1)
    cluster.kill(2)
    cluster.until(lambda: all(2 not in node.view.nodes for node in cluster.up()))
    gone = ask(cluster.nodes[0], "delete_topic")
    cluster.until(lambda: gone)
    assert gone == [None]
    cluster.start(2)
    cluster.until(lambda: "new" not in cluster.nodes[2].broker.topics)


# --- its keys over all partitions ---


def rehash(cluster: JoinedCluster, partitions: int, number: int = 2) -> PenstockError | None:
    asked = ask(cluster.nodes[number], "rehash_topic", partitions)
    cluster.until(lambda: asked)
    return asked[0]


def put(cluster: JoinedCluster, number: int, partition: int) -> PenstockError | None:
    """The answer to a publish at this node."""
    outcome = Outcome()
    try:
        cluster.nodes[number].broker.topics["new"].publish([b"m"], 0, outcome, partition)
    except Refused as error:
        return error
    cluster.until(lambda: outcome.answers)
    return outcome.answers[0]


def locked(cluster: JoinedCluster) -> bool:
    return keys.rehash("new") in cluster.store.entries


def test_keys_are_rehashed_once_nothing_is_left(cluster: JoinedCluster) -> None:
    cluster.make("new", partitions=2)
    cluster.make_channel("new", "billing")
    cluster.run(1)
    before = document(cluster)
    cluster.publish("new", b"m")
    error = rehash(cluster, 5)  # nobody comes for it in time
    assert isinstance(error, GrowthRefused)
    assert "channel billing of topic new has 1 messages" in str(error)
    cluster.until(lambda: not locked(cluster))
    assert document(cluster) == before
    consumers = [node.consume("new", "billing") for node in cluster.nodes]
    cluster.until(lambda: any(one.take() for one in consumers))
    for consumer in consumers:
        consumer.finish(*consumer.received)
    assert rehash(cluster, 5) is None
    after = document(cluster)
    assert (after.hash_partitions, dict(after.settings)["producer_partitions"]) == (5, 2)
    cluster.until(lambda: all(shape(node) == (5, 2, "") for node in cluster.nodes))
    assert not locked(cluster)
    assert [put(cluster, number, 3) for number in range(3)] == [None] * 3


def shape(node: JoinedNode) -> tuple[int, int, str]:
    topic = node.broker.topics["new"]
    return topic.hash_partitions, topic.producer_partitions, topic.refusal


def test_nobody_publishes_while_a_leader_has_not_heard_of_a_rehash(cluster: JoinedCluster) -> None:
    """It is called off in time, and nothing has changed."""
    cluster.make("new", partitions=3)
    asked = ask(cluster.nodes[0], "rehash_topic", 3)  # as many as now: nothing to do
    cluster.until(lambda: asked)
    cluster.grow("new", 4)
    deaf = cluster.led_by("new", 3)
    asking = (deaf.number + 1) % 3
    asked = ask(cluster.nodes[asking], "rehash_topic", 4)
    cluster.until(lambda: locked(cluster))
    cluster.slow.add(deaf.number)
    cluster.run(0.2)
    refused = str(put(cluster, asking, 0))
    assert "the keys of the topic are being rehashed" in refused
    cluster.until(lambda: asked)
    assert "not all leaders of the topic have answered" in str(asked[0])
    cluster.slow.clear()
    cluster.until(lambda: not locked(cluster))
    cluster.run(1)
    assert document(cluster).hash_partitions == 3
    assert [put(cluster, number, 3) for number in range(3)] == [None] * 3


def test_a_node_that_dies_within_a_rehash_leaves_the_topic_as_it_was(
    cluster: JoinedCluster,
) -> None:
    cluster.make("new", partitions=1)
    cluster.grow("new", 2)
    ask(cluster.nodes[2], "rehash_topic", 2)
    cluster.until(lambda: locked(cluster))
    cluster.kill(2)
    cluster.until(lambda: not locked(cluster))
    cluster.run(3)
    assert document(cluster).hash_partitions == 1
    assert rehash(cluster, 2, number=1) is None


def test_a_node_that_missed_a_rehash_publishes_nothing_by_the_old_number(
    cluster: JoinedCluster,
) -> None:
    cluster.make("new", partitions=1, replicas=1)
    cluster.grow("new", 2)
    led = {cluster.led_by("new", number).number for number in range(2)}
    behind = next(number for number in range(3) if number not in led)
    cluster.nodes[behind].broker.replica_host.remote_topic("new")
    cluster.slow.add(behind)
    assert rehash(cluster, 2, number=min(led)) is None
    cluster.run(1)
    assert "the keys of the topic were rehashed" in str(put(cluster, behind, 0))
    cluster.slow.clear()
    cluster.run(1)
    assert put(cluster, behind, 0) is None


def test_the_nodes_share_a_bound_on_the_depth(cluster: JoinedCluster) -> None:
    cluster.make("new", partitions=3, max_depth=30)
    cluster.make_channel("new", "c")
    cluster.run(1)
    answers = [[put(cluster, 0, number) for _ in range(11)] for number in range(3)]
    assert [one.count(None) for one in answers] == [10, 10, 10]
    assert all("depth limit of 30 messages" in str(one[-1]) for one in answers)
