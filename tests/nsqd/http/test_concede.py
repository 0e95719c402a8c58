"""An operator's word that what is corrupt is not waited for."""

from __future__ import annotations

import pytest

from broker.hostedworld import Cluster
from broker.world import bodies
from penstock import kernel
from penstock.limits import SECOND

from .test_held import Asked


@pytest.fixture
def cluster() -> Cluster:
    """Two messages, the first one corrupt on every disk, and node 1 leads."""
    cluster = Cluster(kernel)
    cluster.place([0])
    for word in (b"one", b"two"):
        cluster.publish(0, word)
    for node in cluster.nodes:
        segment = node.topic.replicas[0].log.segments[0].path
        node.disk.flip(segment, node.disk.content(segment).index(b"one"), 0)
    cluster.elect(1)
    return cluster


def test_it_names_the_offsets_and_the_rest_is_delivered(cluster: Cluster) -> None:
    consumer = cluster.nodes[1].consume()
    cluster.pass_ns(SECOND)
    assert consumer.take() == []
    asked = Asked(cluster.nodes[1], "/topic/concede?topic=orders&partition=0")
    cluster.run()
    assert (asked.status, asked.document) == (
        200,
        {"topic_name": "orders", "conceded": [{"partition": 0, "from": 0, "to": 1}]},
    )
    cluster.pass_ns(SECOND)
    assert bodies(consumer.take()) == [b"two"]


def test_nothing_is_conceded_that_is_not_known_to_be_corrupt(cluster: Cluster) -> None:
    asked = Asked(cluster.nodes[1], "/topic/concede?topic=orders")
    cluster.run()
    assert asked.document["conceded"] == []


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("", 400, "MISSING_ARG_TOPIC"),
        ("?topic=none", 404, "TOPIC_NOT_FOUND"),
        ("?topic=orders&partition=7", 400, "E_BAD_PARTITION"),
    ],
)
def test_what_is_refused(cluster: Cluster, query: str, status: int, said: str) -> None:
    asked = Asked(cluster.nodes[1], f"/topic/concede{query}")
    assert (asked.status, asked.document["message"]) == (status, said)
