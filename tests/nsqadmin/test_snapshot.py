"""Sums, rates, and what is not made of counters that fell."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.nsqadmin.snapshot import NodeState, Snapshot, make
from penstock.nsqadmin.upstream import Producer


def node(
    answered_s: float, messages: int, start: int = 1, error: str = "", **channel: Any
) -> NodeState:
    row = {"channel_name": "ch", "message_count": messages, **channel}
    topic = {"topic_name": "t", "message_count": messages, "depth": 1, "channels": [row]}
    document = {"start_time": start, "health": "OK", "topics": [topic]}
    producer = Producer("h", "127.0.0.1", 1, 2, "1")
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


def test_a_topic_without_nsqd_is_there() -> None:
    after = two(node(10.0, 1), node(12.0, 1))
    assert after.topics["idle"].nodes == []


def test_what_waits_is_summed_over_channels() -> None:
    after = two(node(10.0, 1), node(12.0, 1, depth=5, in_flight_count=2, deferred_count=3))
    topic = after.topics["t"]
    assert (topic.backlog, topic.in_flight, topic.deferred) == (6, 2, 3)
    assert after.backlog == 6
