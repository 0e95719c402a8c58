"""Source and sink over a real nsqd: what the fake broker says must be what it says."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from e2e.daemon import Daemon
from penstock.errors import BrokerRefused
from penstock.kernel import decode_columns, encode_batch
from penstock.nsqdapi import calls
from penstock.nsqdapi.calls import Committed, Stage
from penstock.spark.brokerapi import BrokerApi
from pipelines.node import Node, numbered

from .queries import Stream, batch, batch_sizes

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[Node]:
    with Daemon(tmp_path / "nsqd", "--max-msg-size=1000") as daemon:
        yield Node(daemon)


@pytest.fixture
def api(nsqd: Node) -> Iterator[BrokerApi]:
    with BrokerApi(nsqd.url) as api:
        yield api


def test_the_client_and_nsqd_agree(nsqd: Node, api: BrokerApi) -> None:
    before_ms = time.time_ns() // 1_000_000 - 60_000
    nsqd.publish("orders", numbered(10))
    there = nsqd.spans("orders")
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


# --- the sink ---


def test_the_client_and_nsqd_agree_on_stages(api: BrokerApi) -> None:
    stages = [Stage("orders", 0, "x-0"), Stage("orders", 0, "x-1")]
    assert api.ask(calls.last_version("app")) is None
    for stage, body in zip(stages, (b"a", b"b"), strict=True):
        assert api.ask(calls.stage(stage, encode_batch([body], 0, 0, 0))) == 1
        assert api.ask(calls.stage(stage, encode_batch([body], 0, 0, 0))) == 1  # the same again
    with pytest.raises(BrokerRefused, match="STAGE_EXISTS"):
        api.ask(calls.stage(stages[0], encode_batch([b"other"], 0, 0, 0)))
    assert api.commit("app", 4, stages) == Committed(False, 2)
    assert api.commit("app", 4, stages) == Committed(True, 0)
    assert api.ask(calls.last_version("app")) == 4
    api.abort(stages)  # they are committed: no harm
    shown = [api.ask(calls.message("orders", "offset", offset))["body"] for offset in (0, 1)]
    assert shown == ["a", "b"]


def test_written_rows_are_read_and_consumed(spark: SparkSession, nsqd: Node) -> None:
    nsqd.daemon.make("even", "c")
    frame = spark.sql(
        "SELECT if(id % 2 = 0, 'even', 'odd') AS topic, string(id) AS body,"
        " if(id % 10 = 0, binary(string(id)), null) AS key,"
        " if(id % 10 = 0, map('n', string(id)), null) AS headers,"
        " if(id % 10 = 0, timestamp_seconds(id), null) AS timestamp FROM range(0, 2000, 1, 2)"
    )
    frame.write.format("penstock").option("url", nsqd.url).mode("append").save()
    copied = batch(spark, nsqd, subscribe="even, odd", includeHeaders="true")
    rows = {int(row.body): row for row in copied.collect()}
    assert sorted(rows) == list(range(2000))
    for name, first in (("even", 0), ("odd", 1)):
        found = sorted((row.offset, n) for n, row in rows.items() if row.topic == name)
        assert found == list(enumerate(range(first, 2000, 2)))
    own = rows[1990]
    assert (bytes(own.key), own.headers) == (b"1990", {"n": "1990"})
    assert own.timestamp.timestamp() == 1990
    assert rows[1991].key is None
    assert rows[1991].timestamp.timestamp() > 1990
    with nsqd.daemon.client() as client:
        client.sub("even", "c")
        client.rdy(10)
        assert [message.body for message in client.messages(10)] == [
            b"%d" % n for n in range(0, 20, 2)
        ]
