"""Topics that are made at any node of a cluster, because a client wants them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from penstock.broker.ports import NewTopic
from penstock.cluster import keys
from penstock.cluster.documents import TOPIC, Topic
from penstock.errors import ChangeUnknown, PenstockError
from penstock.kernel import load
from penstock.limits import SECOND, TOPIC_MADE_NS
from penstock.sim.brokers.clients import Outcome
from penstock.sim.brokers.cluster import JoinedCluster
from penstock.sim.brokers.node import JoinedNode

TWO = NewTopic(2)  # partitions


@pytest.fixture
def cluster() -> Iterator[JoinedCluster]:
    kernel: SimpleNamespace = load("compiled")
    made = JoinedCluster(kernel)
    yield made
    made.close()


class Asked:
    """A topic that is wanted at one node, and what that one has answered."""

    def __init__(self, node: JoinedNode, wanted: NewTopic = TWO, name: str = "new") -> None:
        self.answers: list[PenstockError | None] = []
        metadata = node.joined.hosting.metadata
        assert metadata is not None
        metadata.make_topic(name, wanted, self.answers.append)

    @property
    def error(self) -> PenstockError:
        (error,) = self.answers
        assert error is not None
        return error


def document(cluster: JoinedCluster, name: str = "new") -> Topic:
    entry = cluster.store.entries[keys.topic(name)]
    return TOPIC.decode(entry.key, entry.value)


def test_it_is_led_everywhere_when_the_client_is_answered(cluster: JoinedCluster) -> None:
    asked = Asked(cluster.nodes[1], NewTopic(3))
    cluster.until(lambda: asked.answers)
    assert asked.answers == [None]
    leaders = [cluster.led_by("new", number) for number in range(3)]
    assert len({leader.number for leader in leaders}) == 3  # spread over the nodes
    for number, leader in enumerate(leaders):
        outcome = Outcome()
        leader.broker.topics["new"].publish([b"m"], 0, outcome, number)
        cluster.until(lambda outcome=outcome: outcome.told)
        assert outcome.stored
        assert len(cluster.record("new", number).members) == 3


def test_the_settings_are_those_that_were_wanted(cluster: JoinedCluster) -> None:
    cluster.make("source", replicas=2)
    asked = Asked(cluster.nodes[0], NewTopic(1, extended=True, registered=True, like="source"))
    cluster.until(lambda: asked.answers)
    made = document(cluster)
    assert (made.replicas, made.hash_partitions) == (2, 1)
    topic = next(node.broker.topics["new"] for node in cluster.up() if "new" in node.broker.topics)
    assert (topic.extended, topic.settings.disable_channel_auto_create) == (True, True)
    assert topic.created_ns > 0


def test_nodes_that_want_it_at_once_get_the_same(cluster: JoinedCluster) -> None:
    asked = [Asked(node) for node in cluster.nodes for _ in range(2)]
    cluster.until(lambda: all(one.answers for one in asked))
    assert [one.answers for one in asked] == [[None]] * 6
    identities = {node.broker.topics["new"].identity for node in cluster.nodes}
    assert len(identities) == 1


def test_one_that_is_there_costs_nothing(cluster: JoinedCluster) -> None:
    cluster.make("new", partitions=1)
    cluster.run(2)
    cluster.away.update(range(3))
    before = document(cluster)
    for node in cluster.nodes:
        assert Asked(node).answers == [None]
    assert document(cluster) == before


def test_while_the_coordinator_is_away_it_is_not_known(cluster: JoinedCluster) -> None:
    node = cluster.nodes[0]
    cluster.away.add(0)
    asked = Asked(node)
    cluster.run(TOPIC_MADE_NS / SECOND - 1)
    assert asked.answers == []
    cluster.run(3)
    assert isinstance(asked.error, ChangeUnknown)
    assert "may be made or not, ask again" in str(asked.error)
    cluster.away.clear()
    again = Asked(node)
    cluster.until(lambda: again.answers)
    assert again.answers == [None]


def test_it_goes_to_nodes_that_live(cluster: JoinedCluster) -> None:
    cluster.kill(2)
    cluster.until(lambda: all(2 not in node.view.nodes for node in cluster.up()))
    asked = Asked(cluster.nodes[0], NewTopic(1))
    cluster.until(lambda: asked.answers)
    assert asked.answers == [None]
    assert {member.node for member in cluster.record("new").members} == {0, 1}


def test_the_name_of_a_deleted_topic_is_free_when_all_have_let_it_go(
    cluster: JoinedCluster,
) -> None:
    cluster.make("new", partitions=1)
    cluster.publish("new", b"of the first life")
    before = document(cluster).identity
    cluster.delete("new")
    asked = Asked(cluster.nodes[2])
    cluster.until(lambda: asked.answers)
    assert asked.answers == [None]
    assert document(cluster).identity != before


def test_what_no_node_takes_is_answered_with_the_reason(cluster: JoinedCluster) -> None:
    cluster.make("new", partitions=1)
    cluster.kill(1)
    cluster.kill(2)
    cluster.delete("new")  # two nodes can't confirm it
    asked = Asked(cluster.nodes[0])
    cluster.run(TOPIC_MADE_NS / SECOND + 1)
    assert "topic new is being deleted" in str(asked.error)
