"""Rows of /stats: NSQ's keys, in NSQ's order, before our own."""

from __future__ import annotations

from collections.abc import Callable

from penstock import limits
from penstock.broker.stats import rows

from .officialkeys import CHANNEL_KEYS, TOPIC_KEYS
from .world import World

Start = Callable[..., World]


def test_the_keys_stand_in_the_order_of_nsq(start: Start) -> None:
    world = start()
    world.broker.topic("news").channel("a")
    (topic,) = rows(world.broker.topics) or []
    assert list(topic)[: len(TOPIC_KEYS)] == TOPIC_KEYS
    assert list(topic["channels"][0])[: len(CHANNEL_KEYS)] == CHANNEL_KEYS


def test_the_numbers_are_those_of_the_channel(start: Start) -> None:
    world = start()
    consumer = world.consumer("news", "a", rdy=3)
    world.publish("news", b"1", b"22", b"333", b"4444")
    first, second, third = consumer.take()
    consumer.ready(0)
    consumer.finish(first)
    consumer.requeue(second)
    consumer.requeue(third, limits.SECOND)
    world.broker.find_topic("news").pause()
    world.publish("news", b"55555")
    (topic,) = rows(world.broker.topics) or []
    assert {key: topic[key] for key in TOPIC_KEYS[2:7]} == {
        "depth": 1,
        "backend_depth": 0,
        "message_count": 5,
        "message_bytes": 15,
        "paused": True,
    }
    (channel,) = topic["channels"]
    assert {key: channel[key] for key in CHANNEL_KEYS[:11]} == {
        "channel_name": "a",
        "depth": 2,
        "backend_depth": 0,
        "in_flight_count": 0,
        "deferred_count": 1,
        "message_count": 4,
        "requeue_count": 2,
        "timeout_count": 0,
        "client_count": 1,
        "clients": None,
        "paused": False,
    }
    assert channel["e2e_processing_latency"] == {"count": 0, "percentiles": None}
    assert (topic["durability"], topic["committed_end"], topic["damaged"]) == ("disk", 5, [])
    assert topic["stored_bytes"] > 15


def test_rows_are_sorted_and_filtered_as_nsq_does_it(start: Start) -> None:
    world = start()
    assert rows(world.broker.topics) == []
    for topic, channel in (("b", "z"), ("b", "y"), ("a", "y")):
        world.broker.topic(topic).channel(channel)

    def names(topic: str = "", channel: str = "") -> list[tuple[str, list[str]]] | None:
        found = rows(world.broker.topics, topic, channel)
        if found is None:
            return None
        return [
            (row["topic_name"], [inner["channel_name"] for inner in row["channels"]])
            for row in found
        ]

    assert names() == [("a", ["y"]), ("b", ["y", "z"])]
    assert names(topic="b") == [("b", ["y", "z"])]
    assert names(channel="z") == [("b", ["z"])]
    assert names(topic="a", channel="z") == []
    assert names(topic="c") is None
