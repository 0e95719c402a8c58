"""The client and the source over a real nsqd: what the fake broker says must be what it says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2e.daemon import Daemon
from e2e.lookupd import eventually
from penstock.kernel import decode_columns
from penstock.nsqdapi import calls
from penstock.spark.brokerapi import BrokerApi
from pipelines.node import Node, numbered

from .queries import Stream, batch_sizes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
NODE_ID = 517


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[Node]:
    with Daemon(tmp_path / "nsqd", f"--node-id={NODE_ID}") as daemon:
        yield Node(daemon)


def test_the_client_and_nsqd_agree(nsqd: Node) -> None:
    before_ms = time.time_ns() // 1_000_000 - 60_000
    nsqd.publish("orders", numbered(10))
    there = nsqd.spans("orders")
    with BrokerApi(nsqd.url) as api:
        assert api.positions(["nothing"]).missing == ("nothing",)
        assert list(api.positions(pattern="ord.*").topics) == ["orders"]
        shown = api.ask(calls.message("orders", "offset", 3))
        assert (shown["topic"], shown["partition"], shown["offset"]) == ("orders", 0, 3)
        fetched = next(api.fetches("orders", 0, there.identity, 3, 7))
        assert fetched.base_offset <= 3
        assert fetched.next_offset >= 7
        columns = decode_columns(fetched.data)
        assert columns.count == fetched.next_offset - fetched.base_offset
        assert api.ask(calls.offset_at("orders", before_ms, 0)) == 0
        assert api.ask(calls.offset_at("orders", before_ms + 3_600_000, 0)) == 10


@pytest.mark.spark
def test_a_stream_goes_on_after_nsqd_was_killed(
    spark: SparkSession, nsqd: Node, tmp_path: Path
) -> None:
    """Rate limit, kill and restart of nsqd, restart of the query, and then a topic made again."""
    nsqd.publish("orders", numbered(250))
    stream = Stream(spark, nsqd, tmp_path / "stream", maxOffsetsPerTrigger="100")
    assert batch_sizes(stream.run()) == [100, 100, 50]
    nsqd.daemon.kill()
    nsqd.daemon.start()
    nsqd.publish("orders", numbered(20))
    assert batch_sizes(stream.run()) == [20]
    assert stream.rows() == [("orders", offset) for offset in range(270)]
    nsqd.daemon.post("/topic/delete?topic=orders")
    nsqd.publish("orders", numbered(300))
    with pytest.raises(Exception, match="deleted and made again"):
        stream.run()


@pytest.mark.spark
def test_topics_that_are_made_while_a_stream_runs(spark: SparkSession, nsqd: Node) -> None:
    """A pattern finds them, each from its first message on, and passes over the others."""
    nsqd.publish("order.a", numbered(3))
    nsqd.publish("payments", numbered(3))
    query = (
        spark.readStream.format("penstock")
        .schema("topic string, offset bigint")
        .options(url=nsqd.url, subscribePattern="order\\..*", startingOffsets="earliest")
        .load()
        .writeStream.format("memory")
        .queryName("seen")
        .trigger(processingTime="0 seconds")
        .start()
    )

    def seen() -> list[tuple[str, int]]:
        assert query.isActive, query.exception()
        return sorted((row.topic, row.offset) for row in spark.table("seen").collect())

    try:
        wanted = [("order.a", n) for n in range(3)]
        eventually(lambda: seen() == wanted)
        for topic in ("order.b", "order", "order.c"):
            nsqd.publish(topic, numbered(2))
        nsqd.publish("order.a", numbered(1))
        wanted = [*wanted, ("order.a", 3), *((f"order.{x}", n) for x in "bc" for n in range(2))]
        eventually(lambda: seen() == wanted)
    finally:
        query.stop()
