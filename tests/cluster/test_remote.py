"""A topic that has no replica on a node: publishes are taken there and handed on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.world import Outcome
from nsqd.asked import topic_maker
from penstock import kernel
from penstock.broker.topic import Topic
from penstock.errors import PenstockError, PublishUnknown, Refused
from sim.brokers.cluster import JoinedCluster, JoinedNode


@pytest.fixture
def cluster() -> Iterator[JoinedCluster]:
    made = JoinedCluster(kernel)
    yield made
    made.close()


def elsewhere(cluster: JoinedCluster, topic: str) -> JoinedNode:
    return next(node for node in cluster.nodes if topic not in node.broker.topics)


def found(cluster: JoinedCluster, node: JoinedNode, name: str) -> Topic:
    heard: list[Topic | PenstockError] = []
    topic_maker(node).topic(name, heard.append)
    cluster.until(lambda: heard)
    assert isinstance(heard[0], Topic)
    return heard[0]


def test_a_publish_goes_to_the_leader_and_comes_back_answered(cluster: JoinedCluster) -> None:
    cluster.make("solo", replicas=1)
    node = elsewhere(cluster, "solo")
    topic = found(cluster, node, "solo")
    assert (topic.leaders, sorted(topic.outboxes)) == ([], [0])
    outcome = Outcome()
    topic.publish([b"one", b"two"], 0, outcome)
    cluster.until(lambda: outcome.told)
    assert outcome.told == [None]
    assert cluster.led_by("solo").broker.topics["solo"].leaders[0].log.written_end == 2
    assert not node.broker.path or "solo" not in node.disk.listdir(f"{node.broker.path}/topics")


def test_it_goes_with_the_topic(cluster: JoinedCluster) -> None:
    cluster.make("solo", replicas=1)
    node = elsewhere(cluster, "solo")
    found(cluster, node, "solo")
    cluster.delete("solo")
    cluster.until(lambda: "solo" not in node.broker.topics)


def test_what_is_on_its_way_when_the_topic_goes_may_be_stored(cluster: JoinedCluster) -> None:
    cluster.make("solo", replicas=1)
    node = elsewhere(cluster, "solo")
    topic = found(cluster, node, "solo")
    sent, gathered = Outcome(), Outcome()
    topic.publish([b"one"], 0, sent)
    topic.outboxes[0].write(0)
    topic.publish([b"two"], 0, gathered)
    topic.outboxes[0].close("topic solo was deleted")
    assert isinstance(sent.told[0], PublishUnknown)
    assert isinstance(gathered.told[0], Refused)
    cluster.run(1.0)
    assert (len(sent.told), len(gathered.told)) == (1, 1)
