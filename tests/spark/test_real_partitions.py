"""A topic of a real nsqd that gets more partitions while a stream reads it, and nearly all of whose
messages are in one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from e2e.daemon import Daemon
from penstock.spark.lag import lag_rows, logs_of
from pipelines.node import Node, skewed

from .queries import Stream, batch, batch_sizes
from .realnsqd import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Daemon(tmp_path / "nsqd") as daemon:
        yield Node(daemon)


def test_a_topic_grows_under_a_stream(spark: SparkSession, node: Node, tmp_path: Path) -> None:
    node.daemon.post("/topic/create?topic=orders&partition_num=2")
    node.publish_to("orders", {0: [b"a"] * 3, 1: [b"b"] * 2})
    stream = Stream(
        spark, node, tmp_path / "s", "partition int, offset bigint", maxOffsetsPerTrigger="100"
    )
    assert batch_sizes(stream.run()) == [5]
    node.daemon.post("/topic/partition/expand?topic=orders&partition_num=4")
    node.publish_to("orders", skewed(500))
    query = stream.run()
    sizes = batch_sizes(query)
    assert sum(sizes) == 500
    assert len(sizes) in (5, 6)  # a share of each partition in every batch
    first, *_ = (dict(p) for p in query.recentProgress if p["numInputRows"])
    sources = first["sources"]
    assert (lag_rows(sources) or 0) + sizes[0] == 500
    level = logs_of(sources)
    assert {log: end for log, (_, end) in level.items()} == {
        ("orders", 0): 23, ("orders", 1): 452, ("orders", 2): 0, ("orders", 3): 30,
    }  # fmt: skip
    assert level["orders", 1][0] - 2 == pytest.approx(90, abs=2)
    wanted = (
        [(0, n) for n in range(23)] + [(1, n) for n in range(452)] + [(3, n) for n in range(30)]
    )
    rows = spark.read.parquet(str(tmp_path / "s" / "data")).collect()
    assert sorted((row.partition, row.offset) for row in rows) == wanted


def test_keys_and_headers_of_published_messages(spark: SparkSession, node: Node) -> None:
    """All of a key are in one partition, in the order of their publishing."""
    node.daemon.post("/topic/create?topic=orders&partition_num=4&extend=true")
    keys = [f"customer {number % 5}" for number in range(40)]
    for number, key in enumerate(keys):
        node.daemon.post(f"/pub?topic=orders&key={quote(key)}", b"%d" % number)
    node.daemon.post("/pub?topic=orders&partition=2", b"plain")
    until(lambda: sum(at.end for at in node.spans("orders").partitions.values()) == 41)
    rows = batch(spark, node, includeHeaders="true").orderBy("partition", "offset").collect()
    (plain,) = (row for row in rows if row.key is None)
    assert (plain.partition, bytes(plain.body), plain.headers) == (2, b"plain", None)
    found: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        if row.key is not None:
            key = bytes(row.key).decode()
            assert row.headers == {"key": key}
            found.setdefault(key, []).append((row.partition, int(row.body)))
    assert {key: [number for _, number in each] for key, each in found.items()} == {
        key: [n for n, other in enumerate(keys) if other == key] for key in set(keys)
    }
    assert all(len({partition for partition, _ in each}) == 1 for each in found.values())
