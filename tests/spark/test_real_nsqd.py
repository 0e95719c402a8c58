"""The client and the source over a real nsqd: what the fake broker says must be what it says."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from e2e.daemon import Daemon
from penstock.kernel import decode_columns
from penstock.nsqdapi import calls
from penstock.spark.brokerapi import BrokerApi
from pipelines.node import Node, numbered

from .queries import Stream, batch_sizes

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
