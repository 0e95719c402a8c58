"""A cluster is read through any of its nodes, wherever its partitions are led."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import limits
from penstock.errors import DataLost, FetchFailed, QueryRefused
from penstock.nsqadmin.console import Query, Source
from penstock.spark.brokerapi import BrokerApi
from penstock.spark.brokers import Brokers
from penstock.spark.options import read_options

from .fakebroker import FakeBroker, FakeCluster
from .test_reader import batch_reader, latest, read, stream_reader


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Topic orders: partition 0 has ten messages and is led by the first node, partition 1 has five
    and is led by the second."""
    monkeypatch.setattr(limits, "SPARK_LEADER_WAIT_S", 0.5)
    monkeypatch.setattr(limits, "SPARK_LEADER_PAUSE_S", 0.02)
    monkeypatch.setattr(Brokers, "_failed_s", {})
    with FakeBroker() as one, FakeBroker() as two:
        found = FakeCluster([one, two], {("orders", 0): one, ("orders", 1): two})
        one.topic("orders").publish([b"x"] * 10)
        one.topic("orders").partition(1).publish([b"y"] * 5)
        yield found


def both(cluster: FakeCluster) -> dict[str, str]:
    return {"url": ",".join(node.url for node in cluster.nodes), "fetchOffset.numRetries": "0"}


