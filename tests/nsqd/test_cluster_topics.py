"""Operators make, grow and delete topics of a cluster by the verbs of HTTP, at any node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from penstock import kernel
from penstock.broker.stats import rows
from penstock.errors import Refused
from penstock.net.exchange import Response
from penstock.nsqd.topics import Found
from sim.brokers.cluster import JoinedCluster

from .asked import ask, topic_maker


@pytest.fixture
def cluster() -> Iterator[JoinedCluster]:
    made = JoinedCluster(kernel, nodes=4)
    yield made
    made.close()


def asked(cluster: JoinedCluster, number: int, path: str, query: str) -> Response:
    answers = ask(cluster.nodes[number], path, query)
    cluster.until(lambda: answers)
    (answer,) = answers
    return answer


def test_a_topic_is_made_grows_and_goes(cluster: JoinedCluster) -> None:
    answer = asked(cluster, 0, "/topic/create", "topic=t&partition_num=2&extend=true")
    assert answer.status == 200
    leader = cluster.led_by("t")
    assert leader.broker.topics["t"].extended
    number = leader.number
    assert (
        asked(cluster, number, "/topic/partition/expand", "topic=t&partition_num=3").status == 200
    )
    assert cluster.leader("t", 2) is not None
    assert asked(cluster, number, "/topic/delete", "topic=t").status == 200
    assert "t" not in leader.broker.topics


def test_each_partition_is_in_the_stats_of_its_leader(cluster: JoinedCluster) -> None:
    assert asked(cluster, 0, "/topic/create", "topic=t&partition_num=3").status == 200
    assert asked(cluster, cluster.led_by("t").number, "/channel/create", "topic=t&channel=c")
    told = [row for node in cluster.nodes for row in rows(node.broker.topics, "t") or ()]
    for found in (told, [channel for row in told for channel in row["channels"]]):
        numbers = [part["partition"] for row in found for part in row.get("partitions", ())]
        assert sorted(numbers) == [0, 1, 2]


def test_a_node_that_has_nothing_of_it_makes_it_too(cluster: JoinedCluster) -> None:
    """There are three replicas, and four nodes."""
    for number in range(4):
        assert asked(cluster, number, "/topic/create", f"topic=t{number}").status == 200
    without = [
        node for node in cluster.nodes for number in range(4)
        if f"t{number}" not in node.broker.topics
    ]  # fmt: skip
    assert len(without) == 4  # each topic is missing on one node
    for number in range(4):
        for node in range(4):
            assert asked(cluster, node, "/topic/create", f"topic=t{number}").status == 200
            differs = asked(cluster, node, "/topic/create", f"topic=t{number}&partition_num=2")
            assert (differs.status, b"has 1; more come" in differs.body) == (409, True)
            headed = asked(cluster, node, "/topic/create", f"topic=t{number}&extend=true")
            assert (headed.status, b"NOT_EXTENDED" in headed.body) == (409, True)


def test_what_breaks_a_rule_is_named(cluster: JoinedCluster) -> None:
    asked(cluster, 0, "/topic/create", "topic=t&partition_num=2")
    number = cluster.led_by("t").number
    fewer = asked(cluster, number, "/topic/partition/expand", "topic=t&partition_num=1")
    assert (fewer.status, b"a topic never gets fewer" in fewer.body) == (409, True)
    again = asked(cluster, number, "/topic/partition/expand", "topic=t&partition_num=4&rehash=true")
    assert (again.status, b"not rehashed yet" in again.body) == (409, True)
    assert asked(cluster, number, "/topic/delete", "topic=other").status == 404


def test_while_the_coordinator_is_away_the_outcome_is_not_known(cluster: JoinedCluster) -> None:
    cluster.away.add(1)
    answer = asked(cluster, 1, "/topic/create", "topic=t")
    assert answer.status == 503
    assert b'"changed":"unknown"' in answer.body


def test_a_node_that_shuts_down_lets_nobody_wait_for_the_cluster(cluster: JoinedCluster) -> None:
    cluster.away.add(1)
    maker = topic_maker(cluster.nodes[1])
    found: list[Found] = []
    maker.topic("t", found.append)
    assert found == []
    asyncio.run(maker.stop())
    (refused,) = found
    assert isinstance(refused, Refused)
    cluster.run(10)  # the metadata gives up, too: it is not answered again
    assert len(found) == 1


def test_a_topic_has_as_many_copies_as_were_asked_for(cluster: JoinedCluster) -> None:
    assert asked(cluster, 0, "/topic/create", "topic=t&replicator=2").status == 200
    assert len(cluster.record("t", 0).members) == 2
    (told,) = ask(cluster.led_by("t"), "/topic/config", "topic=t", "GET")
    assert json.loads(told.body)["replicas"] == 2
    for node in range(4):  # also one that has none of them
        assert asked(cluster, node, "/topic/create", "topic=t&replicator=2").status == 200
        differs = asked(cluster, node, "/topic/create", "topic=t&replicator=3")
        assert (differs.status, b"topic t has 2 copies" in differs.body) == (409, True)
    for query, said in (
        ("topic=u&replicator=17", b"'17': a whole number, 1 to 16"),
        ("topic=u&replicator=0", b"'0': a whole number, 1 to 16"),
        ("topic=u%23ephemeral&replicator=2", b"'2': a node by itself, and an ephemeral topic"),
    ):
        refused = asked(cluster, 0, "/topic/create", query)
        assert (refused.status, said in refused.body) == (400, True)


def test_where_fewer_nodes_live_each_has_a_copy(cluster: JoinedCluster) -> None:
    cluster.kill(2)
    cluster.kill(3)
    cluster.run(10)
    assert asked(cluster, 0, "/topic/create", "topic=t&replicator=4").status == 200
    assert sorted(one.node for one in cluster.record("t", 0).members) == [0, 1]
    again = asked(cluster, 1, "/topic/create", "topic=t&replicator=4")
    assert again.status == 200  # it is what was asked for, and gets the others later
