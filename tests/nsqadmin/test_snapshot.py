"""Sums, rates, and what is not made of counters that fell."""

from typing import Any

import pytest

from penstock.nsqadmin.attention import findings
from penstock.nsqadmin.history import Measures, Sample
from penstock.nsqadmin.replication import Replication
from penstock.nsqadmin.snapshot import NodeState, Snapshot, lean, make
from penstock.nsqadmin.upstream import NsqdAddress


def node(
    answered_s: float, messages: int, start: int = 1, error: str = "", **channel: Any
) -> NodeState:
    row = {"channel_name": "ch", "message_count": messages, **channel}
    topic = {"topic_name": "t", "message_count": messages, "depth": 1, "channels": [row]}
    document = {"start_time": start, "health": "OK", "topics": [topic]}
    producer = NsqdAddress("h", "127.0.0.1", 1, 2, "1")
    return NodeState("127.0.0.1:2", producer, document, answered_s, 0.01, error)


def two(first: NodeState, second: NodeState) -> Snapshot:
    before = make(1.0, {first.address: first}, (), (), Snapshot())
    return make(2.0, {second.address: second}, ("idle",), (), before)


def test_rates_are_differences_over_time() -> None:
    after = two(node(10.0, 100, depth=50), node(12.0, 300, depth=150))
    assert after.topics["t"].in_rate == pytest.approx(100)
    channel = after.channel("t", "ch")
    assert channel is not None
    assert channel.in_rate == pytest.approx(100)
    assert channel.finish_rate == pytest.approx(50)
    assert after.nodes["127.0.0.1:2"].in_rate == pytest.approx(100)


def test_a_node_that_started_anew_has_no_rate() -> None:
    after = two(node(10.0, 100), node(12.0, 300, start=2))
    assert after.topics["t"].in_rate == 0


def test_a_node_that_is_down_keeps_its_topics_and_has_no_rate() -> None:
    after = two(node(10.0, 100), node(10.0, 100, error="no answer"))
    assert after.topics["t"].messages == 100
    assert after.topics["t"].in_rate == 0
    assert not after.nodes["127.0.0.1:2"].is_up


def dead_letters(**channel: Any) -> Snapshot:
    """Of channel t/ch, which has given up 9 since its node started; 2 of them are there now."""
    dead = {"topic_name": "t.ch.dead", "message_count": 9, "depth": 0, "channels": [
        {"channel_name": "redrive", "depth": 1, "deferred_count": 1},
        {"channel_name": "own", "depth": 4},
    ]}  # fmt: skip
    one = node(10.0, 100, dead_letter_count=9, **channel)
    one.document["topics"].append(dead)
    return make(1.0, {one.address: one}, (), (), Snapshot())


def test_dead_letters_are_counted_as_they_are_now() -> None:
    found = dead_letters()
    channel, holder = found.channel("t", "ch"), found.channel("t.ch.dead", "redrive")
    own = found.channel("t.ch.dead", "own")
    assert channel is not None
    assert holder is not None
    assert own is not None
    assert (channel.dead_letters, channel.given_up) == (2, 9)
    assert (holder.holds_of, holder.is_internal) == (("t/ch",), True)
    assert (own.is_internal, own.dead_letters) == (False, 0)


def test_a_channel_of_that_name_elsewhere_holds_none() -> None:
    """What it says of its dead-letter topic counts before the usual name."""
    found = dead_letters(dead_letter_topic="elsewhere")
    holder = found.channel("t.ch.dead", "redrive")
    assert holder is not None
    assert not holder.is_internal


def test_dead_letter_topics_need_no_consumer() -> None:
    found = dead_letters()
    grown = [Sample(float(at), Measures(out_rate=1.0, depth=float(at))) for at in range(0, 120, 10)]
    answer = [one.what for one in findings(found, lambda name: grown)]
    assert "channel t/ch has dead letters" in answer
    assert "nobody reads channel t.ch.dead/own" in answer
    assert not [one for one in answer if "redrive" in one]


def test_a_topic_is_the_sum_of_its_nodes() -> None:
    nodes = {"a:1": node(10.0, 100, depth=2, deferred_count=3),
             "b:1": node(10.0, 50, depth=3, client_count=4, in_flight_count=2)}  # fmt: skip
    for address, one in nodes.items():
        one.address = address
    topic = make(1.0, nodes, (), (), Snapshot()).topics["t"]
    assert (topic.messages, topic.backlog, topic.clients) == (150, 7, 4)
    assert (topic.in_flight, topic.deferred) == (2, 3)
    assert topic.nodes == topic.channels["ch"].nodes == ["a:1", "b:1"]


def test_of_a_cluster_one_node_that_answers_is_asked() -> None:
    nodes = {at: NodeState(at, NsqdAddress(at, at, 1, 1, ""), error=error)
             for at, error in (("a", "gone"), ("b", ""), ("c", ""), ("d", ""))}  # fmt: skip
    snapshot = Snapshot(nodes=nodes, cluster=Replication("c", known={0: "a", 1: "b", 2: "c"}))
    assert snapshot.once(nodes, "t", "c") == ["b", "d"]
    assert len(snapshot.once(nodes, "t#ephemeral")) == 4


def test_empty_values_are_not_kept() -> None:
    channel: dict[str, Any] = {
        "channel_name": "c", "depth": 0, "in_flight_count": 2, "oldest_age_seconds": 0.0,
        "clients": None, "paused": False,
    }  # fmt: skip
    row: dict[str, Any] = {
        "topic_name": "t", "channels": [channel], "depth": 0, "message_count": 7,
        "stored_bytes": 0, "refusal": "", "damaged": [],
        "e2e_processing_latency": {"count": 0, "percentiles": None},
    }  # fmt: skip
    document = {"health": "OK", "disk": {"free_bytes": 0}, "topics": [row]}
    kept = lean(document)
    assert kept == {
        "health": "OK",
        "disk": {"free_bytes": 0},
        "topics": [{
            "topic_name": "t", "message_count": 7, "stored_bytes": 0,
            "channels": [{"channel_name": "c", "in_flight_count": 2, "oldest_age_seconds": 0.0}],
        }],
    }  # fmt: skip
    made = [
        make(
            1.0, {"n": NodeState("n", NsqdAddress("h", "n", 1, 2, "1"), one)}, (), (), Snapshot()
        ).topics
        for one in (document, kept)
    ]
    assert made[0] == made[1]


@pytest.mark.parametrize("topics", [None, "many", [1, None], [{"channels": "none"}]])
def test_answers_of_other_servers_stay_unchanged(topics: Any) -> None:
    assert lean({"topics": topics}) == {"topics": topics}