def rows(reader: Any, start: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Of the next batch, and where it ends."""
    end = latest(reader, start)
    return end, sorted(read(reader, *reader.partitions(start, end)))


WHOLE = sorted([*range(10), *range(5)])


@pytest.mark.parametrize("asked", [0, 1])
def test_any_node_gives_all_partitions(cluster: FakeCluster, asked: int) -> None:
    for given in ({}, both(cluster)):  # of several one speaks for all
        reader = batch_reader(cluster.nodes[asked], **given)
        assert sorted(read(reader, *reader.partitions())) == WHOLE


@pytest.mark.parametrize("asked", [[0], [1], [0, 1]])
def test_sql_sees_each_message_once(cluster: FakeCluster, asked: list[int]) -> None:
    query = Query(Source([cluster.nodes[number].url for number in asked], {}))
    answer = query.run('SELECT "partition", count(*) FROM orders GROUP BY 1 ORDER BY 1')
    assert answer.fetchall() == [(0, 10), (1, 5)]
    assert query.notes == []


def test_sql_says_which_partition_has_no_leader(cluster: FakeCluster) -> None:
    cluster.leaders["orders", 1] = None
    nodes = [node.url for node in cluster.nodes]
    query = Query(Source(nodes, {}))
    assert query.run("SELECT count(*) FROM orders").fetchall() == [(10,)]
    assert query.notes == ["orders without partition 1: no leader can be reached"]
    with pytest.raises(QueryRefused, match="orders without partition 1"):
        Query(Source(nodes, {}, needs_all=True)).run("SELECT count(*) FROM orders")


def test_each_node_has_topics_of_its_own(cluster: FakeCluster) -> None:
    one, two = cluster.nodes
    two.topics = dict(one.topics)
    for node, count in ((one, 3), (two, 4)):
        node.topic("_trace", node.address).publish([b"t"] * count)
    reader = stream_reader(one, **both(cluster), subscribe="_trace")
    end, first = rows(reader, reader.initialOffset())
    assert first == sorted([*range(3), *range(4)])
    two.hangups = 1000
    until_s = None
    while until_s is None or time.monotonic() < until_s:
        with pytest.raises(FetchFailed, match="the checkpoint has offsets of this nsqd"):
            rows(reader, end)
        until_s = until_s or time.monotonic() + 0.4
    two.hangups = 0
    two.topic("_trace").publish([b"t"])
    time.sleep(0.2)  # it is asked again, however often it was not
    assert rows(reader, end)[1] == [4]


def test_leaders_that_others_cannot_reach_are_asked_themselves(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeCluster, "address", lambda *_: "127.0.0.1:9")
    for node in cluster.nodes:
        node.address = "nobody:1"
    reader = batch_reader(cluster.nodes[0], **both(cluster))
    assert sorted(read(reader, *reader.partitions())) == WHOLE


def test_a_node_that_is_down_holds_nothing_up(cluster: FakeCluster) -> None:
    one, two = cluster.nodes
    cluster.leaders["orders", 0] = two
    one.hangups = 1000
    reader = batch_reader(one, **both(cluster) | {"fetchOffset.numRetries": "9"})
    assert sorted(read(reader, *reader.partitions())) == WHOLE
    assert len(one.requests) == 1
    two.failures = 1  # with nobody else to ask it is asked again
    assert sorted(read(reader, *reader.partitions())) == WHOLE


def test_a_task_follows_the_leader(cluster: FakeCluster) -> None:
    one, two = cluster.nodes
    reader = stream_reader(one, **both(cluster))
    tasks = reader.partitions(start := reader.initialOffset(), reader.latestOffset(start, Any))
    cluster.leaders["orders", 0], cluster.leaders["orders", 1] = two, one
    assert sorted(read(reader, *tasks)) == WHOLE
    one.hangups = 1000
    cluster.leaders["orders", 1] = two
    assert sorted(read(reader, *tasks)) == WHOLE


def test_a_run_to_the_present_end_gets_there_by_another_node(cluster: FakeCluster) -> None:
    """Spark ends such a query where nothing is left to read."""
    reader = stream_reader(cluster.nodes[0], **both(cluster), maxOffsetsPerTrigger="6")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    asked, other = sorted(cluster.nodes, key=lambda node: node.address not in start["brokers"])
    end, first = rows(reader, start)
    asked.hangups = 1000
    cluster.leaders = dict.fromkeys(cluster.leaders, other)
    end, second = rows(reader, end)
    assert [len(first), len(second), len(rows(reader, end)[1])] == [6, 6, 3]


def test_a_stream_goes_on_without_a_partition_that_has_no_leader(cluster: FakeCluster) -> None:
    one, two = cluster.nodes
    reader = stream_reader(one)
    end, first = rows(reader, reader.initialOffset())
    assert first == WHOLE
    cluster.leaders["orders", 1] = None
    one.topic("orders").publish([b"x"] * 2)
    one.topic("orders").partition(1).publish([b"y"])
    end, more = rows(reader, end)
    assert more == [10, 11]
    cluster.leaders["orders", 1] = two
    assert rows(reader, end)[1] == [5]


def test_a_beginning_needs_all_partitions(cluster: FakeCluster) -> None:
    cluster.leaders["orders", 1] = None
    with pytest.raises(FetchFailed, match="no leader of partition 1 of topic orders"):
        stream_reader(cluster.nodes[0]).initialOffset()


def test_a_new_leader_that_is_behind_for_long_has_lost_something(cluster: FakeCluster) -> None:
    one, _ = cluster.nodes
    reader = stream_reader(one)
    end, _ = rows(reader, reader.initialOffset())
    one.topic("orders").end = 7
    with pytest.raises(DataLost, match="it ends at 7, but offset 10 was reached"):
        rows(reader, end)


@pytest.mark.parametrize("made_again", [False, True])
def test_ends_of_a_deleted_topic_come_from_any_node(cluster: FakeCluster, made_again: bool) -> None:
    one, two = cluster.nodes
    if made_again:
        cluster.leaders["bills", 0] = one
        one.topic("bills", "second").publish([b"x"])
    two.ended_partitions = {"bills": {"first": {0: 7}}}
    one.ended_partitions = {"bills": {"first": {0: 5, 1: 2}}}
    with BrokerApi(one.url) as api:
        assert api.positions(["bills"]).ends == {"bills": {"first": {0: 7, 1: 2}}}


def test_one_node_is_asked_for_its_own_alone(cluster: FakeCluster) -> None:
    with BrokerApi(cluster.nodes[0].url) as api:
        found = api.positions(["orders"], only_here=True)
    assert list(found.topics["orders"].partitions) == [0]
    assert found.elsewhere["orders"].partitions == {1: cluster.nodes[1].address}


@pytest.mark.parametrize("named", [0, 1])
def test_offsets_hold_whichever_node_they_are_given_for(cluster: FakeCluster, named: int) -> None:
    """An archive notes its beginning under the node that it had asked."""
    given = {cluster.nodes[named].address: {"orders": {"0": 8, "1": -1}}}
    reader = stream_reader(cluster.nodes[0], **both(cluster), startingOffsets=json.dumps(given))
    assert rows(reader, reader.initialOffset())[1] == [8, 9]


def test_a_leader_that_has_just_moved_is_asked_where_it_is_now(cluster: FakeCluster) -> None:
    _, two = cluster.nodes
    with Brokers(read_options({"subscribe": "orders", **both(cluster)}, True)) as brokers:
        have = brokers.found().have
        cluster.leaders = dict.fromkeys(cluster.leaders, two)
        assert {brokers.offset_after(log, 0, 1 << 20) for log in have} == {10, 5}
