"""Spark's source reads a cluster whose leaders come and go: each message once.

The reader is called as Spark calls it, without Spark: batch after batch, each planned and read.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from e2e.lookupd import Lookupd
from penstock.spark.options import read_options
from penstock.spark.source import StreamReader

from .processes import Cluster
from .traffic import Publisher

SCHEMA = pa.schema([pa.field("body", pa.binary())])


class Query:
    def __init__(self, lookupd: Lookupd, topic: str) -> None:
        given = {"lookupd": f"127.0.0.1:{lookupd.http_port}", "subscribe": topic}
        options = read_options({**given, "startingOffsets": "earliest"}, streaming=True)
        self.reader = StreamReader(options, SCHEMA)
        self.at: dict[str, Any] = self.reader.initialOffset()
        self.bodies: Counter[bytes] = Counter()

    def batch(self) -> bool:
        """Was there anything?"""
        end = self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())
        for task in self.reader.partitions(self.at, end):
            for rows in self.reader.read(task):
                self.bodies.update(rows.column(0).to_pylist())
        moved, self.at = end != self.at, end
        return moved

    def has(self, bodies: list[bytes]) -> bool:
        self.batch()
        return set(bodies) <= set(self.bodies)


def test_no_message_is_missed_or_read_twice_over_a_change_of_leader(tmp_path: Path) -> None:
    with (
        Cluster(tmp_path) as cluster,
        Lookupd(tmp_path / "lookupd", f"--cluster=etcd://{cluster.etcd.endpoint}/stories") as found,
    ):
        cluster.make("/topic/create?topic=read&partition_num=3&replicator=3")
        cluster.until(lambda: is_whole(cluster))
        publishers = [Publisher(node, "read") for node in cluster.nodes]
        for publisher in publishers:
            publisher.start()
        query, node = Query(found, "read"), cluster.leader("read")
        cluster.until(query.batch)
        node.kill()
        for _ in range(20):
            query.batch()
        node.start()
        cluster.until(lambda: is_whole(cluster))
        for publisher in publishers:
            publisher.over.set()
            publisher.join()
        acked = [body for publisher in publishers for body in publisher.acked]
        cluster.until(lambda: query.has(acked))
        assert len(acked) > 100
        assert max(query.bodies.values()) == 1
        assert not {body for one in publishers for body in one.refused} & set(query.bodies)
        assert cluster.faults() == []


def is_whole(cluster: Cluster) -> bool:
    return all(len(cluster.partition("read", number)["in_sync"]) == 3 for number in range(3))
