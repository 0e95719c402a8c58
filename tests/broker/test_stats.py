"""Rows of /stats: NSQ's keys, in NSQ's order, before our own."""

import json
import random
from typing import Any

import pytest

from kernel.figures import BUCKETS, bucket_of
from penstock import limits
from penstock.broker.channels.latency import latency_row, middle_ns
from penstock.nsqd.stats import View, json_parts

from .partition.test_leader import damage
from .world import Consumer, World


def test_rows_are_sorted_and_filtered_as_nsq_does_it(world: World) -> None:
    def names(topic: str = "", channel: str = "") -> list[tuple[str, list[str]]] | None:
        parts = json_parts(View(world.broker, {}, 0, topic=topic, channel=channel))
        found = json.loads(b"".join(parts))["topics"]
        if found is None:
            return None
        return [
            (row["topic_name"], [inner["channel_name"] for inner in row["channels"]])
            for row in found
        ]

    assert names() == []
    for topic, channel in (("b", "z"), ("b", "y"), ("a", "y")):
        world.broker.topic(topic).channel(channel)
    assert names() == [("a", ["y"]), ("b", ["y", "z"])]
    assert names(topic="b") == [("b", ["y", "z"])]
    assert names(channel="z") == [("b", ["z"])]
    assert names(topic="a", channel="z") == []
    assert names(topic="c") is None


# --- what was published in each hour ---


def test_publishes_before_the_start_are_not_counted(world: World) -> None:
    world.publish("t", b"12345")
    world = world.restart()
    topic = world.broker.find_topic("t")
    assert sum(world.broker.hourly.of(topic, 0)) == 0
    world.publish("t", b"123")
    assert world.broker.hourly.of(topic, 0)[-1] == 3


# --- the age of the oldest message that a channel has not finished ---


SECOND = limits.SECOND


def age_s(world: World) -> float | None:
    return world.channel("t", "ch").oldest_age_s


def test_the_age_grows_until_the_message_is_finished(world: World) -> None:
    world.broker.topic("t").channel("ch")
    assert age_s(world) is None
    world.publish("t", b"one")
    world.pass_ns(3 * SECOND)
    world.publish("t", b"two")
    world.pass_ns(1 * SECOND)
    assert age_s(world) == 4
    consumer = world.consumer("t", "ch")
    first, second = consumer.take()
    assert age_s(world) == 4
    consumer.finish(first)
    world.turn()
    world.pass_ns(limits.OLDEST_LOOK_NS)
    assert age_s(world) == 1 + limits.OLDEST_LOOK_NS / SECOND
    consumer.finish(second)
    world.turn()
    assert age_s(world) is None


def test_a_batch_that_cannot_be_read_has_no_age(start: Any) -> None:
    world = start(tail_memory_bytes_max=0)
    world.broker.topic("t").channel("ch")
    world.publish("t", b"corrupt")
    world.pass_ns(SECOND)
    world.publish("t", b"sound")
    damage(world, 0, "t")
    assert age_s(world) is None
    assert "offsets 0 to 0 are corrupt" in world.broker.health
    channel = world.broker.topic("t").channel("ch")
    channel.seek({0: 1})
    world.pass_ns(SECOND + limits.OLDEST_LOOK_NS)
    assert age_s(world) == 1 + limits.OLDEST_LOOK_NS / SECOND
    channel.seek({0: 0})  # back: what is known of a later batch is no use
    assert age_s(world) is None


def test_a_scheduled_message_has_no_age(world: World) -> None:
    world.broker.topic("t").channel("ch")
    for _ in range(3):
        world.publish("t", b"later", due_ns=world.clock.wall_ns() + 60 * SECOND)
    world.pass_ns(30 * SECOND)
    assert age_s(world) is None
    world.publish("t", b"now")  # behind those
    world.pass_ns(10 * SECOND)
    assert age_s(world) == 10
    consumer = world.consumer("t", "ch")
    (now,) = consumer.take()
    world.pass_ns(limits.OLDEST_LOOK_NS)
    assert age_s(world) == 15
    consumer.finish(now)
    world.turn()
    assert age_s(world) is None
    world.pass_ns(35 * SECOND)  # they are due since 20 s
    assert age_s(world) == 20


# --- end-to-end percentiles: buckets read back, the sliding window, channels added up ---


MS = limits.MS
HALF_NS = 300 * SECOND
QUANTILES = (1.0, 0.99, 0.5)


def near(value_ns: float) -> Any:
    return pytest.approx(value_ns, rel=0.02)


def test_the_middle_of_a_bucket_is_close_to_all_in_it() -> None:
    assert [bucket_of(middle_ns(bucket)) for bucket in range(BUCKETS)] == list(range(BUCKETS))
    rng = random.Random(1)
    for _ in range(10_000):
        latency_ns = rng.randrange(1024, 1 << rng.randrange(11, 51))
        assert middle_ns(bucket_of(latency_ns)) == near(latency_ns)


def test_percentiles_of_a_known_distribution() -> None:
    counts: dict[int, int] = {}
    for ms in range(1, 1001):
        bucket = bucket_of(ms * MS)
        counts[bucket] = counts.get(bucket, 0) + 1
    row = latency_row(counts, (1.0, 0.99, 0.5, 0.001))
    assert row["count"] == 1000
    assert [one["quantile"] for one in row["percentiles"]] == [1.0, 0.99, 0.5, 0.001]
    values = [one["value"] for one in row["percentiles"]]
    assert values == [near(1000 * MS), near(990 * MS), near(500 * MS), near(MS)]


def finish_after(consumer: Consumer, world: World, latency_ns: int, *bodies: bytes) -> None:
    world.publish("t", *bodies)
    given = consumer.take()
    world.clock.pass_ns(latency_ns)
    world.turn()
    consumer.finish(*given)


def test_the_window_slides_by_halves(start: Any) -> None:
    world: World = start(latency_quantiles=QUANTILES)
    consumer = world.consumer("t", "ch")
    finish_after(consumer, world, MS, b"old")
    world.pass_ns(HALF_NS)
    assert consumer.channel.latency.row()["count"] == 1
    finish_after(consumer, world, SECOND, b"new")
    assert consumer.channel.latency.row()["count"] == 2
    world.pass_ns(HALF_NS)
    row = consumer.channel.latency.row()
    assert (row["count"], row["percentiles"][2]["value"]) == (1, near(SECOND))
    world.pass_ns(HALF_NS)
    assert consumer.channel.latency.row()["count"] == 0
