"""End-to-end percentiles: buckets read back, the sliding window, channels added up."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kernel.figures import BUCKETS, bucket_of
from penstock import limits
from penstock.broker import stats
from penstock.broker.latency import latency_row, middle_ns, no_latency

from .world import Consumer, World

MS, SECOND = limits.MS, limits.SECOND
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


def test_without_samples_the_values_are_0() -> None:
    percentiles = [{"quantile": 0.5, "value": 0}]
    assert latency_row({}, (0.5,)) == {"count": 0, "percentiles": percentiles}


def finish_after(consumer: Consumer, world: World, latency_ns: int, *bodies: bytes) -> None:
    world.publish("t", *bodies)
    given = consumer.take()
    world.clock.pass_ns(latency_ns)
    world.turn()
    consumer.finish(*given)


def latency(world: World, channel: str = "") -> Any:
    rows = stats.rows(world.broker.topics, "t")
    assert rows is not None
    if not channel:
        return rows[0]["e2e_processing_latency"]
    found = [row for row in rows[0]["channels"] if row["channel_name"] == channel]
    return found[0]["e2e_processing_latency"]


def test_off_unless_asked_for(start: Any) -> None:
    world: World = start()
    finish_after(world.consumer("t", "ch"), world, MS, b"x")
    assert latency(world) == latency(world, "ch") == no_latency()
    assert not world.broker.topics["t"].channels["ch"].windows[0].measures_latency


def test_a_channel_and_its_topic(start: Any) -> None:
    world: World = start(latency_quantiles=QUANTILES)
    world.broker.topic("t")
    assert latency(world) == no_latency()  # no channel yet
    one, two = world.consumer("t", "one"), world.consumer("t", "two")
    finish_after(one, world, 20 * MS, b"x", b"y", b"z")
    row = latency(world, "one")
    assert row["count"] == 3
    assert [each["value"] for each in row["percentiles"]] == [near(20 * MS)] * 3
    assert latency(world, "two")["count"] == 0
    world.clock.pass_ns(SECOND)
    world.turn()
    two.finish(*two.take())
    row = latency(world)
    assert row["count"] == 6
    assert [each["value"] for each in row["percentiles"]] == [
        *(near(1020 * MS), near(1020 * MS), near(20 * MS))
    ]


def test_the_window_slides_by_halves(start: Any) -> None:
    world: World = start(latency_quantiles=QUANTILES)
    consumer = world.consumer("t", "ch")
    finish_after(consumer, world, MS, b"old")
    world.pass_ns(HALF_NS)
    assert latency(world, "ch")["count"] == 1
    finish_after(consumer, world, SECOND, b"new")
    assert latency(world, "ch")["count"] == 2
    world.pass_ns(HALF_NS)
    row = latency(world, "ch")
    assert (row["count"], row["percentiles"][2]["value"]) == (1, near(SECOND))
    world.pass_ns(HALF_NS)
    assert latency(world, "ch")["count"] == 0
